"""Records our own history: once a minute, how many jobs of each queue completed, failed and went away.

Every queue is recorded, also those whose workers keep metrics: four short commands a queue and minute cost little, the
workers' lists are often an hour long at most, and only the difference between all jobs ever added and all jobs still
there shows the ones that are removed as soon as they finish (n8n).

A ring is allocated when a queue does something for the first time. Until then nothing is written, and when it is, the
idle minutes watched so far are written too: they are known to be zero.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import NamedTuple

import redis

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import (
    DAY,
    MINUTE,
    MINUTES,
    SPARK,
    TENS,
    UNKNOWN,
    FinishedRing,
    FinishedTally,
    total,
)
from recovery.domain.queues.types import JobCounts, QueueLibrary, QueueSample, Snapshot
from recovery.errors import StoreError
from recovery.metrics.queue_totals_counter import QueueTotalsCounter
from recovery.reads.queues import finished_jobs, history
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys

# -- history writer
# Writes recorded minutes into the ring buffers of the state store, and their sums over ten minutes.


KEEP_S = 8 * 86_400  # TTL: a queue that is gone is forgotten when its last cell is a week old
BATCH = 1_000  # writes in one request: 20 KB, and the store serves others in between


class HistoryCells(NamedTuple):
    """Consecutive cells of a queue's history; `first` is the period of the first one."""

    ref: QueueRef
    first: int
    tallies: tuple[FinishedTally, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.tallies) - 1


class HistoryWriter:
    """Collects the cells of one run, and writes them."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._strips: list[HistoryCells] = []

    def add(self, strips: Iterable[HistoryCells]) -> None:
        self._strips += strips

    def write(self) -> int:
        """Writes the minutes, then the tens that they complete; returns how many queues. Raises StoreError."""
        self._put(MINUTES, self._strips)
        self._put(TENS, self._tens())
        return len({strip.ref for strip in self._strips})

    def _tens(self) -> list[HistoryCells]:
        """Returns sums over all changed periods of ten minutes that have ended."""
        newest = max((strip.last for strip in self._strips), default=0)
        end = TENS.period(newest + 1)
        starts: dict[int, set[QueueRef]] = {}
        for strip in self._strips:
            starts.setdefault(TENS.period(strip.first), set()).add(strip.ref)
        return [
            strip for first, refs in starts.items() if first < end for strip in self._summed(sorted(refs), first, end)
        ]

    def _summed(self, refs: list[QueueRef], first: int, end: int) -> Iterable[HistoryCells]:
        unit = TENS.unit
        found = history.cells(self._store, MINUTES, refs, first * unit, end * unit - 1)
        for ref, cells in found.items():
            tallies = (
                total([cells.get(period * unit + minute, UNKNOWN) for minute in range(unit)])
                for period in range(first, end)
            )
            yield HistoryCells(ref, first, tuple(tallies))

    def _put(self, ring: FinishedRing, strips: Iterable[HistoryCells]) -> None:
        rest = iter(strips)
        while batch := list(islice(rest, BATCH)):
            with redis_errors.guarded(self._store):
                pipeline = self._store.pipeline(transaction=False)
                for ref, first, tallies in batch:
                    for offset, cells in ring.pieces(first, tallies):
                        pipeline.setrange(state_keys.history(ref, ring.name), offset, cells)
                for ref in {strip.ref for strip in batch}:
                    pipeline.expire(state_keys.history(ref, ring.name), KEEP_S)
                pipeline.execute()


# -- recorder


# -- departures
# Counts jobs that went away: all ever added, less all that are still there. It is the only sign of finished jobs
# where the application removes them at once; a job removed by hand, or added twice under one id, looks the same.


@dataclass(slots=True)
class _Mark:
    added: int
    gone: int  # the most that had ever gone at any call


class Departures:
    """High-water mark of departed jobs per queue, so that what was counted too early is not counted again.

    The counts of a snapshot are not taken in one instant: a job on its way from one list to the next may be counted
    twice or not at all.
    """

    def __init__(self) -> None:
        self._marks: dict[QueueRef, _Mark] = {}

    def since(self, sample: QueueSample, *, is_next: bool) -> int | None:
        """Returns how many jobs went away since the last call; None when there is nothing to compare with.

        `is_next`: the last call was one minute ago, so the difference belongs to this minute.
        """
        here = present(sample.counts)
        if sample.added is None or here is None:
            return None
        gone, mark = sample.added - here, self._marks.get(sample.ref)
        self._marks[sample.ref] = _Mark(sample.added, gone)
        if mark is None or not is_next or sample.added < mark.added:  # less than before: the queue was wiped
            return None
        self._marks[sample.ref].gone = max(gone, mark.gone)
        return max(0, gone - mark.gone)

    def keep(self, refs: Iterable[QueueRef]) -> None:
        """Forgets all other queues."""
        kept = set(refs)
        self._marks = {ref: mark for ref, mark in self._marks.items() if ref in kept}


def present(counts: JobCounts) -> int | None:
    """Returns how many jobs there are in any state. A state that this library does not have holds none."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


