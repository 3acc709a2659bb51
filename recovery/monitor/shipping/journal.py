"""Follows units in systemd's journal by journalctl, from the entry after the last one that was shipped."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase

from recovery.domain.logs.line_batches import Raw
from recovery.domain.logs.timestamps import LineClock
from recovery.monitor.shipping.formats import Group, Labels
from recovery.monitor.shipping.journal_entry import parse_entry
from recovery.monitor.shipping.line_reader import cut
from recovery.monitor.shipping.subprocess_tail import Say, SubprocessTail

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
