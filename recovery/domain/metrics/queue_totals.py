"""Counts jobs of a queue that were ever seen to complete, fail and go away: sums of minutes, which never fall."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from recovery.domain.queues.time_series import FinishedTally

_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class QueueTotal:
    """Totals up to and with this minute. None: no minute with a known value yet."""

    minute: int
    completed: int | None = None
    failed: int | None = None
    left: int | None = None

    def after(self, minute: int, tallies: Iterable[FinishedTally]) -> QueueTotal:
        """Returns the totals with these minutes added. Unknown values are not in the sum, and never will be."""
        sums = [self.completed, self.failed, self.left]
        for tally in tallies:
            sums = [_sum(before, value) for before, value in zip(sums, tally, strict=True)]
        return QueueTotal(minute, *sums)

    def encode(self) -> str:
        told = (self.completed, self.failed, self.left)
        return " ".join([str(self.minute), *(_UNKNOWN if value is None else str(value) for value in told)])

    @classmethod
    def decode(cls, packed: bytes) -> Self | None:
        """Parses stored totals. Returns None for what this version did not write."""
        try:
            minute, *told = packed.decode("ascii").split(" ")
            return cls(int(minute), *(None if word == _UNKNOWN else int(word) for word in told))
        except (ValueError, TypeError):
            return None


def _sum(before: int | None, value: int | None) -> int | None:
    return before if value is None else (before or 0) + value
