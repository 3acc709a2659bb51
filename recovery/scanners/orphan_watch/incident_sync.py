"""Updates the incidents of one deployment after each pass: keeps those of lost jobs, and resolves the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recovery.backends.base import CommandClient
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.stuck.types import StuckJob, VerdictKind
from recovery.reads.stuck import incidents
from recovery.reads.stuck.observations import JobObservation
from recovery.scanners.orphan_watch.assessment import AssessedJob
from recovery.scanners.orphan_watch.incident_store import IncidentJob, IncidentStore
from recovery.scanners.orphan_watch.queue_state import QueueState
from recovery.scanners.orphan_watch.resolution import UnresolvedJob, resolve_incidents

RESOLVED = 5_000  # incidents resolved by one pass and queue: four short commands each


class IncidentSync:
    def __init__(self, incident_store: IncidentStore) -> None:
        self._book = incident_store

    def has(self, ref: QueueRef) -> bool:
        return bool(self._book.cases(ref))

    def remind(self, ref: QueueRef, marks: Mapping[str, JobObservation]) -> None:
        self._book.remind(ref, marks)

    def forget(self) -> None:
        self._book.forget()

    def settle(
        self,
        wire: CommandClient,
        posts: Mapping[QueueRef, QueueState],
        found: Sequence[AssessedJob],
        rows: tuple[StuckJob, ...],
        now: int,
    ) -> tuple[StuckJob, ...]:
        """Updates incidents; returns the rows with their numbers. Raises StoreError, and Error of the database."""
        lines = {row.job: row for row in rows}
        by_queue: dict[QueueRef, list[AssessedJob]] = {ref: [] for ref in posts}
        for one in found:
            if one.kind.is_lost:
                by_queue[one.row.ref.queue].append(one)
        for ref, mine in by_queue.items():
            if not posts[ref].found_error:
                self._keep(ref, mine, lines, now)
                self._close(wire, posts[ref], mine, now)
        return self._numbered(rows)

    def _keep(self, ref: QueueRef, mine: Sequence[AssessedJob], lines: Mapping[JobRef, StuckJob], now: int) -> None:
        seen, verdicts = [], {}
        for one in mine:
            # A job of an older library has no lock for a moment: that is no incident.
            if one.kind is VerdictKind.UNLOCKED and one.sighting.looks < 2:
                continue
            line = lines.get(one.row.ref)
            if line:
                verdicts[one.row.id] = line.verdict
            who = (line.name, line.holder, line.server) if line else ()
            seen.append(IncidentJob(one.row.id, one.mark.opened_at, one.kind, one.mark.signature, *who))
        if seen:
            self._book.keep(ref, seen, verdicts, now)

    def _close(self, wire: CommandClient, post: QueueState, mine: Sequence[AssessedJob], now: int) -> None:
        here = {one.row.id for one in mine} | post.found_moved
        missing = list(self._book.miss(post.ref, here, now).items())[:RESOLVED]
        if not missing:
            return
        lost = [
            UnresolvedJob(id, case.opened_at, case.signature, case.kind is VerdictKind.WORKER_LOST)
            for id, case in missing
        ]
        is_bullmq = post.sample.flavour.library is QueueLibrary.BULLMQ
        length = post.memory.lock_length
        ends = resolve_incidents(wire, post.ref, lost, now, has_events=is_bullmq, lock_length=length)
        self._book.close(post.ref, ends, now)

    def _numbered(self, rows: tuple[StuckJob, ...]) -> tuple[StuckJob, ...]:
        ids: dict[QueueRef, list[str]] = {}
        for row in rows:
            if row.verdict.of_lock.is_lost:
                ids.setdefault(row.job.queue, []).append(row.job.id)
        numbers = {ref: incidents.open_numbers(ref, mine) for ref, mine in ids.items()}
        return tuple(replace(row, incident=numbers.get(row.job.queue, {}).get(row.job.id)) for row in rows)
