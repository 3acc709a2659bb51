"""Parses an entry of systemd's journal, as journalctl writes it in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recovery.domain.logs import levels
from recovery.domain.logs.types import LogLevel

_MANAGER = "init.scope"  # systemd itself, which logs about other units
_USUAL = 6  # the priority of all that a program prints: it says nothing about the line


@dataclass(frozen=True, slots=True)
class JournalEntry:
    cursor: str
    at: int | None  # ns
    unit: str
    level: LogLevel | None
    lines: tuple[bytes, ...]


def parse_entry(written: bytes) -> JournalEntry | None:
    """Parses one line of journalctl; None if it is no entry."""
    try:
        read = json.loads(written)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict):
        return None
    at = _number(read.get("__REALTIME_TIMESTAMP"))
    lines = tuple(_lines(read.get("MESSAGE")))
    return JournalEntry(
        _text(read.get("__CURSOR")), None if at is None else at * 1000, _unit(read), _level(read), lines
    )


def _unit(read: Mapping[str, Any]) -> str:
    unit = _text(read.get("_SYSTEMD_UNIT"))
    return (_text(read.get("UNIT")) if unit == _MANAGER else "") or unit or "none"


def _level(read: Mapping[str, Any]) -> LogLevel | None:
    priority = _number(read.get("PRIORITY"))
    return None if priority is None or priority == _USUAL else levels.level_of_priority(priority)


def _lines(message: object) -> Iterable[bytes]:
    """Yields the lines of a message: text, a list of bytes if it is no text, null if too long, or a list of these."""
    match message:
        case str():
            return message.encode("utf-8", "replace").split(b"\n")
        case [int(), *_]:
            return _bytes(message).split(b"\n")
        case [*several]:
            return (line for one in several if not isinstance(one, int) for line in _lines(one))
    return ()


def _bytes(numbers: Iterable[object]) -> bytes:
    return bytes(number for number in numbers if isinstance(number, int) and 0 <= number < 256)


def _text(value: object) -> str:
    """Returns a field as text. A repeated field is a list, of which the first one counts."""
    if isinstance(value, list):
        value = value[0] if value else ""
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    text = _text(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None