# -- recorder


# -- table growth
# Counts rows of job tables that ended in a minute: by how much the numbers of completed and failed rows grew. Rows
# that are deleted, or retried, make a number fall; then the minute is unknown.


_Counted = tuple[int, int | None, int | None]  # the minute, done, failed


class TableGrowth:
    def __init__(self) -> None:
        self._before: dict[QueueRef, _Counted] = {}

    def since(self, snapshot: Snapshot, minute: int) -> dict[QueueRef, FinishedTally]:
        """Returns the growth of tables that were counted in the minute before too. Called once a minute."""
        found, counted = {}, dict[QueueRef, _Counted]()
        for sample in snapshot.queues:
            if not _is_counted(sample, snapshot, minute):
                continue
            now = (minute, sample.counts.completed, sample.counts.failed)
            before = self._before.get(sample.ref)
            if before and before[0] == minute:
                now = before
            elif before and before[0] == minute - 1:
                found[sample.ref] = FinishedTally(_grown(before[1], now[1]), _grown(before[2], now[2]), None)
            counted[sample.ref] = now
        self._before = counted
        return found


def _is_counted(sample: QueueSample, snapshot: Snapshot, minute: int) -> bool:
    if sample.flavour.library is not QueueLibrary.TABLE or sample.error:
        return False
    place = snapshot.deployment(sample.ref.deployment)
    return place is not None and not place.error and place.taken_at >= (minute + 1) * MINUTE


def _grown(before: int | None, now: int | None) -> int | None:
    return now - before if before is not None and now is not None and now >= before else None


# -- recorder


BACKFILL = 100  # queues a run whose last hour is counted from the jobs they keep: 120 commands each
_IDLE = FinishedTally(0, 0, 0)
_Cells = Mapping[int, FinishedTally]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Track:
    """State of one queue kept from one minute to the next."""

    minute: int = 0  # the last one recorded
    is_written: bool = False  # its ring exists
    is_filled: bool = False  # its last hour has been looked up
    idle_since: int | None = None  # from here to the last one all are zero, and not written


@dataclass(frozen=True, slots=True)
class _Question:
    """Minutes of a queue that are to be counted; the first is the one that just ended."""

    ref: QueueRef
    minutes: tuple[int, ...]
    left: int | None

    @property
    def spans(self) -> list[finished_jobs.Span]:
        return [(minute * MINUTE, (minute + 1) * MINUTE) for minute in self.minutes]


