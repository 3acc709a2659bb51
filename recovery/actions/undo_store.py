"""Undo copies: removed jobs are kept for a day in the state store, within a budget, by the number of their audit entry.

Losing the store loses no job of a queue: only the way back of one that was removed on purpose. The state store is not
trusted: each copy is signed for its entry, queue and job, and the entry's outcome holds its digest. A copy that fails
either check is never sent to a queue.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import redis

from recovery import signing
from recovery.domain.actions.types import UndoCopy
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.identifiers import QueueRef, encode_name, printable
from recovery.domain.jobs import JobState
from recovery.errors import ConfigError, StoreError
from recovery.stores.redis import redis_errors
from recovery.stores.registry import registry
from recovery.stores.state import state_keys

LIFE_MS = 24 * 3600 * 1000
# The state store is small and holds what is live too: a clean of 50,000 jobs of a kilobyte fits, a million do not.
BUDGET = 64 * 1024 * 1024
COPY_LIMIT = 2 * 1024 * 1024  # bytes of one copy: a job of 1 MB in base 64, with its names
SUFFIXES = frozenset({"", ":logs", ":dependencies", ":processed", ":failed", ":unsuccessful"})  # keys of one job
_PROBE_MS = 10_000
_PART = 100  # jobs written by one command
_READ = 8 * 1024 * 1024  # bytes read by one command
_NUMBER_DIGITS = 18  # of an entry
_DIGEST = 32  # hexadecimal digits
_PURPOSE = "undo copy"
_UNSIGNED = "The undo copy of {job} is not signed. An earlier version or another program wrote it: it is not restored."
_FORGED = "The undo copy of {job} was not made by this installation: it is not restored."
_GARBLED = "The undo copy of {job} cannot be read by this version: it is not restored."


@dataclass(frozen=True, slots=True)
class UndoCopyResult:
    """Result of keeping removed jobs. `trouble` says why some or all of them are not."""

    digests: Mapping[str, str] = field(default_factory=dict)  # of the copies, by job: the outcome holds them
    trouble: str = ""
    forgotten: tuple[int, ...] = ()  # older entries that had to make room

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.digests)


@dataclass(frozen=True, slots=True)
class UndoCopies:
    """The copies of one entry that can be restored, in the order in which the jobs were taken away."""

    jobs: tuple[UndoCopy, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)  # job → why its copy is not used


def is_ready() -> bool:
    """Returns True if a job that is removed now could be kept."""
    try:
        store = registry().state()
        with redis_errors.guarded(store):
            return bool(store.set(state_keys.PROBE, b"1", px=_PROBE_MS))
    except (ConfigError, StoreError):
        return False


def save_copies(
    number: int, queue: QueueRef, jobs: Sequence[UndoCopy], now: int, budget: int = BUDGET
) -> UndoCopyResult:
    """Keeps copies of removed jobs. Never raises: the jobs are gone already; the result says what cannot be kept."""
    packed = [(job.id, pack(number, queue, job, place)) for place, job in enumerate(jobs)]
    fitting, size = _fitting(packed, budget)
    trouble = "" if len(fitting) == len(packed) else f"More than {budget // 2**20} MB cannot be kept at once."
    if not fitting:
        return UndoCopyResult(trouble=trouble)
    try:
        store = registry().state()
        with redis_errors.guarded(store):
            _write(store, number, fitting, size, now)
            forgotten = _make_room(store, now, budget)
    except (ConfigError, StoreError) as error:
        return UndoCopyResult(trouble=f"The state store refused it: {error}")
    return UndoCopyResult({id: digest(value) for id, value in fitting}, trouble, forgotten)


def load_copies(number: int, queue: QueueRef, digests: Mapping[str, str]) -> UndoCopies:
    """Reads the copies of these jobs, which the entry's outcome names with their digests; raises StoreError.

    A digest may be "": the outcome was not written, so the signature alone is checked. At most `BUDGET` bytes are
    read, and no copy above `COPY_LIMIT`.
    """
    found: list[tuple[int, UndoCopy]] = []
    refused: dict[str, str] = {}
    for id, packed in _packed(number, list(digests), refused):
        try:
            found.append(unpack(number, queue, id, packed, digests[id]))
        except UnusableCopy as error:
            refused[id] = str(error)
    return UndoCopies(tuple(job for _, job in sorted(found, key=lambda pair: pair[0])), refused)


class UnusableCopy(Exception):
    """Says why a copy is not restored."""


def counts(numbers: Iterable[int]) -> dict[int, int]:
    """Returns how many jobs of these entries can still be restored; {} when the state store does not answer."""
    asked = list(numbers)
    try:
        store = registry().state()
        with redis_errors.guarded(store):
            pipeline = store.pipeline(transaction=False)
            for number in asked:
                pipeline.hlen(state_keys.undo_copies(number))
            return {number: count for number, count in zip(asked, pipeline.execute(), strict=True) if count}
    except (ConfigError, StoreError):
        return {}


def forget(number: int, ids: Sequence[str]) -> None:
    """Deletes the copies of jobs that are restored; raises StoreError."""
    if not ids:
        return
    store = registry().state()
    with redis_errors.guarded(store):
        store.hdel(state_keys.undo_copies(number), *map(encode_name, ids))
        if not store.exists(state_keys.undo_copies(number)):
            _drop(store, [number])


def pack(number: int, queue: QueueRef, job: UndoCopy, place: int = 0) -> bytes:
    """Returns one copy, signed for this entry, queue and job. JSON; names as escapes, dumps in base 64."""
    dumps = [[suffix, base64.b64encode(dump).decode("ascii")] for suffix, dump in job.dumps]
    written = canonical([place, job.id, job.state, dumps, job.score, job.before, job.size, job.parent]).encode("ascii")
    return signing.seal(_PURPOSE, written, *_bound(number, queue, job.id))


def unpack(number: int, queue: QueueRef, id: str, packed: bytes, expected: str = "") -> tuple[int, UndoCopy]:
    """Reverses `pack`; raises UnusableCopy for what was not signed for this entry, queue and job."""
    if packed.startswith(b"["):
        raise UnusableCopy(_UNSIGNED.format(job=printable(id)))
    content = signing.unseal(_PURPOSE, packed, *_bound(number, queue, id))
    if content is None or (expected and expected != digest(packed)):
        raise UnusableCopy(_FORGED.format(job=printable(id)))
    try:
        place, job, where, dumps, score, before, size, parent = json.loads(content)
        restored = tuple((suffix, base64.b64decode(dump)) for suffix, dump in dumps)
        found = UndoCopy(job, JobState(where), restored, score, before, size, parent)
    except (ValueError, TypeError) as error:
        raise UnusableCopy(_GARBLED.format(job=printable(id))) from error
    if job != id or not SUFFIXES.issuperset(suffix for suffix, _ in restored):
        raise UnusableCopy(_GARBLED.format(job=printable(id)))
    return place, found


def digest(packed: bytes) -> str:
    """Returns the digest by which the outcome of an entry names one copy."""
    return hashlib.sha256(packed).hexdigest()[:_DIGEST]


def _bound(number: int, queue: QueueRef, id: str) -> tuple[signing.Bound, ...]:
    return number, queue.deployment, queue.base, id


def _packed(number: int, ids: Sequence[str], refused: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yields the copies that exist, some at a time. Their sizes are asked first; one that is too large is refused."""
    store, key = registry().state(), state_keys.undo_copies(number)
    part: list[str] = []
    total = read = 0
    for id, size in _sizes(store, key, ids):
        total += size
        if size > COPY_LIMIT or total > BUDGET:
            refused[id] = _FORGED.format(job=printable(id))
            continue
        if part and read + size > _READ:
            yield from _values(store, key, part)
            part, read = [], 0
        part.append(id)
        read += size
    yield from _values(store, key, part)


