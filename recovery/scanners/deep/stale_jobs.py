"""Finds jobs stuck for long in one queue, read afresh: active jobs without a lock, or with one that never expires.

The orphan watch's marks tell since when; where it left none, because its memory was lost or it never ran, the
first of our own checks that found the job so tells it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.shared import actives
from recovery.backends.shared.actives import ENDLESS, NO_KEY, WINDOW, Window
from recovery.connections.registry import Registry
from recovery.domain.counts import Library, Snapshot
from recovery.domain.holders import Holder, holder
from recovery.domain.jobs import JobRow
from recovery.domain.refs import QueueRef, text
from recovery.domain.verdicts import Verdict
from recovery.errors import ConfigError, StoreError
from recovery.reads import sightings, stuck
from recovery.reads.lists import Queue
from recovery.reads.sightings import Mark, Signature
from recovery.scanners.watching.patrol import ACTIVE_LIMIT

JUDGED = 2_000  # jobs judged in one queue and run: four times what a run changes in a queue by default
AT_ONCE = 100  # rows read at once
ASKED = 2_000  # marks read at once
NOT_SEEN = "Its locks cannot be read: permissions are missing, or a proxy refuses the command."


@dataclass(frozen=True, slots=True)
class Stale:
    """Job that has been stuck for long. `is_deserted`: the worker that it names is known to be gone."""

    row: JobRow
    verdict: Verdict
    since: int
    is_deserted: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Stale jobs of one queue, the oldest first. `more`: suspects that were not judged."""

    jobs: tuple[Stale, ...] = ()
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

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen: dict[QueueRef, dict[str, tuple[int, Signature]]] = {}

    def of(self, queue: Queue, snapshot: Snapshot, after: int, now: int) -> Found:
        """Returns the jobs that have been stuck longer than `after`. Raises StoreError."""
        suspects = _suspects(queue)
        marks = self._marks(queue.ref, suspects.ids)
        chosen = [id for id in suspects.ids if id not in marks or _since(marks[id], now) <= now - after]
        rows = list(self._rows(queue, chosen[:JUDGED]))
        since = self._learn(queue.ref, rows, marks, now)
        old = [row for row in rows if since[row.id] <= now - after]
        return Found(
            tuple(self._judged(queue, old, since, snapshot, now)),
            suspects.looked,
            max(0, len(chosen) - JUDGED),
            tuple(suspects.faults),
        )

    def forget(self, kept: Sequence[QueueRef]) -> None:
        """Drops the memory of all queues but these."""
        self._seen = {ref: self._seen[ref] for ref in kept if ref in self._seen}

    def _marks(self, ref: QueueRef, ids: Sequence[str]) -> Mapping[str, Mark]:
        """Reads the marks of jobs; empty without a state store, when only our own checks count."""
        found: dict[str, Mark] = {}
        try:
            for start in range(0, len(ids), ASKED):
                found |= sightings.marks_of(self._registry.state(), ref, ids[start : start + ASKED])
        except (ConfigError, StoreError):
            return {}
        return {id: mark for id, mark in found.items() if mark.lockless_since is not None}

    def _rows(self, queue: Queue, ids: Sequence[str]) -> Iterator[JobRow]:
        """Reads jobs in full; yields those that still have no lock that expires."""
        for start in range(0, len(ids), AT_ONCE):
            part = actives.details(queue.wire, queue.ref, ids[start : start + AT_ONCE])
            yield from (row for row in part if stuck.is_lockless(row))

    def _learn(self, ref: QueueRef, rows: Sequence[JobRow], marks: Mapping[str, Mark], now: int) -> dict[str, int]:
        """Returns since when each job has been in its present state, and remembers it."""
        before, seen = self._seen.get(ref, {}), dict[str, tuple[int, Signature]]()
        for row in rows:
            signature, mark = stuck.signature(row), marks.get(row.id)
            at, was = before.get(row.id, (now, signature))
            since = at if was == signature else now
            if mark is not None and mark.signature == signature:
                since = min(since, _since(mark, now))
            seen[row.id] = since, signature
        self._seen[ref] = seen
        return {id: since for id, (since, _) in seen.items()}

    def _judged(
        self, queue: Queue, rows: Sequence[JobRow], since: Mapping[str, int], snapshot: Snapshot, now: int
    ) -> Iterator[Stale]:
        config = self._registry.config
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            around = stuck.around(queue, snapshot, config, now)
            verdicts = stuck.of_rows(queue, part, snapshot, now, config=config)
            for row in part:
                is_deserted = bool(row.worker) and holder(row, around) is Holder.GONE
                yield Stale(row, verdicts[row.id], since[row.id], is_deserted)


def _suspects(queue: Queue) -> _Suspects:
    """Reads the lock TTL of every active job with one short command each, the oldest first; returns the suspects."""
    found, known = _Suspects(), set[bytes]()
    for start in range(0, ACTIVE_LIMIT, WINDOW):
        (ids,) = actives.ids(queue.wire, [Window(queue.ref, start)])
        if isinstance(ids, Exception):
            found.faults.append(f"Its active jobs cannot be read: {ids}.")
            break
        fresh = [id for id in ids if id not in known and not _is_marker(queue, id)]
        known.update(ids)
        ttls = actives.ttls(queue.wire, [(queue.ref, id) for id in fresh])
        found.ids += [text(id) for id, ttl in zip(fresh, ttls, strict=True) if ttl in (NO_KEY, ENDLESS)]
        found.looked += len(fresh)
        if None in ttls and NOT_SEEN not in found.faults:
            found.faults.append(NOT_SEEN)
        if len(ids) < WINDOW:
            break
    return found


def _is_marker(queue: Queue, id: bytes) -> bool:
    return queue.flavour.library is not Library.BULL and LAYOUT.is_marker(id)


def _since(mark: Mark, now: int) -> int:
    return now if mark.lockless_since is None else mark.lockless_since
