"""Finds jobs stuck for long in one queue, read afresh: active jobs without a lock, or with one that never expires.

The orphan watch's marks tell since when; where it left none, because its memory was lost or it never ran, the
first of our own checks that found the job so tells it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.redis_common import active_jobs
from recovery.backends.redis_common.active_jobs import ENDLESS, NO_KEY, WINDOW, ActiveWindow
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobRow
from recovery.domain.queues.types import QueueLibrary, Snapshot
from recovery.domain.stuck.holders import HolderPresence, holder_presence
from recovery.domain.stuck.types import Verdict
from recovery.errors import ConfigError, StoreError
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import observations
from recovery.reads.stuck import queries as stuck_queries
from recovery.reads.stuck.observations import JobFingerprint, JobObservation
from recovery.scanners.orphan_watch.active_job_reader import ACTIVE_LIMIT
from recovery.stores.registry import ConnectionRegistry

JUDGED = 2_000  # jobs judged in one queue and run: four times what a run changes in a queue by default
AT_ONCE = 100  # rows read at once
ASKED = 2_000  # marks read at once
NOT_SEEN = "Its locks cannot be read: permissions are missing, or a proxy refuses the command."


@dataclass(frozen=True, slots=True)
class StaleJob:
    """Job that has been stuck for long. `is_deserted`: the worker that it names is known to be gone."""

    row: JobRow
    verdict: Verdict
    since: int
    is_deserted: bool


@dataclass(frozen=True, slots=True)
class StaleJobsFound:
    """Stale jobs of one queue, the oldest first. `more`: suspects that were not judged."""

    jobs: tuple[StaleJob, ...] = ()
    looked: int = 0
    more: int = 0
    faults: tuple[str, ...] = ()


@dataclass(slots=True)
class _Suspects:
    ids: list[str] = field(default_factory=list)
    looked: int = 0
    faults: list[str] = field(default_factory=list)


class StaleJobs:
    """Finder of stale jobs; remembers between two checks those that the orphan watch has not marked."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry
        self._seen: dict[QueueRef, dict[str, tuple[int, JobFingerprint]]] = {}

    def of(self, queue: Queue, snapshot: Snapshot, after: int, now: int) -> StaleJobsFound:
        """Returns the jobs that have been stuck longer than `after`. Raises StoreError."""
        suspects = _suspects(queue)
        marks = self._marks(queue.ref, suspects.ids)
        chosen = [id for id in suspects.ids if id not in marks or _since(marks[id], now) <= now - after]
        rows = list(self._rows(queue, chosen[:JUDGED]))
        since = self._learn(queue.ref, rows, marks, now)
        old = [row for row in rows if since[row.id] <= now - after]
        return StaleJobsFound(
            tuple(self._judged(queue, old, since, snapshot, now)),
            suspects.looked,
            max(0, len(chosen) - JUDGED),
            tuple(suspects.faults),
        )

    def forget(self, kept: Sequence[QueueRef]) -> None:
        """Drops the memory of all queues but these."""
        self._seen = {ref: self._seen[ref] for ref in kept if ref in self._seen}

    def _marks(self, ref: QueueRef, ids: Sequence[str]) -> Mapping[str, JobObservation]:
        """Reads the marks of jobs; empty without a state store, when only our own checks count."""
        found: dict[str, JobObservation] = {}
        try:
            for start in range(0, len(ids), ASKED):
                found |= observations.marks_of(self._registry.state(), ref, ids[start : start + ASKED])
        except (ConfigError, StoreError):
            return {}
        return {id: mark for id, mark in found.items() if mark.lockless_since is not None}

    def _rows(self, queue: Queue, ids: Sequence[str]) -> Iterator[JobRow]:
        """Reads jobs in full; yields those that still have no lock that expires."""
        for start in range(0, len(ids), AT_ONCE):
            part = active_jobs.details(queue.wire, queue.ref, ids[start : start + AT_ONCE])
            yield from (row for row in part if stuck_queries.is_lockless(row))

    def _learn(
        self, ref: QueueRef, rows: Sequence[JobRow], marks: Mapping[str, JobObservation], now: int
    ) -> dict[str, int]:
        """Returns since when each job has been in its present state, and remembers it."""
        before, seen = self._seen.get(ref, {}), dict[str, tuple[int, JobFingerprint]]()
        for row in rows:
            signature, mark = stuck_queries.job_fingerprint(row), marks.get(row.id)
            at, was = before.get(row.id, (now, signature))
            since = at if was == signature else now
            if mark is not None and mark.signature == signature:
                since = min(since, _since(mark, now))
            seen[row.id] = since, signature
        self._seen[ref] = seen
        return {id: since for id, (since, _) in seen.items()}

    def _judged(
        self, queue: Queue, rows: Sequence[JobRow], since: Mapping[str, int], snapshot: Snapshot, now: int
    ) -> Iterator[StaleJob]:
        config = self._registry.config
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            around = stuck_queries.verdict_context_of(queue, snapshot, config, now)
            verdicts = stuck_queries.verdicts_of_rows(queue, part, snapshot, now, config=config)
            for row in part:
                is_deserted = bool(row.worker) and holder_presence(row, around) is HolderPresence.GONE
                yield StaleJob(row, verdicts[row.id], since[row.id], is_deserted)


def _suspects(queue: Queue) -> _Suspects:
    """Reads the lock TTL of every active job with one short command each, the oldest first; returns the suspects."""
    found, known = _Suspects(), set[bytes]()
    for start in range(0, ACTIVE_LIMIT, WINDOW):
        (ids,) = active_jobs.ids(queue.wire, [ActiveWindow(queue.ref, start)])
        if isinstance(ids, Exception):
            found.faults.append(f"Its active jobs cannot be read: {ids}.")
            break
        fresh = [id for id in ids if id not in known and not _is_marker(queue, id)]
        known.update(ids)
        ttls = active_jobs.ttls(queue.wire, [(queue.ref, id) for id in fresh])
        found.ids += [decode_name(id) for id, ttl in zip(fresh, ttls, strict=True) if ttl in (NO_KEY, ENDLESS)]
        found.looked += len(fresh)
        if None in ttls and NOT_SEEN not in found.faults:
            found.faults.append(NOT_SEEN)
        if len(ids) < WINDOW:
            break
    return found


def _is_marker(queue: Queue, id: bytes) -> bool:
    return queue.flavour.library is not QueueLibrary.BULL and LAYOUT.is_marker(id)


def _since(mark: JobObservation, now: int) -> int:
    return now if mark.lockless_since is None else mark.lockless_since
