"""Performs every action that changes a queue, for pages, shell, API and scanners alike: there is no other way.

Each time: 1. the right to do it; 2. a target that may be changed in this way; 3. a fresh look; 4. the intent in the
audit, committed; 5. the action; 6. its outcome in the audit. Without 4 there is no 5.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recovery.actions import action_reason, execute_jobs, execute_queue, precheck, undo, undo_store
from recovery.actions.catalog import ENTRIES, ActionSpec
from recovery.actions.execute_jobs import Told
from recovery.actions.precheck import ActionContext
from recovery.actions.rules import judge_queue
from recovery.domain.actions.types import (
    Action,
    ActionCommand,
    ActionPrecheck,
    Actor,
    ExpectedJob,
    JobResult,
    JobSideEffect,
    RelativeChange,
    Right,
)
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow
from recovery.domain.queues.types import QueueSample
from recovery.errors import BadOrder, Forbidden
from recovery.reads.queues.job_lists import count_of

AT_ONCE = 1000  # jobs of one order: as many as one request can wait for; more need a bulk run
NAMED_FROM = 100  # jobs, with those that go or fail with them, from which on the queue's name is to be typed
_UNKEPT = "The state store does not answer or refuses writes, so this cannot be undone."


@dataclass(frozen=True, slots=True)
class ActionDryRun:
    """Judgement of an order, made now. `count`: about how many jobs a clean or a drain finds; None: unknown."""

    order: ActionCommand
    judgements: tuple[ActionPrecheck, ...]
    can: int
    refused: int
    needs_name: bool
    question: str
    risk: str
    entry: ActionSpec
    count: int | None = None

    @property
    def relatives(self) -> int:
        """Number of other jobs that are deleted, or fail, with those."""
        return len(_relatives(self.judgements))


def preview(order: ActionCommand, rows: Sequence[JobRow] | None = None) -> ActionDryRun:
    """Judges an order; changes nothing, needs no reason. Raises Forbidden, BadOrder, Unsupported, Missing, StoreError.

    `rows`: the order's jobs, in its order, if the caller has read them for this very preview.
    """
    order = _permitted(order)
    entry = ENTRIES[order.act]
    context = precheck.build_context(order.queue, order.act)
    if entry.is_for_queue:
        judgements: tuple[ActionPrecheck, ...] = (
            judge_queue(order.act, order.queue, context.queue.flavour, order.options),
        )
    else:
        judgements = tuple(one.judgement for one in precheck.check_jobs(order, context, order.jobs, rows=rows))
    return _preview(order, entry, context, judgements)


def perform(
    order: ActionCommand, callbacks: execute_jobs.ActionCallbacks = execute_jobs.NO_CALLBACKS
) -> tuple[JobResult, ...]:
    """Performs an order; returns one result a job, in their order; one for the queue itself.

    Raises Forbidden, BadOrder, NotRecorded, Unsupported, Missing, and StoreError, each with nothing done; and Fenced,
    which says what was done until then. The audit holds all of it.
    """
    order = _reasoned(_permitted(order))
    entry = ENTRIES[order.act]
    context = precheck.build_context(order.queue, order.act, order.epoch, order.installation)
    if entry.in_steps:
        return (execute_queue.sweep(order, context),)
    if entry.is_for_queue:
        return (execute_queue.pause_or_resume(order, context),)
    return execute_jobs.perform(order, context, callbacks)


def perform_prechecked(
    order: ActionCommand,
    context: ActionContext,
    looked: Sequence[precheck.PrecheckedJob],
    callbacks: execute_jobs.ActionCallbacks,
) -> tuple[JobResult, ...]:
    """`perform` for jobs that a bulk run has just read and judged."""
    return execute_jobs.perform_prechecked(_reasoned(_permitted(order)), context, looked, callbacks)


def step(order: ActionCommand, told: Told | None = None) -> execute_queue.SweepStep:
    """Executes one step of a clean or a drain, so that the caller can show progress. The step says if it was fenced."""
    order = _reasoned(_permitted(order))
    return execute_queue.step(
        order, precheck.build_context(order.queue, order.act, order.epoch, order.installation), told
    )


def sweep(order: ActionCommand) -> JobResult:
    """Executes a clean or a drain to its end, however long it takes: for the shell, where an operator waits for it."""
    order = _reasoned(_permitted(order))
    return execute_queue.sweep(
        order, precheck.build_context(order.queue, order.act, order.epoch, order.installation), sys.maxsize
    )


def restore(number: int, actor: Actor, reason: str, ids: tuple[str, ...] = ()) -> tuple[JobResult, ...]:
    """Restores what the audit's entry of this number removed, all of it or these jobs; itself an audited action.

    Raises as `perform` does; Missing when nothing of it is kept (any more).
    """
    found = undo.load_restorable(number, ids)
    order = ActionCommand(
        Action.RESTORE, found.queue, actor, reason, tuple(ExpectedJob(job.id, job.state) for job in found.jobs)
    )
    order = _reasoned(_permitted(order))
    return undo.restore_jobs(order, precheck.build_context(order.queue, Action.RESTORE), found)


def current_jobs(queue: QueueRef, ids: tuple[str, ...]) -> tuple[ExpectedJob, ...]:
    """Returns jobs as they are now, for callers that were not shown them before. Raises Missing, StoreError."""
    return precheck.current_jobs(queue, ids)


def validate_bulk_order(order: ActionCommand) -> ActionCommand:
    """Checks an order in bulk, which may have any number of jobs, and has them perhaps later; returns it."""
    entry = ENTRIES[order.act]
    require(order.actor, entry.label, entry.right(many=True))
    return _reasoned(_once(order))


def require(actor: Actor, what: str, right: Right) -> None:
    """Raises Forbidden unless the actor has the right."""
    if not actor.may(right):
        raise Forbidden(f"{what} needs the permission to {right.words}.")


def _once(order: ActionCommand) -> ActionCommand:
    """Returns the order with each job once, as a job that is named twice is meant once."""
    return replace(order, jobs=tuple({seen.id: seen for seen in order.jobs}.values()))


def _permitted(order: ActionCommand) -> ActionCommand:
    """Checks that the actor may do it, and that it is an order at all; returns the order."""
    entry, actor = ENTRIES[order.act], order.actor
    order = _once(order)
    if order.act is Action.RESTORE and not order.jobs:
        raise BadOrder("Removed jobs are restored by the number of their audit entry.")
    require(actor, entry.label, entry.right(many=False))
    if len(order.jobs) > 1:
        require(actor, f"{entry.label} of more than one job", entry.right(many=True))
    if entry.is_for_queue and order.jobs:
        raise BadOrder(f"{entry.label} is for the queue itself, not for single jobs.")
    if not entry.is_for_queue and not order.jobs:
        raise BadOrder("Name at least one job.")
    if len(order.jobs) > AT_ONCE:
        raise BadOrder(f"At most {AT_ONCE:,} jobs at once; run more of them in bulk.")
    return order


def _reasoned(order: ActionCommand) -> ActionCommand:
    return replace(order, reason=action_reason.require_reason(order.reason))


def insist_on_undo(order: ActionCommand) -> None:
    """Refuses to remove for good unless `force` is given: for callers that see no preview. Raises BadOrder."""
    if ENTRIES[order.act].restorable and not order.options.force and not undo_store.is_ready():
        raise BadOrder(f"{_UNKEPT} Nothing was changed; use `force` to do it anyway.")


def _preview(
    order: ActionCommand, entry: ActionSpec, context: ActionContext, judgements: tuple[ActionPrecheck, ...]
) -> ActionDryRun:
    can = sum(judgement.is_allowed for judgement in judgements)
    risks = dict.fromkeys(judgement.risk for judgement in judgements if judgement.is_allowed and judgement.risk)
    is_final = entry.restorable and not undo_store.is_ready()
    if is_final:
        risks[_UNKEPT] = None
    count = _count(order, context.queue.sample)
    return ActionDryRun(
        order,
        judgements,
        can,
        len(judgements) - can,
        entry.irreversible or is_final or can + len(_relatives(judgements)) >= NAMED_FROM,
        _question(entry, order, can, count),
        " ".join(risks),
        entry,
        count,
    )


def _relatives(judgements: Sequence[ActionPrecheck]) -> set[JobSideEffect]:
    """Other jobs that are deleted, or fail, with those that are named, each once."""
    taken = (one.effects.affected for one in judgements if one.is_allowed)
    return {other for affected in taken for other in affected if other.change is not RelativeChange.RELEASED}


def _count(order: ActionCommand, sample: QueueSample | None) -> int | None:
    """Returns about how many jobs a clean or a drain would look at, as the snapshot counts them."""
    if sample is None:
        return None
    if order.act is Action.CLEAN:
        return count_of(sample, order.options.state) if order.options.state else None
    if order.act is Action.DRAIN:
        return _sum(sample.counts.backlog, sample.counts.delayed if order.options.delayed else 0)
    return None


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _question(entry: ActionSpec, order: ActionCommand, can: int, count: int | None) -> str:
    name = order.queue.label
    if entry.in_steps:
        about = "" if count is None else f" (about {count:,} jobs)"
        return f"{entry.label} {name}{about}?"
    if entry.is_for_queue:
        return f"{entry.label} {name}?"
    return f"{entry.label} {entry.counted(can)} of {name}?"
