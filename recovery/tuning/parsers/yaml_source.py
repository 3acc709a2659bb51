"""A YAML file while it is parsed: its lines, its budget, and settings with their place in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from recovery.domain.tuning.n8n_variables import READ
from recovery.domain.tuning.workloads import InsertPoint, TextSpan, WorkloadSetting
from recovery.tuning.parsers.yaml_nodes import (
    SETTING_COST,
    ParseBudget,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    word,
)

_WORD = re.compile(r"\S+")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|h|m|s)")


@dataclass(slots=True)
class YamlSource:
    """A YAML file. `lines`: the text split at LF; a text with other line breaks of YAML gets no patch."""

    name: str
    text: str
    budget: ParseBudget
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")

    def valued(self, key: YamlScalar, value: YamlNode, *, wrap: str = '"{}"') -> WorkloadSetting:
        """Returns a key and its value as a setting. `wrap`: how the value is written where it stands without quotes."""
        self.budget.spend(SETTING_COST, key.line)
        if not isinstance(value, YamlScalar):
            return WorkloadSetting(key.value)
        first = key.line if self._stands_alone(key) else 0
        place = self._span(value, wrap, first, max(key.line, value.last) if value.line >= key.line else key.line)
        if value.line != key.line:
            place = None  # an alias, whose value others share; or a block
        return WorkloadSetting(key.value, _kept(key.value, value), place, self._span(key, "{}"))

    def pair(self, item: YamlScalar) -> WorkloadSetting:
        """Returns `NAME=value`, one word of a list, as a setting. A name alone passes on the caller's value."""
        self.budget.spend(SETTING_COST, item.line)
        name, equals, value = item.value.partition("=")
        whole = self._span(item, "{}")
        if whole is None or not equals:
            return WorkloadSetting(name, value if name in READ else "", is_hidden=not equals)
        first = item.line if re.fullmatch(r"\s*- +", self.lines[item.line - 1][: item.column]) else 0
        start = whole.column + bool(item.style)
        middle = start + len(name)
        end = whole.end_column - bool(item.style)
        place = TextSpan(self.name, item.line, middle + 1, item.line, end, "{}", first, item.line if first else 0)
        renames = TextSpan(self.name, item.line, start, item.line, middle)
        return WorkloadSetting(name, value if name in READ else "", place, renames)

    def named(self, item: YamlMapping, name: YamlScalar, value: YamlNode | None) -> WorkloadSetting:
        """Returns `name:` and `value:` of one item of a list as a setting."""
        self.budget.spend(SETTING_COST, name.line)
        renames = self._span(name, "{}")
        if not isinstance(value, YamlScalar):
            return WorkloadSetting(name.value, place=None, renames=renames)
        first = item.line if self._is_alone(item) else 0
        place = self._span(value, '"{}"', first, item.last)
        return WorkloadSetting(name.value, _kept(name.value, value), place, renames)

    def number(self, block: YamlNode | None, name: str) -> WorkloadSetting | None:
        """Returns a number of this block, if it stands beside its key."""
        found = self.budget.pairs(block).get(name)
        if found is None or not isinstance(found[1], YamlScalar):
            return None
        is_here = found[1].line == found[0].line
        return WorkloadSetting(name, found[1].value, self.span(found[1], "{}") if is_here else None)

    def part(self, scalar: YamlScalar, inner: re.Match[str], group: int = 1) -> TextSpan | None:
        """Returns the place of what a pattern has found inside a scalar of one line."""
        whole = self._span(scalar, "{}")
        if whole is None:
            return None
        start = whole.column + bool(scalar.style)
        return TextSpan(self.name, whole.line, start + inner.start(group), whole.line, start + inner.end(group))

    def span(self, scalar: YamlScalar, wrap: str) -> TextSpan | None:
        return self._span(scalar, wrap)

    def room(self, node: YamlNode | None, line: str, *, head: str = "", at_top: bool = False) -> InsertPoint | None:
        """Returns the point in a block before its first line or behind its last; None if it is written in brackets."""
        start = self._start(node)
        if start is None or isinstance(node, YamlScalar | None):
            return None
        first, column = start
        after = first - 1 if at_top else node.last
        if at_top and self.lines[after][:column].strip():
            after += 1  # the first line of an item of a list also holds its dash
        heads = (" " * column + head,) if head else ()
        return InsertPoint(self.name, after, column, line, heads)

    def inside(
        self, block: YamlNode | None, name: str, line: str, *, listed: bool = False, in_flow: str = ""
    ) -> InsertPoint | None:
        """Returns the point under a key of a block: behind its last line, or as its first where it has none.

        `in_flow`: how it is written in brackets; "": it is not.
        """
        found = self.budget.pairs(block).get(name)
        if found is None:
            return self.room(block, indented(line), head=f"{name}:")
        key, value = found
        if isinstance(value, YamlScalar):
            is_nothing = not word(value) and not value.style and self._stands_alone(key)
            return InsertPoint(self.name, key.line, key.column + 2, line) if is_nothing else None
        if isinstance(value, YamlSequence) is not listed:
            return None
        return self._room_in_flow(value, in_flow) if value.is_flow and in_flow else self.room(value, line)

    def _room_in_flow(self, node: YamlSequence | YamlMapping, line: str) -> InsertPoint | None:
        """Returns the point before the closing bracket. Names get quotes if those that are there have them."""
        inner = node.items[-1] if isinstance(node, YamlSequence) and node.items else node
        (number, column), is_empty = node.closed, not (node.items if isinstance(node, YamlSequence) else node.pairs)
        if is_empty or number > len(self.lines) or self.lines[number - 1][:column].rstrip().endswith(","):
            return None
        if not (isinstance(inner, YamlMapping) and inner.pairs and inner.pairs[0][0].style):
            line = re.sub(r'"(name|value|\{0\})"', r"\1", line)
        return InsertPoint(self.name, number, column, line, is_flow=True)

    def _is_alone(self, item: YamlMapping) -> bool:
        """Returns True if the lines of this item of a list hold nothing else."""
        if item.line > len(self.lines) or not re.fullmatch(r"\s*- +", self.lines[item.line - 1][: item.column]):
            return False
        return not item.is_flow or item.closed[0] == item.line

    def _start(self, node: YamlNode | None) -> tuple[int, int] | None:
        """Returns line and column of a block's first key or dash; the block's own key may be on a line before."""
        if isinstance(node, YamlMapping) and node.pairs and not node.is_flow:
            return node.pairs[0][0].line, node.pairs[0][0].column
        if isinstance(node, YamlSequence) and node.items and not node.is_flow:
            written = self.lines[node.items[0].line - 1]
            column = len(written) - len(written.lstrip(" "))
            return (node.items[0].line, column) if written[column : column + 1] == "-" else None
        return None

    def _stands_alone(self, key: YamlScalar) -> bool:
        return key.line <= len(self.lines) and not self.lines[key.line - 1][: key.column].strip()

    def _span(self, scalar: YamlScalar, wrap: str, first: int = 0, last: int = 0) -> TextSpan | None:
        """Returns the scalar's place; None unless the text there is exactly the value: escapes, blocks and folded lines
        are not edited.
        """
        if scalar.line != scalar.end_line or scalar.line > len(self.lines):
            return None
        written = f"{scalar.style}{scalar.value}{scalar.style}"
        raw = self.lines[scalar.line - 1][scalar.column : scalar.end_column]
        if not raw.endswith(written):  # before it, an anchor may stand
            return None
        column = scalar.end_column - len(written)
        wrap = f"{scalar.style}{wrap.strip(chr(34))}{scalar.style}" if scalar.style else wrap
        return TextSpan(
            self.name, scalar.line, column, scalar.line, scalar.end_column, wrap, first, last if first else 0
        )


def _kept(name: str, value: YamlScalar) -> str:
    return value.value if name in READ else ""


def words(budget: ParseBudget, *nodes: YamlNode | None) -> tuple[str, ...]:
    """Returns the words of commands: lists, lines, and a shell's `-c` line split up."""
    found: list[str] = []
    for node in nodes:
        parts = budget.items(node) if isinstance(node, YamlSequence) else [node]
        for part in parts:
            found += _WORD.findall(word(part))
    return tuple(found)


def duration(written: str) -> float | None:
    """Parses `30`, `30s`, `1m30s`, `1h` as seconds; None if it is no duration."""
    if re.fullmatch(r"\d{1,9}", written):
        return float(written)
    parts = _DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def whole(written: str) -> int | None:
    return int(written) if re.fullmatch(r"[0-9]{1,6}", written) else None


def indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.split("\n"))
