"""Writes the families that have one or more lines for every queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from dashboard.metrics.exposition import Lines, MetricFamily
from dashboard.metrics.labels import library_queue_labels, queue_labels
from dashboard.metrics.scrape_input import ScrapeInput
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.metrics.queue_totals import QueueTotal
from recovery.domain.queues.types import JobCounts, QueueLibrary, QueueSample
from recovery.domain.stuck.inbox import StuckTally
from recovery.domain.stuck.types import VerdictKind
from recovery.metrics import queue_totals_store

# In the order of the fields of Counts, in the words of the libraries.
_STATES = tuple(JobState(name.replace("_", "-")) for name in JobCounts._fields)
_VERDICTS = tuple(sorted((kind for kind in VerdictKind if kind.urgency), key=lambda kind: -kind.urgency))
_NONE = (0,) * len(_VERDICTS)
_UNLOCKED = (VerdictKind.UNLOCKED, VerdictKind.ORPHAN, VerdictKind.ABANDONED)
_ORPHANED = (VerdictKind.ORPHAN, VerdictKind.ABANDONED)

JOBS = MetricFamily("unstall_jobs", "Jobs of a queue in each state.")
STUCK = MetricFamily("unstall_stuck_jobs", "Active jobs by verdict, of queues with active jobs at the last check.")
COMPATIBLE = MetricFamily(
    "bullmq_job_count",
    "Number of jobs in the queue by state, as the library's own exporter names it.",
    "unknown",  # a gauge, but then its name is not to end in _count
)
READABLE = MetricFamily("unstall_queue_readable", "1 when the last snapshot read the queue, 0 when it could not.")
PAUSED = MetricFamily("unstall_queue_paused", "1 while the queue is paused.")
OLDEST_WAITING = MetricFamily(
    "unstall_oldest_waiting_seconds", "Age of the oldest waiting job; 0 when none waits.", unit="seconds"
)
OLDEST_ACTIVE = MetricFamily(
    "unstall_oldest_active_seconds", "How long the oldest active job runs; 0 when none does.", unit="seconds"
)
ORPHANED = MetricFamily("unstall_orphaned_jobs", "Active jobs whose worker is proven lost.")
UNLOCKED = MetricFamily("unstall_unlocked_active_jobs", "Active jobs without a lock, the orphaned among them.")
FOR_A_PERSON = MetricFamily("unstall_person_needed_jobs", "Active jobs that need manual action.")
WATCHDOG = MetricFamily(
    "unstall_stalled_check_age_seconds",
    "Time since a worker last ran the library's stalled check, by the configured stalled interval.",
    unit="seconds",
)
WORKERS = MetricFamily("unstall_workers", "Connected workers of a queue.")
COMPLETED = MetricFamily("unstall_jobs_completed", "Jobs seen to complete, by closed minutes.", "counter")
FAILED = MetricFamily("unstall_jobs_failed", "Jobs seen to fail for good, by closed minutes.", "counter")
LEFT = MetricFamily(
    "unstall_jobs_left",
    "Jobs that left the queue, finished or removed; the only count where finished jobs are removed at once.",
    "counter",
)


class _Block:
    """Lines of one queue that differ in one label, cached with the numbers of the last scrape."""

    __slots__ = ("_lines", "_numbers", "_text")

    def __init__(self, family: MetricFamily, labels: str, name: str, values: Iterable[str]) -> None:
        labels = labels.replace("%", "%%")
        self._lines = "".join(f'{family.line}{{{labels},{name}="{value}"}} %d\n' for value in values)
        self._numbers: tuple[int | None, ...] = ()
        self._text = ""

    def of(self, numbers: tuple[int | None, ...]) -> str:
        """Returns the lines of the known numbers, from the cache if they are those of the last scrape, as most are."""
        if numbers != self._numbers:
            self._numbers, self._text = numbers, self._written(numbers)
        return self._text

    def _written(self, numbers: tuple[int | None, ...]) -> str:
        if None not in numbers:
            return self._lines % numbers
        each = zip(self._lines.split("\n")[:-1], numbers, strict=True)
        return "".join(f"{line % number}\n" for line, number in each if number is not None)


class _Names(NamedTuple):
    """Parts of a queue's lines that never change."""

    labels: str
    jobs: _Block
    stuck: _Block
    compatible: _Block
    field: bytes  # of its sums

    @classmethod
    def of(cls, ref: QueueRef) -> _Names:
        labels = queue_labels(ref)
        return cls(
            labels,
            _Block(JOBS, labels, "state", _STATES),
            _Block(STUCK, labels, "verdict", _VERDICTS),
            _Block(COMPATIBLE, library_queue_labels(ref), "state", _STATES),
            queue_totals_store.field(ref),
        )


class _Row(NamedTuple):
    """Queue with all its values for this scrape."""

    sample: QueueSample
    names: _Names
    now: int
    is_known: bool  # its numbers are of now
    total: QueueTotal | None
    tally: StuckTally | None  # of the last look; None: nothing was active, or it is not known
    was_looked_at: bool
    interval: int  # ms between two stalled checks


_known: dict[QueueRef, _Names] = {}  # 4 KB each
_SPARE = 1_000  # of deleted queues; beyond it the cache is cleared


