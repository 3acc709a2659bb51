"""Stores the snapshot for the web processes: compact JSON, compressed and signed, in one key of the state store.

It says which library keeps a queue, and actions depend on that: only what was signed with our key is accepted.

Names from Redis may hold undecodable bytes as lone surrogates; JSON writes those as plain ASCII escapes and restores
them. Queues are written column by column, which compresses and parses better than row by row.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import astuple, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

import redis

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import (
    DeploymentSample,
    JobCounts,
    LibraryVersion,
    QueueLibrary,
    QueueSample,
    Rates,
    Snapshot,
    Worker,
)
from recovery.stores.redis import redis_errors
from recovery.stores.state import documents, size_limits, state_keys

_PURPOSE = "snapshot"
_KEEP_S = 7 * 86_400  # a store shared with other programs keeps no stale key for ever
_MEMO = 8_192  # columns of minutes kept parsed: they change once a minute, snapshots come every other second
_BROKEN = (ValueError, TypeError, IndexError, KeyError)


def _shape() -> int:
    """Returns a number that changes with the fields: it tells a reader of another version that it cannot read this."""
    names = [
        *QueueSample._fields,
        *JobCounts._fields,
        *LibraryVersion._fields,
        *Rates._fields,
        *(field.name for kind in (DeploymentSample, Worker, Snapshot) for field in fields(kind)),
    ]
    return zlib.crc32(",".join(names).encode())


SHAPE = _shape()


class SnapshotOfOtherVersion(ValueError):
    """The snapshot was written by another version of Unstall, or by another program."""


def publish(store: redis.Redis, snapshot: Snapshot) -> None:
    """Stores the snapshot as the newest one and notifies subscribers; raises StoreError."""
    packed = encode(snapshot)
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=True)
        pipeline.set(state_keys.SNAPSHOT, packed, ex=_KEEP_S)
        pipeline.publish(state_keys.SNAPSHOT_CHANNEL, snapshot.number)
        pipeline.execute()


def fetch(store: redis.Redis) -> Snapshot | None:
    """Fetches the newest snapshot; None if there is none that this version can read; raises StoreError."""
    with redis_errors.guarded(store):
        packed = size_limits.string_of(size_limits.ask_string(store, state_keys.SNAPSHOT))
    if packed is None:
        return None
    try:
        return decode(packed)
    except SnapshotOfOtherVersion:
        return None


def encode(snapshot: Snapshot) -> bytes:
    """Encodes a snapshot; about 5 ms and 60 KB for a thousand queues."""
    flavours = list(dict.fromkeys(sample.flavour for sample in snapshot.queues))
    document = [
        SHAPE,
        snapshot.number,
        snapshot.taken_at,
        [astuple(sample) for sample in snapshot.deployments],
        flavours,
        _columns(snapshot.queues, flavours),
        [[worker.queue.deployment, worker.queue.base, *_WORKER(worker)] for worker in snapshot.workers],
    ]
    return documents.pack(_PURPOSE, document)


def decode(packed: bytes) -> Snapshot:
    """Reverses `encode`; raises OtherVersion on anything that this version did not write."""
    try:
        shape, *parts = documents.unpack(_PURPOSE, packed)
        if shape == SHAPE:
            return _snapshot(parts)
    except _BROKEN as error:
        raise SnapshotOfOtherVersion(f"not a snapshot: {error}") from error
    raise SnapshotOfOtherVersion("written by another version")


def _snapshot(parts: list[Any]) -> Snapshot:
    number, taken_at, deployments, kinds, columns, workers = parts
    return Snapshot(
        number=number,
        taken_at=taken_at,
        deployments=tuple(map(_deployment, deployments)),
        queues=_queues(columns, [_flavour(*row) for row in kinds]),
        workers=tuple(Worker(QueueRef(*row[:2]), *row[2:]) for row in workers),
    )


_WORKER = attrgetter(*(field.name for field in fields(Worker) if field.name != "queue"))


def _deployment(row: list[Any]) -> DeploymentSample:
    named = dict(zip(_DEPLOYMENT, row, strict=True))
    return DeploymentSample(**named | {"warnings": tuple(named["warnings"])})


_DEPLOYMENT = [field.name for field in fields(DeploymentSample)]


def _flavour(library: str, major: int | None, version: str, evidence: list[str], *rest: Any) -> LibraryVersion:
    return LibraryVersion(QueueLibrary(library), major, version, tuple(evidence), *rest)


def _columns(queues: Sequence[QueueSample], flavours: list[LibraryVersion]) -> dict[str, Any]:
    """Returns one list for each field. Refs become two lists, a flavour its number, rates short texts."""
    columns: dict[str, Any] = dict(zip(QueueSample._fields, zip(*queues, strict=True), strict=False))
    if not columns:
        return columns
    refs, rates = columns.pop("ref"), columns["rates"]
    numbers = {flavour: number for number, flavour in enumerate(flavours)}
    columns["deployment"] = [ref.deployment for ref in refs]
    columns["base"] = [ref.base for ref in refs]
    columns["flavour"] = [numbers[flavour] for flavour in columns["flavour"]]
    columns["rates"] = [(_text(rate.completed), _text(rate.failed), rate.source, _text(rate.left)) for rate in rates]
    return columns


def _queues(columns: dict[str, Any], flavours: list[LibraryVersion]) -> tuple[QueueSample, ...]:
    if not columns:
        return ()
    columns["ref"] = map(QueueRef, columns["deployment"], columns["base"])
    columns["flavour"] = map(flavours.__getitem__, columns["flavour"])
    columns["counts"] = map(JobCounts._make, columns["counts"])
    columns["rates"] = (
        Rates(_minutes(completed), _minutes(failed), source, _minutes(left))
        for completed, failed, source, left in columns["rates"]
    )
    return tuple(map(QueueSample, *(columns[name] for name in QueueSample._fields)))


@lru_cache(maxsize=_MEMO)
def _text(minutes: tuple[int | None, ...]) -> str:
    """Encodes minutes as `1,0,,7`: a gap is empty."""
    # One empty value at the end, so that no minutes at all and one unknown minute differ.
    return ",".join("" if value is None else str(value) for value in (*minutes, None))


@lru_cache(maxsize=_MEMO)
def _minutes(text: str) -> tuple[int | None, ...]:
    return tuple(int(value) if value else None for value in text.split(",")[:-1])
