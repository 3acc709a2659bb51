"""Follows a lock until it expires: proof that a job of Bull has lost its worker.

Bull leaves a job active and without a lock between taking and locking it, so having none proves nothing by itself. A
job that had its lock before, and was active at every check since, is past that moment. What is left to rule out is a
job that ended or stalled and was taken again between two checks. Every check therefore has to find:

1. while there is a lock: it has missed a renewal, which a healthy worker does not, and its end has not moved;
2. the job's counters as they were around that lock: Bull changes one with whatever it does to an active job. BullMQ 3
   and 4 do not when they retry it, so their locks are not followed;
3. a missing lock only after its end: a worker that ends a run deletes the lock, and only one not renewed lasts so long;
4. no more jobs before it in the list than before: one that is taken again stands behind all others;
5. that the check before was not long ago.

Anything else breaks the chain, and the job waits for two sightings a stalled interval apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

GAP = 15_000  # ms between two looks, at most: three of them at their usual pace
ENDED_FOR = 1_500  # ms without a lock until that counts: a second look, so that one moment alone decides nothing
_SLACK = 1_000  # ms between the beginning of a look and its answers

Counters = tuple[int | None, ...]


class LockObservation(NamedTuple):
    """Observation of a job. `ttl` None: it has no lock. `counters` None: not read, or changed meanwhile."""

    now: int
    ttl: int | None
    rank: int  # jobs before it in the active list, which are older
    is_late: bool = False
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class LockExpiry:
    """A lock that is followed. `locked_at`: when the lock was last seen; `seen_at`: when the job was last seen."""

    counters: Counters
    ends_at: int
    rank: int
    locked_at: int
    seen_at: int

    @property
    def has_ended(self) -> bool:
        return self.seen_at > self.locked_at

    def is_end(self, now: int, ttl: int) -> bool:
        """Returns True if a lock with so much left is still the same, not renewed."""
        return abs(now + ttl - self.ends_at) <= _SLACK


def follow_lock(before: LockExpiry | None, seen: LockObservation) -> LockExpiry | None:
    """Returns the followed lock after one more observation. None: the observations so far prove nothing."""
    held = before if before and _goes_on(before, seen) else None
    if seen.ttl is None:
        is_its_end = held is not None and (held.has_ended or seen.now >= held.ends_at - _SLACK)
        return replace(held, rank=seen.rank, seen_at=seen.now) if held and is_its_end else None
    if not seen.is_late:
        return None
    if held and not held.has_ended and held.is_end(seen.now, seen.ttl):
        return replace(held, rank=seen.rank, locked_at=seen.now, seen_at=seen.now)
    if seen.counters is None or seen.counters[0] is None:  # one that was never started says nothing
        return None
    return LockExpiry(seen.counters, seen.now + seen.ttl, seen.rank, seen.now, seen.now)


def _goes_on(before: LockExpiry, seen: LockObservation) -> bool:
    same = seen.counters in (None, before.counters)
    return same and seen.rank <= before.rank and 0 < seen.now - before.seen_at <= GAP
