"""Describes the shape of a payload: its keys, types, sizes and counts; of its values only what the configuration shows.

A list of secrets can never be complete, so nothing here asks whether a value is one. Everything is bounded, and nothing
raises: what cannot be read is told by its size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from recovery.domain import bounded_json
from recovery.domain.identifiers import QueueRef
from recovery.domain.redaction import redact

DEPTH_LIMIT = 12  # levels: of deeper ones only the count is shown
MEMBERS_LIMIT = 100  # of one object
ITEMS_LIMIT = 20  # of one list; the others are alike, or would show nothing more
NODE_LIMIT = 2_000  # of one payload: what the page's tree draws
ANY, ANY_DEPTH = "*", "**"
# A key that is data itself (an address, a token, a person's name) is described by its length, like a value.
_KEY_LIMIT, _DIGITS_LIMIT = 48, 4
_KEY = re.compile(r"[^\W\d][\w.:/$-]*")


@dataclass(frozen=True, slots=True)
class ShownValues:
    """Entry of the list of shown values: patterns of queues, and paths of keys below a part of the job."""

    queues: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]

    def of(self, queue: QueueRef | None) -> tuple[tuple[str, ...], ...]:
        """Returns the paths that count for this queue."""
        names = (queue.base, str(queue)) if queue else ("",)
        is_meant = any(fnmatchcase(name, pattern) for name in names for pattern in self.queues)
        return self.paths if is_meant else ()


def shape(given: str, part: str, paths: Iterable[tuple[str, ...]] = ()) -> str:
    """Returns JSON of the same form with a description for each value, or one description. "" for nothing.

    `part` is the first step of each path: data, options, result, progress, or the name of a field.
    """
    if not given:
        return ""
    below = _below(tuple(paths), part)
    try:
        value = bounded_json.loads(given)
    except (ValueError, RecursionError):
        return redact.text(given) if _matches(below) else _unread(given)
    told = _Shape().of(value, below, 0)
    return told if isinstance(told, str) else _json(told)


class _Shape:
    """Walk through one payload that counts what it describes."""

    def __init__(self) -> None:
        self._left = NODE_LIMIT

    def of(self, value: Any, paths: Sequence[tuple[str, ...]], depth: int) -> Any:
        self._left -= 1
        if isinstance(value, dict) and value:
            if depth >= DEPTH_LIMIT or self._left <= 0:
                return f"<object of {len(value):,} keys>"
            return self._object(value, paths, depth)
        if isinstance(value, list) and value:
            if depth >= DEPTH_LIMIT or self._left <= 0:
                return f"<list of {len(value):,} items>"
            return self._list(value, paths, depth)
        return _scalar(value) if not _matches(paths) else _shown(value)

    def _object(self, value: dict[str, Any], paths: Sequence[tuple[str, ...]], depth: int) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for number, (key, item) in enumerate(value.items()):
            if number == MEMBERS_LIMIT or self._left <= 0:
                told["…"] = f"<{len(value) - number:,} more keys>"
                break
            told[key_shown(key, number)] = self.of(item, _below(paths, key), depth + 1)
        return told

    def _list(self, value: list[Any], paths: Sequence[tuple[str, ...]], depth: int) -> list[Any]:
        told: list[Any] = []
        for number, item in enumerate(value):
            if number == ITEMS_LIMIT or self._left <= 0:
                told.append(f"<{len(value) - number:,} more items>")
                break
            told.append(self.of(item, _below(paths, str(number)), depth + 1))
        return told


def _unread(given: str) -> str:
    """Describes a text that is no JSON, or of which only the beginning is here."""
    kind = {"{": "object", "[": "list"}.get(given.lstrip()[:1], "")
    return f"<{kind} that cannot be read or was cut>" if kind else f"<not JSON, {len(given):,} characters>"


def _scalar(value: Any) -> Any:
    """Describes a value by its type; `null`, {} and [] stay."""
    if isinstance(value, bool):
        return "<true or false>"
    if isinstance(value, int | float):
        return "<number>"
    if isinstance(value, str):
        return f"<text of {len(value):,} characters>"
    return value


def _shown(value: Any) -> Any:
    """Returns a value that the configuration shows; what in it is known as a secret stays hidden all the same."""
    return redact.value(value)


def key_shown(key: str, number: int) -> str:
    """Returns the key where it looks like a name, else a description. `number` tells the others apart."""
    is_name = len(key) <= _KEY_LIMIT and _KEY.fullmatch(key) and sum(map(str.isdigit, key)) <= _DIGITS_LIMIT
    return key if is_name and redact.text(key) == key else f"<key {number + 1} of {len(key):,} characters>"


def _below(paths: Sequence[tuple[str, ...]], key: str) -> tuple[tuple[str, ...], ...]:
    """Returns what is left of the paths behind this key."""
    found: dict[tuple[str, ...], None] = {}
    for path in paths:
        if not path:
            continue
        if path[0] == ANY_DEPTH:
            found[path] = None
            found |= dict.fromkeys(_below((path[1:],), key))
        elif fnmatchcase(key, path[0]):
            found[path[1:]] = None
    return tuple(found)


def _matches(paths: Sequence[tuple[str, ...]]) -> bool:
    return any(all(step == ANY_DEPTH for step in path) for path in paths)


def _json(given: Any) -> str:
    """Writes JSON. Half of a surrogate pair is legal in JSON and nowhere else."""
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()
