"""Stores what the orphan watch remembers between two passes: a mark for each active job not simply held by a worker,
and for each queue what it learned of workers, locks and the stalled check. Pages and actions read both.

A mark says since when a job has had no lock, which proves an orphan: so each value is signed for its key and field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import islice
from typing import Any, cast

import redis

from recovery import signing
from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.domain.stuck.context import WorkerChange
from recovery.domain.stuck.types import VerdictKind
from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

_KEEP_S = 7 * 86_400  # a queue that is no longer watched is forgotten
_BATCH = 2_000  # marks written at once
_BROKEN = (ValueError, TypeError)
_MARK, _MEMORY = "job mark", "queue memory"  # purposes of signatures

JobFingerprint = tuple[int | None, int | None, int, int]  # processed at, starts, attempts, stalls


@dataclass(frozen=True, slots=True)
class JobObservation:
    """Observation of one active job. `lockless_since`: since when it has been seen without a lock, or with one
    that never expires. The signature changes with everything a library does to an active job.
    """

    kind: VerdictKind
    since: int  # since when it has had this verdict; for a lost job, any verdict of loss
    opened_at: int  # when it was first seen without its worker
    lockless_since: int | None = None
    signature: JobFingerprint = (None, None, 0, 0)
    orphaned: int = 0  # earlier incidents, counted when the mark was made
    cpu: float | None = None  # percent, of its worker's server when it was first seen lost
    has_expired: bool = False  # its lock was followed until it ran out


@dataclass(frozen=True, slots=True)
class QueueObservation:
    """Observations of one queue. `came` and `left` are its workers that connected and left, oldest first."""

    watched_since: int | None = None
    watchdog_seen_at: int | None = None
    interval: int = 0  # the longest TTL seen on the stalled check's key
    lock_length: int = 0  # the longest TTL seen on a lock
    lock_seen_at: int = 0  # when a lock with nearly that TTL was last seen
    left: tuple[WorkerChange, ...] = ()
    came: tuple[WorkerChange, ...] = ()
    renews_every: int = 0  # observed ms between two renewals of one lock; 0: none was observed
    renewal_seen_at: int = 0  # when a renewal confirmed that last


@dataclass(frozen=True, slots=True)
class DeploymentObservation:
    """Observations of one deployment: its Redis process, and its queues by base."""

    run_id: str = ""
    restarted_at: int | None = None
    queues: Mapping[str, QueueObservation] = field(default_factory=dict)


def marks(store: redis.Redis, ref: QueueRef) -> dict[str, JobObservation]:
    """Reads every mark of a queue; raises StoreError."""
    with redis_errors.guarded(store):
        rows = cast("dict[bytes, bytes]", store.hgetall(state_keys.sightings(ref)))
    found = {decode_name(id): _mark(ref, decode_name(id), row) for id, row in rows.items()}
    return {id: mark for id, mark in found.items() if mark}


def marks_of(store: redis.Redis, ref: QueueRef, ids: Sequence[str]) -> dict[str, JobObservation]:
    """Reads the marks of some jobs; raises StoreError."""
    if not ids:
        return {}
    with redis_errors.guarded(store):
        rows = cast("list[bytes | None]", store.hmget(state_keys.sightings(ref), [encode_name(id) for id in ids]))
    found = {id: _mark(ref, id, row) for id, row in zip(ids, rows, strict=True) if row is not None}
    return {id: mark for id, mark in found.items() if mark}


def save(store: redis.Redis, ref: QueueRef, news: Mapping[str, JobObservation], gone: Iterable[str]) -> None:
    """Writes changed marks and deletes those of jobs that are gone; raises StoreError."""
    key, dropped, fresh = state_keys.sightings(ref), iter(gone), iter(news.items())
    with redis_errors.guarded(store):
        while batch := list(islice(dropped, _BATCH)):
            store.hdel(key, *map(encode_name, batch))
        while part := dict(islice(fresh, _BATCH)):
            store.hset(key, mapping={encode_name(id): _written(ref, id, mark) for id, mark in part.items()})
        if news:
            store.expire(key, _KEEP_S)


def place(store: redis.Redis, deployment: str) -> DeploymentObservation:
    """Reads all that is remembered of a deployment; raises StoreError."""
    with redis_errors.guarded(store):
        rows = cast("dict[bytes, bytes]", store.hgetall(state_keys.watch_memory(deployment)))
    run_id, restarted_at = _own(deployment, rows.pop(b"", b""))
    found = {decode_name(base): _memory(deployment, decode_name(base), row) for base, row in rows.items()}
    return DeploymentObservation(run_id, restarted_at, {base: memory for base, memory in found.items() if memory})


def memory(store: redis.Redis, ref: QueueRef) -> tuple[QueueObservation, int | None]:
    """Reads what is remembered of one queue, and when its Redis last restarted; raises StoreError."""
    with redis_errors.guarded(store):
        own, row = cast(
            "list[bytes | None]", store.hmget(state_keys.watch_memory(ref.deployment), [b"", encode_name(ref.base)])
        )
    return _memory(ref.deployment, ref.base, row or b"") or QueueObservation(), _own(ref.deployment, own or b"")[1]


def remember(store: redis.Redis, deployment: str, place: DeploymentObservation, gone: Iterable[str]) -> None:
    """Writes what is remembered of a deployment and deletes the queues that are gone; raises StoreError."""
    key, dropped = state_keys.watch_memory(deployment), [encode_name(base) for base in gone]
    fields: dict[Any, bytes] = {
        encode_name(base): _sealed(_MEMORY, astuple(memory), deployment, base) for base, memory in place.queues.items()
    }
    fields[b""] = _sealed(_MEMORY, [place.run_id, place.restarted_at], deployment, "")
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        if dropped:
            pipeline.hdel(key, *dropped)
        pipeline.hset(key, mapping=fields)
        pipeline.expire(key, _KEEP_S)
        pipeline.execute()


def _sealed(purpose: str, value: Any, *bound: str) -> bytes:
    return signing.seal(purpose, json.dumps(value, separators=(",", ":")).encode("ascii"), *bound)


def _opened(purpose: str, row: bytes, *bound: str) -> Any:
    """Verifies and decodes a value; raises ValueError if it is not signed for this key and field."""
    content = signing.unseal(purpose, row, *bound)
    if content is None:
        raise ValueError("not signed for this place")
    return json.loads(content)


def _written(ref: QueueRef, id: str, mark: JobObservation) -> bytes:
    return _sealed(_MARK, astuple(mark), ref.deployment, ref.base, id)


def _mark(ref: QueueRef, id: str, row: bytes) -> JobObservation | None:
    """Decodes a mark; None if another version or another program wrote it: the job will be observed anew."""
    try:
        written = _opened(_MARK, row, ref.deployment, ref.base, id)
        kind, since, opened_at, lockless_since, signature, orphaned, *rest = written
        return JobObservation(
            VerdictKind(kind), since, opened_at, lockless_since, _signature(signature), orphaned, *rest
        )
    except _BROKEN:
        return None


def _signature(written: Any) -> JobFingerprint:
    processed_at, starts, attempts, stalls = written
    return processed_at, starts, attempts, stalls


def _memory(deployment: str, base: str, row: bytes) -> QueueObservation | None:
    try:
        written = _opened(_MEMORY, row, deployment, base)
        watched_since, seen_at, interval, length, length_at, left, came, *rest = written
        return QueueObservation(
            watched_since, seen_at, interval, length, length_at, _changes(left), _changes(came), *rest
        )
    except _BROKEN:
        return None


def _changes(written: Any) -> tuple[WorkerChange, ...]:
    return tuple(WorkerChange(*change) for change in written)


def _own(deployment: str, row: bytes) -> tuple[str, int | None]:
    try:
        run_id, restarted_at = _opened(_MEMORY, row, deployment, "")
    except _BROKEN:
        return "", None
    return run_id, restarted_at
