"""Executes an action on the queue itself: pause and resume in one call, clean and drain step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import redis

from recovery.actions import precheck, undo_store
from recovery.actions.audit import audit_log, entry_body
from recovery.actions.execute_jobs import MAYBE_DONE, Told, outcome_of_error, record_outcome
from recovery.actions.precheck import ActionContext
from recovery.actions.rules import judge_queue
from recovery.actions.undo_store import UndoCopyResult
from recovery.backends.base import MOVE_CHUNK
from recovery.domain.actions.types import (
    ActionCommand,
    ActionOptions,
    JobResult,
    Outcome,
    RemovalStep,
    Rival,
    ScriptOutcome,
)
from recovery.errors import Fenced, NotRecorded, StoreError, Unsupported

STEPS = 20  # taken within one request: 10,000 jobs, some seconds; more is for a bulk run


@dataclass(frozen=True, slots=True)
class SweepStep:
    """A bounded step of a clean or a drain, with its own entries in the audit."""

    result: JobResult
    removed: int = 0
    skipped: int = 0
    kept: int = 0
    is_finished: bool = False
    next: str = ""  # where the following step begins
    fenced: Rival | None = None  # the rival that it met: no step follows


def pause_or_resume(order: ActionCommand, context: ActionContext) -> JobResult:
    """Pauses or resumes the queue. Raises Fenced."""
    if refusal := _refusal(order, context):
        return refusal
    intent = audit_log.write_intent(order, entry_body.queue_body(order, order.options))
    try:
        done = context.operator.on_queue(order.act, context.target, order.options, precheck.now())
    except Fenced as error:
        record_outcome(order, intent, [ScriptOutcome("", Outcome.REFUSED, str(error))])
        raise
    except Unsupported as error:
        done = ScriptOutcome("", Outcome.REFUSED, str(error))
    except (StoreError, redis.RedisError) as error:
        done = ScriptOutcome("", *outcome_of_error(error))
    except Exception as error:
        record_outcome(order, intent, [ScriptOutcome("", Outcome.UNKNOWN, MAYBE_DONE.format(error=repr(error)))])
        raise
    number = record_outcome(order, intent, [done])
    return JobResult("", done.outcome, done.why, number)


def sweep(order: ActionCommand, context: ActionContext, steps: int = STEPS) -> JobResult:
    """Executes steps until nothing is left, or so many; returns one result for all. Raises Fenced with it."""
    taken = list(_steps(order, context, steps))
    result, fenced = _of_all(taken), taken[-1].fenced
    if fenced is not None:
        raise Fenced(fenced, (result,))
    return result


def _of_all(taken: Sequence[SweepStep]) -> JobResult:
    last = taken[-1]
    removed, skipped = sum(step.removed for step in taken), sum(step.skipped for step in taken)
    if last.result.outcome is not Outcome.DONE:
        before = f"{removed:,} removed before. " if removed else ""
        return replace(last.result, why=before + last.result.why)
    outcome = Outcome.DONE if removed else Outcome.UNCHANGED
    can_restore = any(step.kept for step in taken)
    why = sweep_summary(removed, skipped, removed - sum(step.kept for step in taken))
    rest = "" if last.is_finished else " There are more jobs: repeat it, or run it in bulk."
    rest = rest if last.fenced is None else f" {Fenced(last.fenced)}"
    return JobResult("", outcome, why + rest, last.result.audit, can_restore)


def step(order: ActionCommand, context: ActionContext, report: Told | None = None) -> SweepStep:
    """Executes one step of a clean or a drain. Raises NotRecorded and StoreError only while nothing was done."""
    if refusal := _refusal(order, context):
        return SweepStep(refusal)
    intent = audit_log.write_intent(order, entry_body.queue_body(order, order.options))
    if report:
        report(intent)
    try:
        removed = context.operator.take_away(
            order.act, context.target, order.options, precheck.now(), budget=_budget(order.options)
        )
    except Unsupported as error:
        return _ended(order, intent, ScriptOutcome("", Outcome.REFUSED, str(error)))
    except (StoreError, redis.RedisError) as error:
        return _ended(order, intent, ScriptOutcome("", *outcome_of_error(error)))
    except Exception as error:
        record_outcome(order, intent, [ScriptOutcome("", Outcome.UNKNOWN, MAYBE_DONE.format(error=repr(error)))])
        raise
    return _taken(order, intent, removed)


def next_order(order: ActionCommand, done: SweepStep) -> ActionCommand:
    """Returns the order of the next step: it begins where this one ended, with what is left of the limit."""
    limit = order.options.limit - done.removed if order.options.limit else 0
    return replace(order, options=replace(order.options, limit=limit, cursor=done.next))


def sweep_summary(removed: int, skipped: int, lost: int = 0) -> str:
    parts = [f"{removed:,} removed"]
    if skipped:
        parts.append(f"{skipped:,} skipped")
    if lost:
        parts.append(f"{lost:,} of them cannot be restored")
    return ", ".join(parts) + "."


def _steps(order: ActionCommand, context: ActionContext, most: int) -> Iterator[SweepStep]:
    for number in range(most):
        try:
            done = step(order, context)
        except (StoreError, NotRecorded) as error:
            if not number:
                raise
            yield SweepStep(JobResult("", Outcome.REFUSED, f"Stopped: {error}"))
            return
        yield done
        is_spent = order.options.limit and done.removed >= order.options.limit
        if done.is_finished or is_spent or done.fenced is not None or done.result.outcome is not Outcome.DONE:
            return
        order = next_order(order, done)


def _refusal(order: ActionCommand, context: ActionContext) -> JobResult | None:
    judgement = judge_queue(order.act, order.queue, context.queue.flavour, order.options)
    return None if judgement.is_allowed else JobResult("", judgement.outcome, judgement.why)


def _budget(options: ActionOptions) -> int:
    return min(options.limit, MOVE_CHUNK) if options.limit else MOVE_CHUNK


def _ended(order: ActionCommand, intent: int, done: ScriptOutcome) -> SweepStep:
    return SweepStep(JobResult("", done.outcome, done.why, record_outcome(order, intent, [done])))


def _taken(order: ActionCommand, intent: int, removed: RemovalStep) -> SweepStep:
    """Keeps the removed jobs, lists them by id, and counts them; also when another scheduler leads by now."""
    holding = (
        undo_store.save_copies(intent, order.queue, removed.jobs, precheck.now()) if removed.jobs else UndoCopyResult()
    )
    jobs = [ScriptOutcome(job.id, Outcome.DONE) for job in removed.jobs]
    outcome, why = Outcome.DONE, sweep_summary(removed.removed, removed.skipped, removed.removed - len(holding.ids))
    if removed.fenced is not None:
        fence = str(Fenced(removed.fenced))
        outcome, why = (Outcome.DONE, f"{why} {fence}") if removed.removed else (Outcome.REFUSED, fence)
    number = record_outcome(order, intent, [ScriptOutcome("", outcome, why), *jobs], holding)
    result = JobResult("", outcome, why, number, bool(holding.ids))
    is_spent = bool(order.options.limit) and removed.removed >= order.options.limit
    is_finished = removed.is_finished or is_spent
    return SweepStep(
        result, removed.removed, removed.skipped, len(holding.ids), is_finished, removed.next, removed.fenced
    )
