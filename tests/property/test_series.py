"""Rings and buckets hold what was put in, for any input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.queues.time_series import (
    HOURS,
    MINUTE,
    POINTS,
    FinishedRing,
    FinishedTally,
    FinishedWindow,
    library_minutes,
)

counts = st.none() | st.integers(0, 2**32 - 2)
tallies = st.builds(FinishedTally, counts, counts, counts)
minutes = st.integers(25_000_000, 40_000_000)


@given(st.integers(1, 50), minutes, st.lists(tallies, min_size=1, max_size=120), st.integers(1, 60))
def test_a_ring_gives_back_its_newest_cells_and_no_others(
    cells: int, first: int, written: list[FinishedTally], asked: int
) -> None:
    ring = FinishedRing(unit=1, cells=cells)
    string = bytearray(cells * 16)
    for period, tally in enumerate(written, first):
        _write(string, ring, period, [tally])
    last = first + len(written) - 1
    start = last - asked + 1
    raw = b"".join(bytes(string[low : high + 1]) for low, high in ring.spans(start, last))
    kept = {period: written[period - first] for period in range(max(first, last - cells + 1), last + 1)}
    assert ring.read(raw, start, last) == {period: tally for period, tally in kept.items() if period >= start}


@given(st.integers(1, 50), minutes, st.lists(tallies, max_size=120))
def test_writing_cells_in_a_row_is_writing_each_of_them(cells: int, first: int, row: list[FinishedTally]) -> None:
    ring = FinishedRing(unit=1, cells=cells)
    at_once, one_by_one = bytearray(cells * 16), bytearray(cells * 16)
    _write(at_once, ring, first, row)
    for period, tally in enumerate(row, first):
        _write(one_by_one, ring, period, [tally])
    assert at_once == one_by_one


def _write(string: bytearray, ring: FinishedRing, first: int, row: list[FinishedTally]) -> None:
    for offset, piece in ring.pieces(first, row):
        string[offset : offset + len(piece)] = piece
    assert len(string) == ring.cells * 16


@given(st.sampled_from(HOURS), st.integers(10**12, 4 * 10**12))
def test_every_chart_ends_with_the_newest_closed_bucket(hours: int, now: int) -> None:
    window = FinishedWindow.of(hours, now)
    assert window.size <= POINTS
    assert window.end * MINUTE <= now < (window.end + window.step) * MINUTE


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), minutes, st.integers(0, 90))
def test_metrics_as_the_library_writes_them_are_read_as_they_were(jobs: list[int], first: int, idle: int) -> None:
    points, total, prev_ts, prev_count = _library(jobs, first)
    if prev_ts is None:
        return
    now = (first + len(jobs) + idle) * MINUTE
    read = library_minutes(
        points, count=total, prev_ts=prev_ts, prev_count=prev_count, now=now, minutes=len(jobs) + idle
    )
    started = next(index for index, number in enumerate(jobs) if number)
    expected = [None] * started + jobs[started:] + [0] * idle
    assert list(read) == expected[::-1]


def _library(jobs: list[int], first: int) -> tuple[list[int], int, int | None, int]:
    """collectMetrics of Bull 4.16 and BullMQ 5, line by line."""
    points: list[int] = []
    count, prev_ts, prev_count = 0, None, 0
    for minute, number in enumerate(jobs, first):
        for _ in range(number):
            before, timestamp = count, minute * MINUTE + 59_000
            count += 1
            if prev_ts is None:
                prev_ts, prev_count = timestamp, 0
                continue
            gap = timestamp // MINUTE - prev_ts // MINUTE
            if gap > 0:
                points[:0] = [0] * (gap - 1) + [before - prev_count]
                prev_ts, prev_count = timestamp, before
    return points, count, prev_ts, prev_count
