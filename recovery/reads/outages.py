"""When a store last answered anybody who looked at it, and for how long it had not before: in the state store, so that
whoever begins to look knows what nobody saw.

Time is told by the lives of the keys, so that only one clock counts: that of the state store, and not those of the
machines that take turns. `answered` lives for KEEP from the last answer; `silent` for RELEVANT times what it tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import redis

from recovery.connections import faults, state

KEEP = 30 * 86_400_000  # ms: longer than a scheduler is off whose queues anybody still counts on
# Who is to renew something does it twice in its length: a silence of half a length counts, for two lengths at most.
RELEVANT = 4
# ms: shorter than half of any usual lock. Two who look in turn leave as much between their looks.
USUAL = 5_000


@dataclass(frozen=True, slots=True)
class Outage:
    """For how long the store gave nobody an answer, and how long ago that ended. In ms."""

    lasted: int = 0
    ended: int = 0


def note(store: redis.Redis, gaps: Mapping[str, int | None]) -> None:
    """These deployments have just answered. `gaps`: for how long each had not, as far as its looker knows; 0: it had,
    None: this is its first look. An answer that somebody else had meanwhile shortens the gap. Raises StoreError.

    Where nothing is remembered, nobody has ever looked, or the state store was lost: then a first look says nothing.
    """
    asked = [name for name, gap in gaps.items() if gap != 0]
    with faults.guarded(store):
        known = {name: _known(store, name) for name in asked}
        pipeline = store.pipeline(transaction=True)
        for name in gaps:
            pipeline.set(state.answered(name), b"1", px=KEEP)
        for name, (since, before) in known.items():
            if lasted := _length(gaps[name], since):
                # Two that follow each other count as one, as long as the longer: it errs on the side of holding.
                longest = max(lasted, before)
                pipeline.set(state.silent(name), longest, px=RELEVANT * longest)
        pipeline.execute()


def last(store: redis.Redis, deployment: str) -> Outage:
    """The last one that may still count for anybody; of no length when there is none. Raises StoreError."""
    with faults.guarded(store):
        pipeline = store.pipeline(transaction=True)
        pipeline.get(state.silent(deployment))
        pipeline.pttl(state.silent(deployment))
        lasted, left = pipeline.execute()
    if lasted is None or not lasted.isdigit():
        return Outage()
    return Outage(int(lasted), max(0, RELEVANT * int(lasted) - left))


def _known(store: redis.Redis, deployment: str) -> tuple[int | None, int]:
    """How long ago it answered anybody, None when nobody knows; and the silence that still counts."""
    pipeline = store.pipeline(transaction=False)
    pipeline.pttl(state.answered(deployment))
    pipeline.get(state.silent(deployment))
    left, before = pipeline.execute()
    since = KEEP - left if left > 0 else None
    return since, int(before) if before and before.isdigit() else 0


def _length(gap: int | None, since: int | None) -> int:
    if gap is None:
        return since if since is not None and since >= USUAL else 0
    return gap if since is None else min(gap, since)