class HistoryRecorder:
    """Records the minutes of all queues. `newest` gives the last snapshot, whose counters are used."""

    def __init__(self, registry: ConnectionRegistry, newest: Callable[[], Snapshot | None]) -> None:
        self._registry = registry
        self._newest = newest
        self._tracks: dict[QueueRef, _Track] = {}
        self._departures = Departures()
        self._growth = TableGrowth()
        self._totals = QueueTotalsCounter(registry)
        self._counted: dict[QueueRef, FinishedTally] = {}  # in the run that is under way
        self._lock = Lock()  # the run at the start and the one of the minute may meet

    def run(self, now: int) -> int:
        """Records the last full minute, once; returns how many queues were written. Raises StoreError."""
        with self._lock:
            return self._run(now)

    def _run(self, now: int) -> int:
        snapshot = self._newest()
        if snapshot is None:
            return 0
        minute = now // MINUTE - 1
        known = self._acquaint(snapshot, now)
        self._counted = {}
        written = 0
        for deployment in snapshot.deployments:
            if not deployment.error:  # else its minutes stay unknown
                questions = self._questions(snapshot, deployment.name, minute, known)
                written += self._record(deployment.name, questions)
        written += self._record_tables(snapshot, minute)
        self._totals.add(snapshot, self._counted, now)
        return written

    def _record_tables(self, snapshot: Snapshot, minute: int) -> int:
        """Records job tables: how many more rows have ended than a minute ago."""
        found = self._growth.since(snapshot, minute)
        if not found:
            return 0
        tape = HistoryWriter(self._registry.state())
        for ref, tally in found.items():
            tape.add(self._strips(_Question(ref, (minute,), None), [tally]))
        return tape.write()

    def _acquaint(self, snapshot: Snapshot, now: int) -> Mapping[QueueRef, _Cells]:
        """Updates the tracked queues; returns what is already recorded of those whose last hour is not filled in."""
        refs = [sample.ref for sample in snapshot.queues]
        unfilled = [ref for ref in refs if ref not in self._tracks or not self._tracks[ref].is_filled]
        known = history.recent(self._registry.state(), unfilled, now) if unfilled else {}
        self._tracks = {ref: self._tracks.get(ref) or _Track(is_written=bool(known[ref])) for ref in refs}
        self._departures.keep(refs)
        return known

    def _questions(
        self, snapshot: Snapshot, deployment: str, minute: int, known: Mapping[QueueRef, _Cells]
    ) -> list[_Question]:
        taken_at = next(sample.taken_at for sample in snapshot.deployments if sample.name == deployment)
        is_current = taken_at >= (minute + 1) * MINUTE
        questions = []
        budget = BACKFILL
        for sample in snapshot.queues:
            track = self._tracks[sample.ref]
            if sample.ref.deployment != deployment or sample.error or track.minute >= minute:
                continue
            if sample.flavour.library is QueueLibrary.TABLE:
                continue  # `_record_tables` counts these
            left = self._departures.since(sample, is_next=is_current and track.minute == minute - 1)
            minutes = [minute]
            keeps_jobs = bool(sample.counts.completed or sample.counts.failed)
            if not track.is_filled and (budget or not keeps_jobs):
                track.is_filled = True
                if keeps_jobs:
                    budget -= 1
                    minutes += _missing(known[sample.ref], minute)
            questions.append(_Question(sample.ref, tuple(minutes), left))
        return questions

    def _record(self, deployment: str, questions: Sequence[_Question]) -> int:
        commands = [command for question in questions for command in finished_jobs.plan(question.ref, question.spans)]
        if not commands:
            return 0
        try:
            replies = self._registry.wire(deployment).call(commands)
        except StoreError as error:
            log.info("%s: this minute was not recorded: %s", deployment, error)
            return 0
        tape = HistoryWriter(self._registry.state())
        start = 0
        for question in questions:
            stop = start + finished_jobs.size(question.spans)
            sure = (0,) if question.left == 0 else ()
            counted = finished_jobs.read_counts(question.spans, replies[start:stop], sure=sure)
            tape.add(self._strips(question, counted))
            start = stop
        return tape.write()

    def _strips(self, question: _Question, counted: Sequence[FinishedTally]) -> Iterable[HistoryCells]:
        """Yields what to write of one queue; idle minutes of one that never worked are only remembered."""
        track, minute = self._tracks[question.ref], question.minutes[0]
        tally = self._counted[question.ref] = counted[0]._replace(left=question.left)
        pairs = zip(question.minutes[1:], counted[1:], strict=True)
        earlier = {at: past for at, past in pairs if not past.is_unknown}
        idle_since = track.idle_since if track.minute == minute - 1 else None
        track.minute = minute
        if not track.is_written and tally.is_idle and all(past.is_idle for past in earlier.values()):
            track.idle_since = (idle_since or minute) if tally == _IDLE else None
            return
        if idle_since is not None and not track.is_written:
            first = max(idle_since, minute - DAY)
            yield HistoryCells(question.ref, first, (_IDLE,) * (minute - first))
        track.is_written, track.idle_since = True, None
        for at, past in sorted(earlier.items()):
            yield HistoryCells(question.ref, at, (past,))
        if not tally.is_unknown:
            yield HistoryCells(question.ref, minute, (tally,))


def _missing(cells: _Cells, minute: int) -> list[int]:
    return [at for at in range(minute - SPARK + 1, minute) if at not in cells]