def _sizes(store: redis.Redis, key: bytes, ids: Sequence[str]) -> list[tuple[str, int]]:
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        for id in ids:
            pipeline.hstrlen(key, cast("Any", encode_name(id)))
        return [(id, size) for id, size in zip(ids, pipeline.execute(), strict=True) if size]


def _values(store: redis.Redis, key: bytes, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    if not ids:
        return
    with redis_errors.guarded(store):
        found = cast("list[bytes | None]", store.hmget(key, [encode_name(id) for id in ids]))
    yield from ((id, value) for id, value in zip(ids, found, strict=True) if value)


def _fitting(packed: Sequence[tuple[str, bytes]], budget: int) -> tuple[list[tuple[str, bytes]], int]:
    fitting, size = [], 0
    for id, value in packed:
        if size + len(value) <= budget:
            fitting.append((id, value))
            size += len(value)
    return fitting, size


def _write(store: redis.Redis, number: int, jobs: Sequence[tuple[str, bytes]], size: int, now: int) -> None:
    pipeline = store.pipeline(transaction=True)
    key = state_keys.undo_copies(number)
    for start in range(0, len(jobs), _PART):
        pipeline.hset(key, mapping={encode_name(id): value for id, value in jobs[start : start + _PART]})
    pipeline.pexpire(key, LIFE_MS)
    pipeline.zadd(state_keys.UNDO_ENTRIES, {b"%d" % number: now})
    pipeline.hset(state_keys.UNDO_SIZES, b"%d" % number, size)
    for index in (state_keys.UNDO_ENTRIES, state_keys.UNDO_SIZES):
        pipeline.pexpire(index, LIFE_MS)
    pipeline.execute()


def _make_room(store: redis.Redis, now: int, budget: int) -> tuple[int, ...]:
    """Deletes entries older than a day, then the oldest until the rest fits. Two at once delete the same ones."""
    _drop(store, _numbers(store.zrangebyscore(state_keys.UNDO_ENTRIES, "-inf", now - LIFE_MS)))
    told = cast("Mapping[bytes, bytes]", store.hgetall(state_keys.UNDO_SIZES))
    sizes = {int(number): int(size) for number, size in told.items() if number.isdigit() and size.isdigit()}
    total = sum(sizes.values())
    forgotten: list[int] = []
    for number in _numbers(store.zrange(state_keys.UNDO_ENTRIES, 0, -1)):
        if total <= budget:
            break
        total -= sizes.get(number, 0)
        forgotten.append(number)
    _drop(store, forgotten)
    return tuple(forgotten)


def _numbers(members: Any) -> list[int]:
    return [int(member) for member in members if member.isdigit() and len(member) <= _NUMBER_DIGITS]


def _drop(store: redis.Redis, numbers: Sequence[int]) -> None:
    if not numbers:
        return
    pipeline = store.pipeline(transaction=True)
    pipeline.unlink(*map(state_keys.undo_copies, numbers))
    pipeline.zrem(state_keys.UNDO_ENTRIES, *numbers)
    pipeline.hdel(state_keys.UNDO_SIZES, *(b"%d" % number for number in numbers))
    pipeline.execute()