def families(picture: ScrapeInput) -> Iterator[Lines]:
    if len(_known) > len(picture.queues) + _SPARE:
        _known.clear()
    rows = list(_rows(picture))
    if not picture.health.stale:
        yield READABLE, _valued(READABLE, lambda row: int(row.is_known and not row.sample.error), rows)
    known = [row for row in rows if row.is_known]
    yield JOBS, (row.names.jobs.of(row.sample.counts) for row in known)
    for family, value in _OF_NOW.items():
        yield family, _valued(family, value, known)
    yield STUCK, _by_verdict(known)
    for family, value in _EVER.items():
        yield family, _valued(family, value, rows)
    yield COMPATIBLE, (row.names.compatible.of(row.sample.counts) for row in known if _is_the_librarys(row))


def _rows(picture: ScrapeInput) -> Iterator[_Row]:
    """Yields one row per queue; a single loop, because it runs for every queue at every scrape."""
    looks, sums, config, now = picture.looks, picture.totals, picture.config, picture.now
    for sample in picture.queues:
        ref = sample.ref
        names = _known.get(ref) or _known.setdefault(ref, _Names.of(ref))
        tally = looks.get(ref) if looks else None
        seen = tally if tally and not tally.error else None
        was_looked_at = looks is not None and (seen is not None or (tally is None and sample.counts.active == 0))
        limits = config.thresholds_of(ref.deployment, ref.base) if config.queue_thresholds else config.thresholds
        interval = limits.stalled_interval
        if seen and seen.watchdog.interval > interval:  # a longer one that was seen in Redis counts
            interval = seen.watchdog.interval
        packed = sums.get(names.field)
        total = queue_totals_store.decode_total(packed) if packed else None
        yield _Row(sample, names, now, picture.is_known(sample), total, seen, was_looked_at, interval)


def _by_verdict(rows: list[_Row]) -> Iterator[str]:
    for row in rows:
        if row.tally:
            kinds = row.tally.kinds
            yield row.names.stuck.of(tuple(kinds.get(kind, 0) for kind in _VERDICTS) if kinds else _NONE)


def _is_the_librarys(row: _Row) -> bool:
    """Returns True if the queue is kept by Bull or BullMQ, whose metric names only their own queues may have."""
    return row.sample.flavour.library not in (QueueLibrary.TABLE, QueueLibrary.UNKNOWN)


def _valued(family: MetricFamily, value: Callable[[_Row], float | None], rows: list[_Row]) -> Iterator[str]:
    name = family.line
    for row in rows:
        known = value(row)
        if known is not None:
            yield f"{name}{{{row.names.labels}}} {known}\n"


def _oldest_waiting(row: _Row) -> float | None:
    sample, counts = row.sample, row.sample.counts
    if sample.oldest_waiting_at is not None:
        return _since(sample.oldest_waiting_at, row.now)
    is_empty = counts.waiting == 0 and not counts.prioritized and not counts.paused
    return 0 if is_empty else None


def _oldest_active(row: _Row) -> float | None:
    sample = row.sample
    if sample.oldest_active_at is not None:
        return _since(sample.oldest_active_at, row.now)
    return 0 if sample.counts.active == 0 else None


def _watchdog(row: _Row) -> float | None:
    """Returns the age of the last stalled check: from the TTL of its key, which lasts one interval after each check.

    Once the key is gone, the age is counted from when the orphan watch last saw it.
    """
    left, seen = row.sample.stalled_check_ttl, row.tally.watchdog if row.tally else None
    if left is not None:
        return max(0, row.interval - left) / 1000
    return _since(seen.seen_at, row.now) if seen and seen.seen_at is not None else None


def _of_kinds(kinds: tuple[VerdictKind, ...]) -> Callable[[_Row], int | None]:
    def count(row: _Row) -> int | None:
        if not row.was_looked_at:
            return None
        found = row.tally.kinds if row.tally else None
        return sum(found.get(kind, 0) for kind in kinds) if found else 0

    return count


def _people(row: _Row) -> int | None:
    if not row.was_looked_at:
        return None
    return row.tally.people if row.tally else 0


def _flag(known: bool | None) -> int | None:
    return None if known is None else int(known)


def _since(at: int, now: int) -> float:
    """Returns the age in seconds, never negative, even if a clock runs ahead."""
    return max(0, now - at) / 1000


_OF_NOW: Mapping[MetricFamily, Callable[[_Row], float | None]] = {
    PAUSED: lambda row: _flag(row.sample.is_paused),
    OLDEST_WAITING: _oldest_waiting,
    OLDEST_ACTIVE: _oldest_active,
    ORPHANED: _of_kinds(_ORPHANED),
    UNLOCKED: _of_kinds(_UNLOCKED),
    FOR_A_PERSON: _people,
    WATCHDOG: _watchdog,
    WORKERS: lambda row: row.sample.workers,
}
# Sums are reported even while the queue cannot be read.
_EVER: Mapping[MetricFamily, Callable[[_Row], float | None]] = {
    COMPLETED: lambda row: row.total.completed if row.total else None,
    FAILED: lambda row: row.total.failed if row.total else None,
    LEFT: lambda row: row.total.left if row.total else None,
}
