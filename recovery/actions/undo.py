"""Putting back what an act took away: the last one taken comes first, so that each finds its neighbour again."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

import redis

from recovery.actions import audit, keep
from recovery.actions.jobs import UNTOLD, conclude, trouble
from recovery.actions.record import of_seen
from recovery.actions.sight import Scene, now
from recovery.domain.acting import Done, JobResult, Kept, Order, Outcome
from recovery.domain.refs import QueueRef
from recovery.errors import Missing, StoreError, Unsupported
from recovery.reads import audit as book

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What is still kept of one entry, in the order in which it is put back."""

    number: int
    queue: QueueRef
    jobs: tuple[Kept, ...]


def kept(number: int, ids: tuple[str, ...] = ()) -> Found:
    """Of the intent of this number, or of the intent of the outcome of this number."""
    entry = book.plain(number)
    intent = entry.intent or number
    if entry.queue is None:
        raise Missing("This entry took nothing away.")
    jobs = [job for job in reversed(keep.kept(intent)) if not ids or job.id in ids]
    if not jobs:
        raise Missing("Nothing of this is kept any more: it was restored, it is older than a day, or it had to go.")
    return Found(intent, entry.queue, tuple(jobs))


def put_back(order: Order, scene: Scene, found: Found) -> tuple[JobResult, ...]:
    """One script a job. What comes back is kept no longer."""
    body = {"restores": found.number, "jobs": [{"job": seen.id, "seen": of_seen(seen)} for seen in order.jobs]}
    intent = audit.write_intent(order, body, [seen.id for seen in order.jobs])
    done: list[Done] = []
    try:
        done += (_one(scene, job) for job in found.jobs)
    finally:
        untried = [Done(job.id, Outcome.UNKNOWN) for job in found.jobs[len(done) :]]
        number = conclude(order, intent, [*done, *untried])
    with suppress(StoreError):  # then it ends by itself within the day
        keep.forget(found.number, [one.id for one in done if one.outcome is Outcome.DONE])
    return tuple(JobResult(one.id, one.outcome, one.why if number else UNTOLD, number) for one in done)


def _one(scene: Scene, job: Kept) -> Done:
    try:
        return scene.operator.put_back(scene.target, job, now())
    except Unsupported as error:
        return Done(job.id, Outcome.REFUSED, str(error))
    except (StoreError, redis.RedisError) as error:
        return Done(job.id, *trouble(error))
