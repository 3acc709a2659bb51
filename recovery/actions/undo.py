"""Restores what an action removed: the last job removed comes first, so that each finds its neighbour again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

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


_NOTHING = "There is no undo copy any more: it was restored, it is older than a day, or it was evicted."


@dataclass(frozen=True, slots=True)
class Found:
    """Jobs of one entry that are still kept, in the order in which they are restored."""

    number: int
    queue: QueueRef
    jobs: tuple[Kept, ...]
    refused: Mapping[str, str]  # job → why its copy is not used


def kept(number: int, ids: tuple[str, ...] = ()) -> Found:
    """Loads what is kept for the intent of this number, or for the intent of the outcome of this number.

    Raises Missing when nothing is kept, and Unsupported when no copy of what is kept can be used.
    """
    detail = book.entry(number)
    intent, queue = detail.entry.number, detail.entry.queue
    if queue is None:
        raise Missing("This entry removed nothing.")
    digests = {id: digest for id, digest in _digests(detail).items() if not ids or id in ids}
    found = keep.copies(intent, queue, digests)
    if not found.jobs and not found.refused:
        raise Missing(_NOTHING)
    if not found.jobs:
        raise Unsupported(next(iter(found.refused.values())))
    return Found(intent, queue, tuple(reversed(found.jobs)), found.refused)


def _digests(detail: book.Detail) -> dict[str, str]:
    """Returns the jobs that were kept, with the digests of their copies; "" where no outcome was written."""
    if detail.outcome is None:
        return {fate.id: "" for fate in detail.jobs if fate.id}
    return {fate.id: fate.digest for fate in detail.jobs if fate.was_kept}


def put_back(order: Order, scene: Scene, found: Found) -> tuple[JobResult, ...]:
    """Restores jobs, with one script each. The copies of restored jobs are deleted."""
    body: dict[str, Any] = {
        "restores": found.number,
        "jobs": [{"job": seen.id, "seen": of_seen(seen)} for seen in order.jobs],
    }
    if found.refused:
        body["refused"] = dict(found.refused)
    intent = audit.write_intent(order, body, [seen.id for seen in order.jobs])
    done: list[Done] = []
    try:
        done += (_one(scene, job) for job in found.jobs)
    finally:
        untried = [Done(job.id, Outcome.UNKNOWN) for job in found.jobs[len(done) :]]
        number = conclude(order, intent, [*done, *untried])
    with suppress(StoreError):  # then the copies expire within the day
        keep.forget(found.number, [one.id for one in done if one.outcome is Outcome.DONE])
    refused = (JobResult(id, Outcome.REFUSED, why) for id, why in found.refused.items())
    return (*(JobResult(one.id, one.outcome, one.why if number else UNTOLD, number) for one in done), *refused)


def _one(scene: Scene, job: Kept) -> Done:
    try:
        return scene.operator.put_back(scene.target, job, now())
    except Unsupported as error:
        return Done(job.id, Outcome.REFUSED, str(error))
    except (StoreError, redis.RedisError) as error:
        return Done(job.id, *trouble(error))
