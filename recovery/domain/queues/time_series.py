"""Stores finished jobs over time: minutes from the libraries' own metrics, rings of recorded cells, buckets of a chart.

A minute is a number here: milliseconds since 1970 divided by 60,000. None always means unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from recovery.domain.ring_buffer import RingBuffer

MINUTE = 60_000
DAY = 24 * 60  # minutes
POINTS = 240  # of one chart: more than that no screen can tell apart
HOURS = (1, 4, 12, 24, 168)  # the ranges a chart offers
SPARK = 60  # minutes of a sparkline
_STEPS = (1, 2, 3, 5, 6, 10, 15, 20, 30, 60, 120, 180, 360, 720, 1440)  # minutes a bucket may hold; all divide a day
_CELL = Struct(">IIII")
_NONE = 0xFFFFFFFF


class FinishedTally(NamedTuple):
    """Jobs finished in one stretch of time. `left`: jobs that went away, finished and removed or removed by hand."""

    completed: int | None = None
    failed: int | None = None
    left: int | None = None

    @property
    def is_unknown(self) -> bool:
        return self.completed is None and self.failed is None and self.left is None

    @property
    def is_idle(self) -> bool:
        """Returns True if nothing is known to have happened."""
        return not (self.completed or self.failed or self.left)

    def or_else(self, other: FinishedTally) -> FinishedTally:
        """Returns this tally, with gaps filled from the other."""
        return FinishedTally(*(theirs if ours is None else ours for ours, theirs in zip(self, other, strict=True)))

    def at_least(self, other: FinishedTally) -> FinishedTally:
        """Returns the larger value where both are known: for sources that may miss something and never invent."""
        pairs = zip(self, other, strict=True)
        return FinishedTally(*(max((value for value in pair if value is not None), default=None) for pair in pairs))


UNKNOWN = FinishedTally()


@dataclass(frozen=True, slots=True)
class FinishedPoint:
    """Bucket of a chart; `at_ms` is where it starts."""

    at_ms: int
    completed: int | None
    failed: int | None
    left: int | None


@dataclass(frozen=True, slots=True)
class FinishedSeries:
    """Points of a chart. `source`: "library", "recorded", "kept" (counted from finished jobs still there), or ""."""

    points: tuple[FinishedPoint, ...]
    step_ms: int
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class FinishedWindow:
    """Closed buckets of a chart: they start at multiples of the step, so that they stay put while time goes on."""

    start: int  # minute
    step: int  # minutes
    size: int  # buckets

    @classmethod
    def of(cls, hours: int, now: int) -> FinishedWindow:
        step = next(step for step in _STEPS if hours * 60 <= step * POINTS)
        end = now // MINUTE // step * step
        size = hours * 60 // step
        return cls(end - size * step, step, size)

    @property
    def end(self) -> int:
        """Returns the first minute that is no longer in it."""
        return self.start + self.size * self.step

    def span(self, index: int) -> tuple[int, int]:
        """Returns a bucket in milliseconds, the end not included."""
        start = (self.start + index * self.step) * MINUTE
        return start, start + self.step * MINUTE

    def points(self, tallies: Sequence[FinishedTally]) -> tuple[FinishedPoint, ...]:
        return tuple(FinishedPoint((self.start + i * self.step) * MINUTE, *tally) for i, tally in enumerate(tallies))

    def fold(self, cells: Mapping[int, FinishedTally], unit: int = 1) -> list[FinishedTally]:
        """Sums cells of `unit` minutes, by the number of their period, to one tally a bucket."""
        first, width = self.start // unit, self.step // unit
        rows = ([cells.get(first + bucket * width + i, UNKNOWN) for i in range(width)] for bucket in range(self.size))
        return [total(row) for row in rows]


def total(parts: Sequence[FinishedTally]) -> FinishedTally:
    """Returns the sum of known values; unknown when less than half are, because a sum of few looks like a slump."""
    return FinishedTally(*(_sum(column) for column in zip(*parts, strict=True)))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and 2 * len(known) >= len(values) else None


def library_minutes(
    points: Sequence[int], *, count: int, prev_ts: int, prev_count: int, now: int, minutes: int
) -> tuple[int | None, ...]:
    """Returns Bull's and BullMQ's metrics list as one value a minute, newest first; index 0 is the newest closed
    minute.

    The list starts with the minute before that of `prev_ts`. The minute of `prev_ts` itself is still open in Redis
    (`count - prev_count`), and everything after it was idle: the libraries write only when a job finishes. What lies
    beyond the end of the list is unknown: it was trimmed, or nobody measured yet.
    """
    newest = now // MINUTE - 1
    opened = prev_ts // MINUTE
    return tuple(_library_minute(newest - back, opened, points, count - prev_count) for back in range(minutes))


def _library_minute(minute: int, opened: int, points: Sequence[int], latest: int) -> int | None:
    if minute > opened:
        return 0
    if minute == opened:
        return max(0, latest)
    index = opened - 1 - minute
    return points[index] if index < len(points) else None


def by_minute(
    now: int, completed: Sequence[int | None], failed: Sequence[int | None], left: Sequence[int | None] = ()
) -> dict[int, FinishedTally]:
    """Converts columns that run from the newest closed minute backwards to tallies by minute."""
    newest = now // MINUTE - 1
    size = max(len(completed), len(failed), len(left))
    columns = [(*column, *(None,) * (size - len(column))) for column in (completed, failed, left)]
    return {newest - back: FinishedTally(*row) for back, row in enumerate(zip(*columns, strict=True))}


@dataclass(frozen=True, slots=True)
class FinishedRing:
    """Ring buffer of tallies, one for each period of so many minutes."""

    unit: int  # minutes a cell
    cells: int

    @property
    def name(self) -> str:
        return f"{self.unit}m"

    @property
    def _circle(self) -> RingBuffer:
        return RingBuffer(self.cells, _CELL)

    def period(self, minute: int) -> int:
        return minute // self.unit

    def offset(self, period: int) -> int:
        """Returns the position of a period's cell, in bytes."""
        return self._circle.offset(period)

    def spans(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns the byte ranges (both ends included, as GETRANGE wants them) that hold the periods first to last."""
        return self._circle.spans(first, last)

    def read(self, raw: bytes, first: int, last: int) -> dict[int, FinishedTally]:
        """Returns the cells in these bytes that belong to the periods first to last."""
        return {
            period: FinishedTally(*(None if value == _NONE else value for value in values))
            for period, values in self._circle.read(raw, first, last)
        }

    def pieces(self, first: int, tallies: Sequence[FinishedTally]) -> Iterator[tuple[int, bytes]]:
        """Yields where to write these consecutive cells, and the bytes."""
        rows = [[_NONE if value is None else min(value, _NONE - 1) for value in tally] for tally in tallies]
        return self._circle.pieces(first, rows)


# A day of minutes and a week of ten minutes each, and one bucket of a chart more: the oldest bucket that is still
# drawn must not be overwritten by the newest. Together 39 KB a queue.
MINUTES = FinishedRing(unit=1, cells=DAY + 6)
TENS = FinishedRing(unit=10, cells=7 * DAY // 10 + 6)


def newest_first(cells: Mapping[int, FinishedTally], now: int, minutes: int = SPARK) -> Iterator[FinishedTally]:
    """Yields the last closed minutes, newest first, gaps as unknown."""
    newest = now // MINUTE - 1
    return (cells.get(newest - back, UNKNOWN) for back in range(minutes))


def trimmed(values: Iterable[int | None]) -> tuple[int | None, ...]:
    """Returns the column without its unknown end: a column without known values becomes empty."""
    column = list(values)
    while column and column[-1] is None:
        column.pop()
    return tuple(column)
