"""Follows units in systemd's journal by journalctl, from the entry after the last one that was shipped."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from recovery.domain.logs import levels
from recovery.domain.logs.line_batches import Raw
from recovery.domain.logs.timestamps import LineClock
from recovery.domain.logs.types import LogLevel
from recovery.monitor.shipping.formats import Group, Labels
from recovery.monitor.shipping.line_reader import cut
from recovery.monitor.shipping.subprocess_tail import Say, SubprocessTail

# -- journal entry
# Parses an entry of systemd's journal, as journalctl writes it in JSON.


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


# -- journal


KEY = "journal"
_COMMAND = ("journalctl", "--output=json", "--all", "--quiet", "--no-pager", "--no-tail", "--follow")
_FIELDS = "--output-fields=MESSAGE,PRIORITY,_SYSTEMD_UNIT,UNIT"  # a third of all that an entry has
_CURSOR = re.compile(r"[a-z]=[0-9a-f]+(?:;[a-z]=[0-9a-f]+)*")
_SINCE = re.compile(r"@[0-9]{1,12}")
_MAGIC = frozenset("*?[")


class Journal:
    """Journal of the configured units. `place` is the cursor of an entry, or `@` and a second from which on to read.

    Nothing is read while the store is away: entries wait in the journal itself.
    """

    def __init__(self, units: Sequence[str], server: str, say: Say) -> None:
        self.place = ""
        self.is_unsaved = False
        self._labels: Labels = (("server", server), ("source", KEY))
        self._units = tuple(unit if "." in unit or _MAGIC & set(unit) else f"{unit}.service" for unit in units)
        self._clock = LineClock()
        self._following = SubprocessTail(say)

    @property
    def is_behind(self) -> bool:
        return self._following.is_behind

    def settle(self, place: str) -> None:
        """Sets the place after which to read; without a valid one the current place, else now by this host's clock.

        journalctl compares with the times of entries, which are this host's too.
        """
        known = place if _CURSOR.fullmatch(place) or _SINCE.fullmatch(place) else ""
        self.is_unsaved = not known
        self.place = known or self.place or f"@{int(time.time())}"
        self._following.stop()

    def gather(self, now: float, moment: int) -> list[Group]:
        """Returns the next entries by labels, and moves `place` behind them."""
        found: dict[Labels, list[Raw]] = {}
        for written in self._following.read(now, self._command):
            if (entry := parse_entry(written)) is None:
                continue
            self.place = entry.cursor or self.place
            if not self._is_wanted(entry.unit):
                continue
            self.is_unsaved = True
            at = self._clock.told(entry.at, moment)
            level = (("level", entry.level.value),) if entry.level else ()
            lines = found.setdefault((*self._labels, ("unit", entry.unit), *level), [])
            lines += [(at, cut(line, len(line))) for line in entry.lines]
        return list(found.items())

    def close(self) -> None:
        self._following.stop()

    def _command(self) -> list[str]:
        """Returns the command. Unit patterns are applied by us, as journalctl resolves them only once, at its start."""
        where = f"--since={self.place}" if self.place.startswith("@") else f"--after-cursor={self.place}"
        units = () if self._has_patterns else (f"--unit={unit}" for unit in self._units)
        return [*_COMMAND, _FIELDS, where, *units]

    @property
    def _has_patterns(self) -> bool:
        return any(_MAGIC & set(unit) for unit in self._units)

    def _is_wanted(self, unit: str) -> bool:
        return not self._has_patterns or any(fnmatchcase(unit, wanted) for wanted in self._units)
