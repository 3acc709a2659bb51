"""Turns JSON into a foldable tree: a flat list of openings, leaves and closings that one template loop can draw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recovery.domain import bounded_json

OPEN_DEPTH = 3  # deeper levels start folded
DEPTH_LIMIT = 24  # deeper levels are one line of text
NODE_LIMIT = 2_000  # nodes drawn; the text below the tree has the rest
LEAF_LIMIT = 2_000  # characters of one value in the tree
# Characters of the indented text. What would be longer stands as it came: indenting a small but deep value makes
# fifty megabytes of blanks.
PRETTY_LIMIT = 128 * 1024


_INDENTING = json.JSONEncoder(indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class JsonTreeNode:
    """A step of drawing a tree. `step`: open, leaf, close, rest. `kind` colours a leaf: text, number, word."""

    step: str
    key: str = ""
    text: str = ""
    kind: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class JsonTree:
    """JSON as a tree. `nodes` is empty when the text is no object or list, or was cut: then the text is shown."""

    nodes: tuple[JsonTreeNode, ...]
    pretty: str

    @property
    def is_tree(self) -> bool:
        return bool(self.nodes)


def tree(text: str, *, is_cut: bool = False, is_shape: bool = False) -> JsonTree:
    """Builds the tree. It never raises: what is no JSON is text. `is_shape`: its leaves are descriptions of values."""
    if is_cut or not text.lstrip().startswith(("{", "[")):
        return JsonTree((), text)
    try:
        value = bounded_json.loads(text)
        return JsonTree(tuple(_bounded(_walk("", value, 0, is_shape=is_shape))), _pretty(value) or text)
    except (ValueError, RecursionError):
        return JsonTree((), text)


def _pretty(value: Any) -> str:
    """Returns the value as indented JSON; "" when that would be too long."""
    parts, size = [], 0
    for part in _INDENTING.iterencode(value):
        parts.append(part)
        size += len(part)
        if size > PRETTY_LIMIT:
            return ""
    return _whole("".join(parts))


def _bounded(nodes: Iterator[JsonTreeNode]) -> Iterator[JsonTreeNode]:
    """Cuts after the limit, and closes what is open then."""
    depth = 0
    for number, node in enumerate(nodes):
        depth += (node.step == "open") - (node.step == "close")
        yield node
        if number >= NODE_LIMIT:
            yield JsonTreeNode("rest", text=f"more than {NODE_LIMIT:,} values; the text below has them all")
            yield from [JsonTreeNode("close")] * depth
            return


def _walk(key: str, value: Any, depth: int, *, is_shape: bool) -> Iterator[JsonTreeNode]:
    if not isinstance(value, (dict, list)) or not value:
        yield _leaf(key, value, is_shape=is_shape)
        return
    if depth >= DEPTH_LIMIT:
        yield JsonTreeNode("leaf", key, _short(_json(value)), "text")
        return
    yield JsonTreeNode("open", key, _size(value), is_open=depth < OPEN_DEPTH)
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in members:
        yield from _walk(_whole(str(name)), item, depth + 1, is_shape=is_shape)
    yield JsonTreeNode("close")


def _leaf(key: str, value: Any, *, is_shape: bool) -> JsonTreeNode:
    if is_shape and isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return JsonTreeNode("leaf", key, value, "word")
    if isinstance(value, str):
        return JsonTreeNode("leaf", key, _short(_json(value)), "text")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return JsonTreeNode("leaf", key, _short(_json(value)), "number" if is_number else "word")


def _size(value: dict[str, Any] | list[Any]) -> str:
    if isinstance(value, dict):
        return f"{{{len(value):,}}}"
    return f"[{len(value):,}]"


def _short(text: str) -> str:
    return text if len(text) <= LEAF_LIMIT else f"{text[:LEAF_LIMIT]}… {len(text) - LEAF_LIMIT:,} more characters"


def _json(value: Any) -> str:
    return _whole(json.dumps(value, ensure_ascii=False))


def _whole(text: str) -> str:
    """Replaces lone surrogates: half of a pair is legal in JSON and nowhere else."""
    return text.encode("utf-8", "replace").decode()
