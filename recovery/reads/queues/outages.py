"""Records in the state store when a store last answered any scheduler, and how long its last outage was, so that a
scheduler that has just started knows of it.

Times are derived from the TTLs of the keys, so that only the clock of the state store counts, and not those of the
schedulers' hosts. `answered` lives for KEEP from the last answer; `silent` for RELEVANT times its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import redis

from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

KEEP = 30 * 86_400_000  # ms: longer than any scheduler is stopped while its queues are in use
# A worker renews a lock or lease twice in its length: an outage of half a length counts, for two lengths at most.
RELEVANT = 4
# ms: shorter than half of any usual lock. When another scheduler takes over, as much may pass between two reads.
USUAL = 5_000


@dataclass(frozen=True, slots=True)
class Outage:
    """Length of an outage of the store, and how long ago it ended, in ms."""

    lasted: int = 0
    ended: int = 0


def note(store: redis.Redis, gaps: Mapping[str, int | None]) -> None:
    """Records that these deployments have just answered. `gaps`: for how long each had not, as far as the caller knows;
    0: it had, None: this is the caller's first read. An answer to another process shortens the gap. Raises StoreError.

    Without a record the deployment was never read, or the state store was lost: then a first read proves no outage.
    """
    asked = [name for name, gap in gaps.items() if gap != 0]
    with redis_errors.guarded(store):
        known = {name: _known(store, name) for name in asked}
        pipeline = store.pipeline(transaction=True)
        for name in gaps:
            pipeline.set(state_keys.last_answered(name), b"1", px=KEEP)
        for name, (since, before) in known.items():
            if lasted := _length(gaps[name], since):
                # Two consecutive outages count as one, as long as the longer: rather wait too long.
                longest = max(lasted, before)
                pipeline.set(state_keys.silence_before(name), longest, px=RELEVANT * longest)
        pipeline.execute()


def last(store: redis.Redis, deployment: str) -> Outage:
    """Returns the last outage that may still matter; of length 0 if there is none. Raises StoreError."""
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=True)
        pipeline.get(state_keys.silence_before(deployment))
        pipeline.pttl(state_keys.silence_before(deployment))
        lasted, left = pipeline.execute()
    if lasted is None or not lasted.isdigit():
        return Outage()
    return Outage(int(lasted), max(0, RELEVANT * int(lasted) - left))


def _known(store: redis.Redis, deployment: str) -> tuple[int | None, int]:
    """Returns how long ago the deployment last answered, None if unknown; and the outage that still counts."""
    pipeline = store.pipeline(transaction=False)
    pipeline.pttl(state_keys.last_answered(deployment))
    pipeline.get(state_keys.silence_before(deployment))
    left, before = pipeline.execute()
    since = KEEP - left if left > 0 else None
    return since, int(before) if before and before.isdigit() else 0


def _length(gap: int | None, since: int | None) -> int:
    if gap is None:
        return since if since is not None and since >= USUAL else 0
    return gap if since is None else min(gap, since)
