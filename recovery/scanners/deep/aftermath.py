"""Tells the breakers how retried jobs have ended: at each step of a run, and every few seconds between two runs."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.actions import brakes
from recovery.domain.breaker import Ended, Out
from recovery.domain.counts import Snapshot
from recovery.domain.refs import QueueRef
from recovery.errors import DeploymentMissing, QueueMissing
from recovery.reads import brake_rows, lists, relaunched
from recovery.reads.brake_rows import BREAKER, Place
from recovery.reads.lists import Queue
from recovery.reads.relaunched import End


def settle(queue: Queue, outs: Sequence[Out], now: int) -> int:
    """Settles retried jobs that have ended; returns how many. Raises StoreError, NotRecorded, Error of the database."""
    ends = relaunched.ends(queue, outs, now) if outs else {}
    if ends:
        brakes.settled(queue.ref, ends, now)
    return len(ends)


def followed(ref: QueueRef, outs: Sequence[Out], snapshot: Snapshot | None, now: int) -> bool:
    """Settles ended jobs; returns True if that closed a breaker. Jobs of a queue that is gone count as unknown."""
    before = open_breakers(ref)
    try:
        settle(lists.locate(ref, snapshot), outs, now)
    except (QueueMissing, DeploymentMissing):
        brakes.settled(ref, {out.id: End(Ended.UNKNOWN) for out in outs}, now)
    return bool(before - open_breakers(ref))


def open_breakers(ref: QueueRef) -> set[str]:
    """Returns the keys of the breakers that are not closed."""
    return {key for key, breaker in brake_rows.values(BREAKER, Place.of(ref)).items() if breaker.opened_at is not None}
