"""Stores what a server measured over time: cells of five seconds and of a minute, and the points of a chart.

Percentages are of the whole server. None is always: not known. It is never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from recovery.domain.ring_buffer import RingBuffer
from recovery.domain.servers.samples import Server

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
POINTS = 720  # of one chart: more than that no screen can tell apart
HOURS = (0.25, 1, 6, 24, 168)  # the ranges a chart offers
# Lengths that a point may have: each divides a day, so that points stay put while time goes on.
_STEPS = (*(s * SECOND for s in (5, 10, 15, 20, 30)), *(m * MINUTE for m in (1, 2, 3, 5, 10, 15, 20, 30, 60)))
_CELL = Struct(">IHHHHI")  # 16 bytes: period, three CPUs and memory in hundredths of a percent, load in hundredths
_NO_SHARE, _NO_LOAD = 0xFFFF, 0xFFFFFFFF
_HUNDREDTHS = 100
_FULL = 100.0


class ServerCell(NamedTuple):
    """Measurements of one stretch of time; `at` is where it starts, in ms."""

    at: int
    cpu_raw: float | None = None
    cpu_ema: float | None = None
    cpu_peak: float | None = None  # the highest sample in it
    memory: float | None = None  # used, in percent
    load: float | None = None  # of one minute

    @property
    def is_unknown(self) -> bool:
        return all(value is None for value in self[1:])


def cell_of_sample(server: Server) -> ServerCell:
    """Returns the newest sample as a cell of its history."""
    is_known = server.mem_used is not None and server.mem_total
    memory = _FULL * (server.mem_used or 0) / (server.mem_total or 1) if is_known else None
    return ServerCell(server.sampled_at, server.cpu_raw, server.cpu_ema, server.cpu_raw, memory, server.load1)


def merge_cells(at: int, cells: Iterable[ServerCell]) -> ServerCell:
    """Merges cells: the mean of each value, and the highest peak. Unknown values are left out: a mean stays true."""
    raw, ema, peak, memory, load = zip(*(cell[1:] for cell in cells), strict=True)
    highest = max((value for value in peak if value is not None), default=None)
    return ServerCell(at, _mean(raw), _mean(ema), highest, _mean(memory), _mean(load))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class ServerRing:
    """Ring buffer of cells, one for each period of `unit` ms."""

    name: str
    unit: int
    cells: int

    @property
    def circle(self) -> RingBuffer:
        return RingBuffer(self.cells, _CELL)

    def period(self, at: int) -> int:
        return at // self.unit

    def spans(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns the byte ranges (both ends included, as GETRANGE wants them) that hold the periods first to last."""
        return self.circle.spans(first, last)

    def read(self, raw: bytes, first: int, last: int) -> dict[int, ServerCell]:
        """Returns the cells in these bytes that belong to the periods first to last."""
        return {period: _cell(period * self.unit, row) for period, row in self.circle.read(raw, first, last)}

    def pieces(self, cells: Mapping[int, ServerCell]) -> Iterator[tuple[int, bytes]]:
        """Yields where to write the cells of these periods, and the bytes; adjacent ones go together."""
        for run in _runs(sorted(cells)):
            yield from self.circle.pieces(run[0], [_row(cells[period]) for period in run])


# An hour and a week, and one point of a chart more: the oldest one that is still drawn must not be overwritten by the
# newest. Together 174 KB a server.
FINE = ServerRing("5s", 5 * SECOND, 720 + 24)
COARSE = ServerRing("1m", MINUTE, 7 * 24 * 60 + 20)


def _runs(periods: Iterable[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for period in periods:
        if run and period != run[-1] + 1:
            yield run
            run = []
        run.append(period)
    if run:
        yield run


def _row(cell: ServerCell) -> list[int]:
    shares = (cell.cpu_raw, cell.cpu_ema, cell.cpu_peak, cell.memory)
    bounded = (None if share is None else min(max(share, 0.0), _FULL) for share in shares)
    return [*(_whole(share, _NO_SHARE) for share in bounded), _whole(cell.load, _NO_LOAD)]


def _whole(value: float | None, unknown: int) -> int:
    return unknown if value is None else min(max(round(value * _HUNDREDTHS), 0), unknown - 1)


def _cell(at: int, row: Sequence[int]) -> ServerCell:
    raw, ema, peak, memory = (_part(share, _NO_SHARE) for share in row[:-1])
    return ServerCell(at, raw, ema, peak, memory, _part(row[-1], _NO_LOAD))


def _part(written: int, unknown: int) -> float | None:
    return None if written == unknown else written / _HUNDREDTHS


@dataclass(frozen=True, slots=True)
class ServerSeries:
    """Points of a chart, oldest first, one every `step` ms; a gap is a point of which nothing is known."""

    points: tuple[ServerCell, ...]
    step: int
    note: str = ""  # what the reader should know, in sentences


@dataclass(frozen=True, slots=True)
class ServerWindow:
    """Closed points of a chart, in ms: they start at multiples of the step."""

    start: int
    step: int
    size: int

    @classmethod
    def of(cls, hours: float, now: int) -> ServerWindow:
        length = round(hours * HOUR)
        ring = FINE if length <= HOUR else COARSE
        step = next(step for step in _STEPS if step >= ring.unit and length <= step * POINTS)
        end, size = now // step * step, length // step
        return cls(end - size * step, step, size)

    @property
    def end(self) -> int:
        """Returns the first moment that is no longer in it."""
        return self.start + self.size * self.step

    @property
    def ring(self) -> ServerRing:
        """Returns the ring that holds all of the window, as fine as it is drawn."""
        return FINE if self.step < MINUTE else COARSE

    @property
    def periods(self) -> tuple[int, int]:
        """Returns the first and the last period in its ring."""
        return self.ring.period(self.start), self.ring.period(self.end) - 1

    def series(self, cells: Iterable[ServerCell], note: str = "") -> ServerSeries:
        """Returns these cells as points; those outside of the window are left out."""
        buckets: dict[int, list[ServerCell]] = {}
        for cell in cells:
            buckets.setdefault((cell.at - self.start) // self.step, []).append(cell)
        starts = ((index, self.start + index * self.step) for index in range(self.size))
        points = (merge_cells(at, buckets[index]) if index in buckets else ServerCell(at) for index, at in starts)
        return ServerSeries(tuple(points), self.step, note)
