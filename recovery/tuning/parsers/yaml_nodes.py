"""Parses YAML into nodes that know their place in the text. Nothing is constructed from it: no object, no date, no
number.

A text may be written to exhaust its reader, so everything has a limit: events, depth, time, and what aliases unfold
into. Aliases cost nothing here, for two names of one node are one node; `ParseBudget` counts them where they are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from recovery.domain.redaction import redact
from recovery.errors import Illegible

EVENTS_LIMIT = 150_000  # of one file; one of a megabyte that is a manifest has half of that
DEPTH_LIMIT = 40  # a pod's template in a list of manifests is 15 deep
SECONDS_LIMIT = 5.0  # for one file; a megabyte takes a second
UNFOLD_LIMIT = 600_000  # pairs and items read in one file, each as often as an alias repeats it: a second or two
SETTING_COST = 20  # of them, for each setting that is made of one
_CORE = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset({None, "!", "!reset", "!override"}) | {
    _CORE + kind for kind in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge")
}
_MERGE = "<<"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # only its parser is used


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """A YAML scalar. Lines from 1, columns from 0, the end exclusive. `style`: its quote, "|", ">" or ""."""

    value: str
    line: int
    column: int
    end_line: int
    end_column: int
    style: str = ""

    @property
    def last(self) -> int:
        """Last line that it stands on; the end of a block is the beginning of the line behind it."""
        return self.end_line - (self.end_column == 0 and self.end_line > self.line)


@dataclass(slots=True)
class YamlSequence:
    line: int
    column: int
    is_flow: bool
    last: int  # the last line of its own text; an alias' content stands elsewhere
    items: list[YamlNode] = field(default_factory=list)
    closed: tuple[int, int] = (0, 0)  # line and column of its closing bracket, where it is written in brackets


@dataclass(slots=True)
class YamlMapping:
    line: int
    column: int
    is_flow: bool
    last: int
    pairs: list[tuple[YamlScalar, YamlNode]] = field(default_factory=list)
    closed: tuple[int, int] = (0, 0)


YamlNode = YamlScalar | YamlSequence | YamlMapping


def documents(name: str, text: str) -> Iterator[YamlNode]:
    """Yields the documents of one file, in order. Raises Illegible, which names the line."""
    try:
        yield from _Composer(name, text).documents()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        problem = redact.text(error.problem or "it ends too early")
        raise Illegible(name, f"this is not YAML: {problem}.", line=line) from None
    except yaml.YAMLError as error:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 0
        raise Illegible(name, "this is not YAML: a character that it does not allow.", line=line) from None


class _Composer:
    """Composes nodes from the parser's events, without recursion."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._open: list[YamlSequence | YamlMapping] = []
        self._anchors: dict[str, YamlNode] = {}
        self._names: list[str | None] = []  # anchors of what is open
        self._keys: list[YamlScalar | None] = []  # of each open mapping the key that waits for its value
        self._seen: list[set[str]] = []

    def documents(self) -> Iterator[YamlNode]:
        deadline = time.monotonic() + SECONDS_LIMIT
        for count, event in enumerate(yaml.parse(self._text, Loader=_LOADER)):
            if count > EVENTS_LIMIT:
                raise self._refused(event, f"it is too large: more than {EVENTS_LIMIT:,} parts.")
            if time.monotonic() > deadline:
                raise self._refused(event, f"it takes longer than {SECONDS_LIMIT:.0f} s to read.")
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
            elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent) and (done := self._take(event)):
                yield done

    def _take(self, event: Any) -> YamlNode | None:
        """Takes in an event; returns the document that ends with it."""
        if isinstance(event, yaml.CollectionEndEvent):
            ended = self._open.pop()
            if ended.is_flow and (mark := event.start_mark):
                ended.closed = mark.line + 1, mark.column
            node: YamlNode = ended
            anchor = self._names.pop()
            self._keys.pop()
            self._seen.pop()
        elif isinstance(event, yaml.AliasEvent):
            # An alias inside the node that it names would contain itself.
            if event.anchor not in self._anchors:
                raise self._refused(event, "an alias without an anchor before it.")
            node, anchor = self._anchors[event.anchor], None
        else:
            opened = self._begun(event)
            if opened is None:
                return None
            node, anchor = opened, event.anchor
        if anchor:
            self._anchors[anchor] = node
        return self._placed(node, event)

    def _begun(self, event: Any) -> YamlScalar | None:
        """Returns a scalar, which is complete at once; None for a collection that begins."""
        if event.tag not in _PLAIN_TAGS:
            raise self._refused(event, "a tag that constructs an object; only plain values are read.")
        start, end = event.start_mark, event.end_mark
        if isinstance(event, yaml.ScalarEvent):
            style = event.style or ""
            return YamlScalar(event.value, start.line + 1, start.column, end.line + 1, end.column, style)
        if len(self._open) >= DEPTH_LIMIT:
            raise self._refused(event, f"it is nested deeper than {DEPTH_LIMIT}.")
        made = YamlMapping if isinstance(event, yaml.MappingStartEvent) else YamlSequence
        self._open.append(made(start.line + 1, start.column, bool(event.flow_style), start.line + 1))
        self._names.append(event.anchor)
        self._keys.append(None)
        self._seen.append(set())
        return None

    def _placed(self, node: YamlNode, event: Any) -> YamlNode | None:
        if not self._open:
            return node
        parent = self._open[-1]
        is_alias = isinstance(event, yaml.AliasEvent)
        parent.last = max(parent.last, event.start_mark.line + 1 if is_alias else node.last)
        if isinstance(parent, YamlSequence):
            parent.items.append(node)
        elif (key := self._keys[-1]) is not None:
            parent.pairs.append((key, node))
            self._keys[-1] = None
        else:
            self._keys[-1] = self._key(node, event)
        return None

    def _key(self, node: YamlNode, event: Any) -> YamlScalar:
        if not isinstance(node, YamlScalar):
            raise self._refused(event, "a key that is not a plain string.")
        if node.value in self._seen[-1]:
            raise self._refused(event, "a duplicate key.")
        self._seen[-1].add(node.value)
        return node

    def _refused(self, event: Any, why: str) -> Illegible:
        return Illegible(self._name, why, line=event.start_mark.line + 1)


