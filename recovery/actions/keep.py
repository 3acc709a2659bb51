"""Undo: what was taken away is kept for a day in the state store, within a budget, by the number of its audit entry.

Losing it loses no job of a queue: only the way back of one that somebody removed on purpose.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from recovery.connections import faults, state
from recovery.connections.registry import registry
from recovery.domain.acting import Kept
from recovery.domain.chain import canonical
from recovery.domain.jobs import State
from recovery.domain.refs import raw
from recovery.errors import ConfigError, StoreError

LIFE_MS = 24 * 3600 * 1000
# The state store is small and holds what is live too: a clean of 50,000 jobs of a kilobyte fits, a million do not.
BUDGET = 64 * 1024 * 1024
_PROBE_MS = 10_000
_PART = 100  # jobs written by one command


@dataclass(frozen=True, slots=True)
class Holding:
    """What became of the jobs that were to be kept. `trouble` says why some or all of them are not."""

    ids: frozenset[str] = frozenset()
    trouble: str = ""
    forgotten: tuple[int, ...] = ()  # older entries that had to make room


def is_ready() -> bool:
    """Whether what is removed now could be kept."""
    try:
        store = registry().state()
        with faults.guarded(store):
            return bool(store.set(state.PROBE, b"1", px=_PROBE_MS))
    except (ConfigError, StoreError):
        return False


def keep(number: int, jobs: Sequence[Kept], now: int, budget: int = BUDGET) -> Holding:
    """Never raises: the jobs are gone already, and what cannot be kept is said."""
    packed = [(job.id, pack(job, place)) for place, job in enumerate(jobs)]
    fitting, size = _fitting(packed, budget)
    trouble = "" if len(fitting) == len(packed) else f"More than {budget // 2**20} MB at once are not kept."
    if not fitting:
        return Holding(trouble=trouble)
    try:
        store = registry().state()
        with faults.guarded(store):
            _write(store, number, fitting, size, now)
            forgotten = _make_room(store, now, budget)
    except (ConfigError, StoreError) as error:
        return Holding(trouble=f"The state store did not take it: {error}")
    return Holding(frozenset(id for id, _ in fitting), trouble, forgotten)


def kept(number: int) -> tuple[Kept, ...]:
    """What is left of it, in the order in which it was taken away; raises StoreError."""
    store = registry().state()
    with faults.guarded(store):
        found = store.hvals(state.kept(number))
    read = sorted((unpack(value) for value in found if isinstance(value, bytes)), key=lambda pair: pair[0])
    return tuple(job for _, job in read)


def counts(numbers: Iterable[int]) -> dict[int, int]:
    """How many jobs of these entries can still be restored; {} when the state store does not say."""
    asked = list(numbers)
    try:
        store = registry().state()
        with faults.guarded(store):
            pipeline = store.pipeline(transaction=False)
            for number in asked:
                pipeline.hlen(state.kept(number))
            return {number: count for number, count in zip(asked, pipeline.execute(), strict=True) if count}
    except (ConfigError, StoreError):
        return {}


def forget(number: int, ids: Sequence[str]) -> None:
    """These are back; raises StoreError."""
    if not ids:
        return
    store = registry().state()
    with faults.guarded(store):
        store.hdel(state.kept(number), *map(raw, ids))
        if not store.exists(state.kept(number)):
            _drop(store, [number])


def pack(job: Kept, place: int = 0) -> bytes:
    """JSON; names as escapes, dumps in base 64."""
    dumps = [[suffix, base64.b64encode(dump).decode("ascii")] for suffix, dump in job.dumps]
    return canonical([place, job.id, job.state, dumps, job.score, job.before, job.size, job.parent]).encode("ascii")


def unpack(packed: bytes) -> tuple[int, Kept]:
    place, id, where, dumps, score, before, size, parent = json.loads(packed)
    restored = tuple((suffix, base64.b64decode(dump)) for suffix, dump in dumps)
    return place, Kept(id, State(where), restored, score, before, size, parent)


def _fitting(packed: Sequence[tuple[str, bytes]], budget: int) -> tuple[list[tuple[str, bytes]], int]:
    fitting, size = [], 0
    for id, value in packed:
        if size + len(value) <= budget:
            fitting.append((id, value))
            size += len(value)
    return fitting, size


def _write(store: redis.Redis, number: int, jobs: Sequence[tuple[str, bytes]], size: int, now: int) -> None:
    pipeline = store.pipeline(transaction=True)
    key = state.kept(number)
    for start in range(0, len(jobs), _PART):
        pipeline.hset(key, mapping={raw(id): value for id, value in jobs[start : start + _PART]})
    pipeline.pexpire(key, LIFE_MS)
    pipeline.zadd(state.KEPT, {b"%d" % number: now})
    pipeline.hset(state.KEPT_SIZES, b"%d" % number, size)
    for index in (state.KEPT, state.KEPT_SIZES):
        pipeline.pexpire(index, LIFE_MS)
    pipeline.execute()


def _make_room(store: redis.Redis, now: int, budget: int) -> tuple[int, ...]:
    """What is a day old is gone by itself; then the oldest go until the rest fits. Two at once drop the same ones."""
    _drop(store, _numbers(store.zrangebyscore(state.KEPT, "-inf", now - LIFE_MS)))
    sizes = {int(number): int(size) for number, size in store.hgetall(state.KEPT_SIZES).items()}
    total = sum(sizes.values())
    forgotten: list[int] = []
    for number in _numbers(store.zrange(state.KEPT, 0, -1)):
        if total <= budget:
            break
        total -= sizes.get(number, 0)
        forgotten.append(number)
    _drop(store, forgotten)
    return tuple(forgotten)


def _numbers(members: Any) -> list[int]:
    return [int(member) for member in members]


def _drop(store: redis.Redis, numbers: Sequence[int]) -> None:
    if not numbers:
        return
    pipeline = store.pipeline(transaction=True)
    pipeline.unlink(*map(state.kept, numbers))
    pipeline.zrem(state.KEPT, *numbers)
    pipeline.hdel(state.KEPT_SIZES, *(b"%d" % number for number in numbers))
    pipeline.execute()
