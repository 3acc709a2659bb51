"""Computes how long jobs ran and waited: median and 95th percentile of those that finished lately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from recovery.domain.jobs import JobRow


@dataclass(frozen=True, slots=True)
class DurationPercentiles:
    """Percentiles in ms, by nearest rank: half of the jobs took at most `p50`, all but one in twenty at most `p95`."""

    p50: int
    p95: int


@dataclass(frozen=True, slots=True)
class JobDurations:
    """Run and wait times of finished jobs; None: no job has one. `jobs` is how many were looked at."""

    jobs: int
    ran: DurationPercentiles | None
    waited: DurationPercentiles | None


def durations(rows: Iterable[JobRow]) -> JobDurations:
    """Computes the percentiles of finished jobs, from each job's last start; a requested delay is no waiting."""
    finished = [row for row in rows if row.finished_at is not None]
    return JobDurations(len(finished), _spread(map(_ran, finished)), _spread(map(_waited, finished)))


def _ran(row: JobRow) -> int | None:
    return _between(row.processed_at, row.finished_at)


def _waited(row: JobRow) -> int | None:
    """Returns the wait time; None for a job that was started more than once, as only its last start is recorded."""
    if row.added_at is None or row.attempts > 1 or (row.starts or 0) > 1 or row.stalls:
        return None
    return _between(row.added_at + row.delay, row.processed_at)


def _between(start: int | None, end: int | None) -> int | None:
    """Returns end minus start; None if it ended before it began, as clocks of two machines may differ."""
    return None if start is None or end is None or end < start else end - start


def _spread(values: Iterable[int | None]) -> DurationPercentiles | None:
    known = sorted(value for value in values if value is not None)
    return DurationPercentiles(_rank(known, 0.50), _rank(known, 0.95)) if known else None


def _rank(ordered: Sequence[int], part: float) -> int:
    return ordered[max(0, ceil(part * len(ordered)) - 1)]