class ParseBudget:
    """Limits how many nodes of one file are read, each counted as often as an alias repeats it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = UNFOLD_LIMIT

    def spend(self, count: int, line: int) -> None:
        self._left -= count + 1
        if self._left < 0:
            raise Illegible(self._name, f"its aliases expand to more than {UNFOLD_LIMIT:,} parts.", line=line)

    def pairs(self, node: YamlNode | None, depth: int = 0) -> dict[str, tuple[YamlScalar, YamlNode]]:
        """Returns the pairs by key; a merged pair counts where the mapping has none of its own. {} for other nodes."""
        if not isinstance(node, YamlMapping):
            return {}
        if depth > DEPTH_LIMIT:
            raise Illegible(self._name, f"merges nested deeper than {DEPTH_LIMIT}.", line=node.line)
        self.spend(len(node.pairs), node.line)
        own = {key.value: (key, value) for key, value in node.pairs if key.value != _MERGE}
        for key, value in node.pairs:
            if key.value == _MERGE:
                for merged in value.items if isinstance(value, YamlSequence) else [value]:
                    own = self.pairs(merged, depth + 1) | own
        return own

    def items(self, node: YamlNode | None) -> list[YamlNode]:
        if not isinstance(node, YamlSequence):
            return []
        self.spend(len(node.items), node.line)
        return node.items

    def at(self, node: YamlNode | None, *path: str) -> YamlNode | None:
        """Returns the node under these nested keys."""
        for key in path:
            found = self.pairs(node).get(key)
            if found is None:
                return None
            node = found[1]
        return node


def word(node: YamlNode | None) -> str:
    """Returns a scalar's text; "" for every other node, and for YAML's null."""
    if not isinstance(node, YamlScalar) or (not node.style and node.value in ("~", "null", "Null", "NULL")):
        return ""
    return node.value
