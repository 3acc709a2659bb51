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
from threading import Lock

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import DAY, MINUTE, SPARK, FinishedTally
from recovery.domain.queues.types import QueueLibrary, Snapshot
from recovery.errors import StoreError
from recovery.metrics.queue_totals_counter import QueueTotalsCounter
from recovery.reads.queues import finished_jobs, history
from recovery.scanners.collect.departures import Departures
from recovery.scanners.collect.history_writer import HistoryCells, HistoryWriter
from recovery.scanners.collect.table_growth import TableGrowth
from recovery.stores.registry import ConnectionRegistry

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
