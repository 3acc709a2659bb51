"""Restores what an action removed: the last job removed comes first, so that each finds its neighbour again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis

from recovery.actions import undo_store
from recovery.actions.audit import audit_log
from recovery.actions.audit.entry_body import seen_facts
from recovery.actions.execute_jobs import UNTOLD, outcome_of_error, record_outcome
from recovery.actions.precheck import ActionContext, now
from recovery.domain.actions.types import ActionCommand, JobResult, Outcome, ScriptOutcome, UndoCopy
from recovery.domain.identifiers import QueueRef
from recovery.errors import Missing, StoreError, Unsupported
from recovery.reads.audit import queries as book

log = logging.getLogger(__name__)


_NOTHING = "There is no undo copy any more: it was restored, it is older than a day, or it was evicted."


@dataclass(frozen=True, slots=True)
class RestorableEntry:
    """Jobs of one entry that are still kept, in the order in which they are restored."""

    number: int
    queue: QueueRef
    jobs: tuple[UndoCopy, ...]
    refused: Mapping[str, str]  # job → why its copy is not used


def load_restorable(number: int, ids: tuple[str, ...] = ()) -> RestorableEntry:
    """Loads what is kept for the intent of this number, or for the intent of the outcome of this number.

    Raises Missing when nothing is kept, and Unsupported when no copy of what is kept can be used.
    """
    detail = book.entry(number)
    intent, queue = detail.entry.number, detail.entry.queue
    if queue is None:
        raise Missing("This entry removed nothing.")
    digests = {id: digest for id, digest in _digests(detail).items() if not ids or id in ids}
    found = undo_store.load_copies(intent, queue, digests)
    if not found.jobs and not found.refused:
        raise Missing(_NOTHING)
    if not found.jobs:
        raise Unsupported(next(iter(found.refused.values())))
    return RestorableEntry(intent, queue, tuple(reversed(found.jobs)), found.refused)


def _digests(detail: book.AuditActionDetail) -> dict[str, str]:
    """Returns the jobs that were kept, with the digests of their copies; "" where no outcome was written."""
    if detail.outcome is None:
        return {fate.id: "" for fate in detail.jobs if fate.id}
    return {fate.id: fate.digest for fate in detail.jobs if fate.was_kept}


def restore_jobs(order: ActionCommand, context: ActionContext, found: RestorableEntry) -> tuple[JobResult, ...]:
    """Restores jobs, with one script each. The copies of restored jobs are deleted."""
    body: dict[str, Any] = {
        "restores": found.number,
        "jobs": [{"job": seen.id, "seen": seen_facts(seen)} for seen in order.jobs],
    }
    if found.refused:
        body["refused"] = dict(found.refused)
    intent = audit_log.write_intent(order, body, [seen.id for seen in order.jobs])
    done: list[ScriptOutcome] = []
    try:
        done += (_one(context, job) for job in found.jobs)
    finally:
        untried = [ScriptOutcome(job.id, Outcome.UNKNOWN) for job in found.jobs[len(done) :]]
        number = record_outcome(order, intent, [*done, *untried])
    with suppress(StoreError):  # then the copies expire within the day
        undo_store.forget(found.number, [one.id for one in done if one.outcome is Outcome.DONE])
    refused = (JobResult(id, Outcome.REFUSED, why) for id, why in found.refused.items())
    return (*(JobResult(one.id, one.outcome, one.why if number else UNTOLD, number) for one in done), *refused)


def _one(context: ActionContext, job: UndoCopy) -> ScriptOutcome:
    try:
        return context.operator.put_back(context.target, job, now())
    except Unsupported as error:
        return ScriptOutcome(job.id, Outcome.REFUSED, str(error))
    except (StoreError, redis.RedisError) as error:
        return ScriptOutcome(job.id, *outcome_of_error(error))
