"""Executes an action on the queue itself: pause and resume in one call, clean and drain step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import redis

from recovery.actions import audit, keep, record, sight
from recovery.actions.jobs import PERHAPS, Told, conclude, trouble
from recovery.actions.judge import judge_queue
from recovery.actions.keep import Holding
from recovery.actions.sight import Scene
from recovery.backends.base import MOVE_CHUNK
from recovery.domain.acting import Done, JobResult, Options, Order, Outcome, Removed, Rival
from recovery.errors import Fenced, NotRecorded, StoreError, Unsupported

STEPS = 20  # taken within one request: 10,000 jobs, some seconds; more is for a bulk run


@dataclass(frozen=True, slots=True)
class Step:
    """One bounded step of a clean or a drain, with its own entries in the audit."""

    result: JobResult
    removed: int = 0
    skipped: int = 0
    kept: int = 0
    is_finished: bool = False
    next: str = ""  # where the following step begins
    fenced: Rival | None = None  # the rival that it met: no step follows


def turn(order: Order, scene: Scene) -> JobResult:
    """Pauses or resumes the queue. Raises Fenced."""
    if refusal := _refusal(order, scene):
        return refusal
    intent = audit.write_intent(order, record.of_queue(order, order.options))
    try:
        done = scene.operator.on_queue(order.act, scene.target, order.options, sight.now())
    except Fenced as error:
        conclude(order, intent, [Done("", Outcome.REFUSED, str(error))])
        raise
    except Unsupported as error:
        done = Done("", Outcome.REFUSED, str(error))
    except (StoreError, redis.RedisError) as error:
        done = Done("", *trouble(error))
    except Exception as error:
        conclude(order, intent, [Done("", Outcome.UNKNOWN, PERHAPS.format(error=repr(error)))])
        raise
    number = conclude(order, intent, [done])
    return JobResult("", done.outcome, done.why, number)


def sweep(order: Order, scene: Scene, steps: int = STEPS) -> JobResult:
    """Executes steps until nothing is left, or so many; returns one result for all. Raises Fenced with it."""
    taken = list(_steps(order, scene, steps))
    result, fenced = _of_all(taken), taken[-1].fenced
    if fenced is not None:
        raise Fenced(fenced, (result,))
    return result


def _of_all(taken: Sequence[Step]) -> JobResult:
    last = taken[-1]
    removed, skipped = sum(step.removed for step in taken), sum(step.skipped for step in taken)
    if last.result.outcome is not Outcome.DONE:
        before = f"{removed:,} removed before. " if removed else ""
        return replace(last.result, why=before + last.result.why)
    outcome = Outcome.DONE if removed else Outcome.UNCHANGED
    can_restore = any(step.kept for step in taken)
    why = told(removed, skipped, removed - sum(step.kept for step in taken))
    rest = "" if last.is_finished else " There are more jobs: repeat it, or run it in bulk."
    rest = rest if last.fenced is None else f" {Fenced(last.fenced)}"
    return JobResult("", outcome, why + rest, last.result.audit, can_restore)


def step(order: Order, scene: Scene, report: Told | None = None) -> Step:
    """Executes one step of a clean or a drain. Raises NotRecorded and StoreError only while nothing was done."""
    if refusal := _refusal(order, scene):
        return Step(refusal)
    intent = audit.write_intent(order, record.of_queue(order, order.options))
    if report:
        report(intent)
    try:
        removed = scene.operator.take_away(
            order.act, scene.target, order.options, sight.now(), budget=_budget(order.options)
        )
    except Unsupported as error:
        return _ended(order, intent, Done("", Outcome.REFUSED, str(error)))
    except (StoreError, redis.RedisError) as error:
        return _ended(order, intent, Done("", *trouble(error)))
    except Exception as error:
        conclude(order, intent, [Done("", Outcome.UNKNOWN, PERHAPS.format(error=repr(error)))])
        raise
    return _taken(order, intent, removed)


def after(order: Order, done: Step) -> Order:
    """Returns the order of the next step: it begins where this one ended, with what is left of the limit."""
    limit = order.options.limit - done.removed if order.options.limit else 0
    return replace(order, options=replace(order.options, limit=limit, cursor=done.next))


def told(removed: int, skipped: int, lost: int = 0) -> str:
    parts = [f"{removed:,} removed"]
    if skipped:
        parts.append(f"{skipped:,} skipped")
    if lost:
        parts.append(f"{lost:,} of them cannot be restored")
    return ", ".join(parts) + "."


def _steps(order: Order, scene: Scene, most: int) -> Iterator[Step]:
    for number in range(most):
        try:
            done = step(order, scene)
        except (StoreError, NotRecorded) as error:
            if not number:
                raise
            yield Step(JobResult("", Outcome.REFUSED, f"Stopped: {error}"))
            return
        yield done
        is_spent = order.options.limit and done.removed >= order.options.limit
        if done.is_finished or is_spent or done.fenced is not None or done.result.outcome is not Outcome.DONE:
            return
        order = after(order, done)


def _refusal(order: Order, scene: Scene) -> JobResult | None:
    judgement = judge_queue(order.act, order.queue, scene.queue.flavour, order.options)
    return None if judgement.is_allowed else JobResult("", judgement.outcome, judgement.why)


def _budget(options: Options) -> int:
    return min(options.limit, MOVE_CHUNK) if options.limit else MOVE_CHUNK


def _ended(order: Order, intent: int, done: Done) -> Step:
    return Step(JobResult("", done.outcome, done.why, conclude(order, intent, [done])))


def _taken(order: Order, intent: int, removed: Removed) -> Step:
    """Keeps the removed jobs, lists them by id, and counts them; also when another scheduler leads by now."""
    holding = keep.keep(intent, order.queue, removed.jobs, sight.now()) if removed.jobs else Holding()
    jobs = [Done(job.id, Outcome.DONE) for job in removed.jobs]
    outcome, why = Outcome.DONE, told(removed.removed, removed.skipped, removed.removed - len(holding.ids))
    if removed.fenced is not None:
        fence = str(Fenced(removed.fenced))
        outcome, why = (Outcome.DONE, f"{why} {fence}") if removed.removed else (Outcome.REFUSED, fence)
    number = conclude(order, intent, [Done("", outcome, why), *jobs], holding)
    result = JobResult("", outcome, why, number, bool(holding.ids))
    is_spent = bool(order.options.limit) and removed.removed >= order.options.limit
    is_finished = removed.is_finished or is_spent
    return Step(result, removed.removed, removed.skipped, len(holding.ids), is_finished, removed.next, removed.fenced)
