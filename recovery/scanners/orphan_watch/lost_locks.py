"""Counts active jobs of a deployment that lost their locks since the last pass, and how many of them because a worker
left. It compares with memory of this process; what was known before it is in the marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery.backends.redis_common.active_jobs import NO_KEY
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobRow
from recovery.domain.safety_limits.redis_pause import LOCK_LENGTH, LOCK_LENGTHS
from recovery.domain.stuck.context import VerdictContext, WorkerChange
from recovery.domain.stuck.holders import HolderPresence, holder_presence
from recovery.scanners.orphan_watch.queue_state import QueueState

_SLACK = 10_000  # ms: two passes
_CLOCKS = 2_000  # ms: the store tells its uptime in seconds, and workers their own time


@dataclass(frozen=True, slots=True)
class LostLockCounts:
    """Numbers of lost locks, as `RedisObservation` takes them."""

    active: int = 0
    lost: int = 0
    gone: int = 0
    bare: int = 0
    older: int | None = 0
    lock_length: int = 0  # ms, the longest in use; 0: none was seen

    def __add__(self, other: LostLockCounts) -> LostLockCounts:
        return LostLockCounts(
            self.active + other.active,
            self.lost + other.lost,
            self.gone + other.gone,
            self.bare + other.bare,
            None if self.older is None or other.older is None else self.older + other.older,
            max(self.lock_length, other.lock_length),
        )


def count_lost_locks(
    posts: Iterable[QueueState], around: Mapping[QueueRef, VerdictContext], uptime: int | None
) -> LostLockCounts:
    """Counts lost locks of all queues, once a pass has read them and before it makes marks. `uptime` of Redis in ms."""
    return sum((_of(post, around[post.ref], uptime) for post in posts if not post.found_error), LostLockCounts())


def _of(post: QueueState, around: VerdictContext, uptime: int | None) -> LostLockCounts:
    bare = [id for id in (decode_name(one.id) for one in post.found if one.ttl == NO_KEY) if _is_bare(post, id)]
    fresh = [id for id in bare if id not in post.marks or post.marks[id].lockless_since is None]
    held = {decode_name(one.id) for one in post.found if post.jobs.held[one.rank]}
    lost = [id for id in bare if id in held]
    left = _have_left(around)
    gone = sum(_is_gone(post.rows.get(id), around, left) for id in lost)
    older = None if uptime is None else post.jobs.older(around.now - uptime + _CLOCKS)
    return LostLockCounts(len(post.jobs), len(lost), gone, len(fresh), older, post.memory.lock_length)


def _is_bare(post: QueueState, id: str) -> bool:
    """Returns True if the job has no lock, also at its second read, if any: it may have moved or been locked since."""
    row = post.rows.get(id)
    return id not in post.found_moved and (row is None or row.lock is None)


def _is_gone(row: JobRow | None, around: VerdictContext, left: bool) -> bool:
    """Returns True if the job's worker has left, or, where workers have no names, if any of them has."""
    if row is None:
        return False
    known = holder_presence(row, around)
    return known is HolderPresence.GONE or (known is HolderPresence.UNKNOWN and left)


def _have_left(around: VerdictContext) -> bool:
    """Returns True if more workers without a name left than came while a lock may have expired."""
    since = around.now - LOCK_LENGTHS * (around.lock_length or LOCK_LENGTH) - _SLACK
    return _unnamed(around.left, since) > _unnamed(around.came, since)


def _unnamed(changes: Iterable[WorkerChange], since: int) -> int:
    return sum(not change.name and change.at >= since for change in changes)
