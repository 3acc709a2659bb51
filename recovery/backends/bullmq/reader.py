"""The reader of BullMQ 3 to 6."""

from __future__ import annotations

from typing import Any

from recovery.backends.base import Capabilities, Command, CommandClient, Replies
from recovery.backends.bullmq import family, versions
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.reader import KeyspaceReader
from recovery.backends.redis_common.sample_replies import oldest, problem, single_id
from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.domain.jobs import JobFamily
from recovery.domain.queues.types import JobCounts, LibraryVersion, QueueSample

# -- sample
# Samples one BullMQ queue: the commands of each snapshot, and what the answers mean.


_WAITING, _ACTIVE = 0, 1
_COUNTS = slice(2, 8)  # the rest of them, in the order of `JobCounts`
_META, _TAIL, _PAUSED_TAIL, _FIRST, _RUNNING, _DUE, _WATCHDOG, _LIMITER, _ADDED, _HEAD = range(8, 18)


def plan(base: str, *, with_head: bool) -> tuple[Command, ...]:
    """Returns the commands. A thousand queues ask this every two seconds, so each is one that the screen needs.

    `with_head`: BullMQ ≤ 4 may keep a marker at the head of `wait`. Nothing here is above O(log n).
    """
    keys = BullMQKeys(base)
    asked: tuple[Command, ...] = (
        (b"LLEN", keys.wait),
        (b"LLEN", keys.active),
        (b"ZCARD", keys.prioritized),
        (b"ZCARD", keys.delayed),
        (b"ZCARD", keys.waiting_children),
        (b"ZCARD", keys.completed),
        (b"ZCARD", keys.failed),
        (b"LLEN", keys.paused),
        (b"HMGET", keys.meta, b"paused", b"concurrency", b"max", b"duration"),
        (b"LRANGE", keys.wait, -2, -1),
        (b"LINDEX", keys.paused, -1),
        (b"ZRANGE", keys.prioritized, 0, 0),
        (b"LINDEX", keys.active, -1),
        (b"ZRANGE", keys.delayed, 0, 0, b"WITHSCORES"),
        (b"PTTL", keys.watchdog),
        (b"PTTL", keys.limiter),
        (b"GET", keys.counter),
    )
    return (*asked, (b"LINDEX", keys.wait, 0)) if with_head else asked


def read(ref: QueueRef, flavour: LibraryVersion, replies: Replies) -> tuple[QueueSample, tuple[str, str]]:
    waiting, next_waiting = _waiting(replies)
    paused, concurrency, limit, duration = decode.fields(replies[_META], 4)
    due = decode.pairs(replies[_DUE])
    active, running = _active(replies)
    sample = QueueSample(
        ref=ref,
        flavour=flavour,
        counts=JobCounts(waiting, active, *map(decode.count, replies[_COUNTS])),
        is_paused=None if isinstance(replies[_META], Exception) else paused is not None,
        concurrency=decode.integer(concurrency),
        limit_max=decode.integer(limit),
        limit_duration=decode.integer(duration),
        limited_for=decode.remaining(replies[_LIMITER]),
        next_delayed_at=decode.due(decode.score(due[0][1])) if due else None,
        stalled_check_ttl=decode.remaining(replies[_WATCHDOG]),
        added=decode.integer(replies[_ADDED]),
        error=problem(replies),
    )
    first = oldest((next_waiting, single_id(replies[_PAUSED_TAIL]), single_id(replies[_FIRST])))
    return sample, (first, decode_name(running or b""))


def _waiting(replies: Replies) -> tuple[int | None, bytes | None]:
    """Returns how many jobs wait, and which runs next, markers left out.

    A marker is only ever pushed into an empty `wait`; it ends at the tail, or at the head when jobs jump the queue.
    """
    length = decode.count(replies[_WAITING])
    tail = decode.items(replies[_TAIL])
    if not tail:
        return length, None
    jobs = [id for id in tail if not LAYOUT.is_marker(id)]
    markers = len(tail) - len(jobs)
    if length is not None and length > len(tail) and len(replies) > _HEAD:
        markers += _is_marker(replies[_HEAD])
    return length if length is None else max(0, length - markers), jobs[-1] if jobs else None


def _active(replies: Replies) -> tuple[int | None, bytes | None]:
    """Returns how many jobs run, and the oldest. A worker of BullMQ ≤ 4 about to drop a marker has it here."""
    length, oldest_active = decode.count(replies[_ACTIVE]), single_id(replies[_RUNNING])
    if oldest_active is None or not LAYOUT.is_marker(oldest_active):
        return length, oldest_active
    return length and length - 1, None


def _is_marker(reply: Any) -> bool:
    id = decode.octets(reply)
    return id is not None and LAYOUT.is_marker(id)


# -- reader


class BullMQReader(KeyspaceReader):
    layout = versions.LAYOUT

    def __init__(self, *, may_have_markers: bool) -> None:
        self._may_have_markers = may_have_markers

    def capabilities(self, flavour: LibraryVersion) -> Capabilities:
        return versions.capabilities(flavour)

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        return plan(ref.base, with_head=self._may_have_markers)

    def sample(
        self, ref: QueueRef, flavour: LibraryVersion, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        return read(ref, flavour, replies)

    def family(self, wire: CommandClient, ref: QueueRef, id: str) -> JobFamily:
        return family.read(wire, self._scene(ref), encode_name(id))
