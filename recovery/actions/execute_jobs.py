"""Executes an action on some jobs of one queue, chunk by chunk: look, record the intent, act, record the outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import redis

from recovery.actions import precheck, undo_store
from recovery.actions.audit import audit_log, entry_body
from recovery.actions.precheck import ActionContext, PrecheckedJob
from recovery.actions.undo_store import UndoCopyResult
from recovery.domain.actions.types import (
    Action,
    ActionCommand,
    ActionOptions,
    ExpectedJob,
    JobResult,
    Outcome,
    ScriptOutcome,
)
from recovery.domain.jobs import JobRow
from recovery.errors import AccessDenied, ConfigError, Fenced, NotRecorded, StoreError, Unsupported
from recovery.hooks import outbox
from recovery.reads.scanners import rights_refusals
from recovery.stores.registry import registry

log = logging.getLogger(__name__)

LOOKED_AFTER = 10  # jobs read again afterwards; for more, the entry holds the state in which the script left them
MAYBE_DONE = "It may or may not have happened: {error}"
UNTOLD = "Its result could not be written to the audit."
_IN_SCRIPT = "script"  # Redis names the script in an error that happened inside of it
_NO_RIGHT = "no permissions to"  # Redis's words for a command that the user may not call, also inside of a script
_NOT_TRIED = "Not tried: {error}"

Told = Callable[[int], None]
Results = tuple[JobResult, ...]


def _nothing(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class ActionCallbacks:
    """Functions that write in the same transactions as the entries of the audit.

    `intended` gets the number of the intent, before anything is done; what it raises takes the intent back and ends the
    action. `concluded` gets the results of all jobs of the chunk, and raises nothing but errors of the database.
    """

    intended: Callable[[int], None] = _nothing
    concluded: Callable[[Results], None] = _nothing


NO_CALLBACKS = ActionCallbacks()


def perform(order: ActionCommand, context: ActionContext, callbacks: ActionCallbacks = NO_CALLBACKS) -> Results:
    """Performs the action on all jobs. A later chunk's error is the result of jobs not tried; the first's is raised.

    Raises Fenced from any chunk, with all results until then.
    """
    results: list[JobResult] = []
    size = context.operator.chunk(order.act)
    for start in range(0, len(order.jobs), size):
        try:
            results += chunk(order, context, order.jobs[start : start + size], callbacks)
        except Fenced as error:
            rest = _untried(order.jobs[start + size :], error)
            raise Fenced(error.met, (*results, *error.results, *rest)) from None
        except (StoreError, NotRecorded) as error:
            if not start:
                raise
            results += _untried(order.jobs[start:], error)
            break
    return tuple(results)


def _untried(jobs: Sequence[ExpectedJob], error: Exception) -> list[JobResult]:
    why = _NOT_TRIED.format(error=error)
    return [JobResult(seen.id, Outcome.REFUSED, why) for seen in jobs]


def chunk(
    order: ActionCommand, context: ActionContext, jobs: Sequence[ExpectedJob], callbacks: ActionCallbacks = NO_CALLBACKS
) -> Results:
    """Performs the action on at most as many jobs as the operator takes at once; returns a result each, in order.

    Raises NotRecorded and StoreError only while nothing was done, and Fenced with what was.
    """
    return perform_prechecked(order, context, precheck.check_jobs(order, context, jobs, insists=True), callbacks)


def perform_prechecked(
    order: ActionCommand,
    context: ActionContext,
    looked: Sequence[PrecheckedJob],
    callbacks: ActionCallbacks = NO_CALLBACKS,
) -> Results:
    """Performs the action on jobs that were looked at just now."""
    allowed = tuple(one.judgement.seen for one in looked if one.judgement.is_allowed and one.judgement.seen)
    refused = {one.judgement.id: _refusal(one) for one in looked if not one.judgement.is_allowed}
    chunk = _Chunk(order, context, looked, allowed, refused, callbacks)
    return chunk.carry_out() if allowed else chunk.results({})


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Jobs that were judged, and what becomes of them."""

    order: ActionCommand
    context: ActionContext
    looked: Sequence[PrecheckedJob]
    allowed: Sequence[ExpectedJob]
    refused: dict[str, JobResult]
    callbacks: ActionCallbacks

    def carry_out(self) -> Results:
        order, context = self.order, self.context
        options = precheck.options(order, self.looked)
        heard = outbox.prepare_calls(registry().config, order, context.queue, self.allowed)
        body, ids = entry_body.intent(order, options, self.looked), [seen.id for seen in self.allowed]
        intent = audit_log.write_intent(order, body, ids, self.callbacks.intended)
        context = precheck.with_follow_up_reads(order, context, self.allowed) if len(ids) <= LOOKED_AFTER else context
        try:
            done = _do(order.act, context, self.allowed, options)
        except Exception as error:
            record_outcome(order, intent, _all(self.allowed, Outcome.UNKNOWN, MAYBE_DONE.format(error=repr(error))))
            raise
        results = self._concluded(intent, done, _after(order, context, done))
        outbox.enqueue_calls(heard, order, done)
        if fenced := [one.fenced for one in done if one.fenced is not None]:
            raise Fenced(fenced[0], results)
        return results

    def _concluded(self, intent: int, done: Sequence[ScriptOutcome], after: dict[str, JobRow]) -> Results:
        taken = [one.kept for one in done if one.kept]
        holding = undo_store.save_copies(intent, self.order.queue, taken, precheck.now()) if taken else UndoCopyResult()

        def results(number: int | None) -> Results:
            return self.results({one.id: _result(one, number, holding) for one in done})

        is_fenced = any(one.fenced is not None for one in done)
        also = None if is_fenced else lambda number: self.callbacks.concluded(results(number))
        return results(record_outcome(self.order, intent, done, holding, after, also))

    def results(self, done: dict[str, JobResult]) -> Results:
        """Returns one result for each job, in their order."""
        known = self.refused | done
        return tuple(known[one.judgement.id] for one in self.looked)


def _do(
    act: Action, context: ActionContext, jobs: Sequence[ExpectedJob], options: ActionOptions
) -> tuple[ScriptOutcome, ...]:
    """Makes the one call that changes something."""
    try:
        return context.operator.on_jobs(act, context.target, jobs, options, precheck.now())
    except Unsupported as error:
        return _all(jobs, Outcome.REFUSED, str(error))
    except (StoreError, redis.RedisError) as error:
        if _is_denied(error) and context.target.epoch is not None:
            _note(context, error)
        return _all(jobs, *outcome_of_error(error))


def outcome_of_error(error: Exception) -> tuple[Outcome, str]:
    """A script that fails half way is not rolled back, and one that never answered may have run.

    Only an ACL that does not let us call scripts at all has surely kept everything as it was.
    """
    if _is_denied(error) and _IN_SCRIPT not in str(error):
        return Outcome.REFUSED, f"The store's ACL does not allow it: {error}"
    return Outcome.UNKNOWN, MAYBE_DONE.format(error=error)


def _is_denied(error: Exception) -> bool:
    return isinstance(error, (AccessDenied, redis.exceptions.NoPermissionError)) or _NO_RIGHT in str(error)


def _note(context: ActionContext, error: Exception) -> None:
    """Records the refusal, as predictions of scanners read it: a person touches no fence, and may be allowed more."""
    why = error.reason if isinstance(error, StoreError) else str(error)
    with suppress(ConfigError, StoreError):
        rights_refusals.note(registry().state(), context.target.ref, why, was_tried=True)


def record_outcome(  # noqa: PLR0917
    order: ActionCommand,
    intent: int,
    done: Sequence[ScriptOutcome],
    holding: UndoCopyResult = UndoCopyResult(),  # noqa: B008 -- frozen
    after: dict[str, JobRow] | None = None,
    also: Told | None = None,
) -> int | None:
    """Writes the outcome; returns its number, None if the audit takes it no more: the action is done all the same."""
    body = entry_body.outcome(done, holding.digests, after or {})
    if holding.trouble:
        body["undo"] = holding.trouble
    try:
        return audit_log.write_outcome(intent, order, body, {one.id: one.outcome for one in done}, also)
    except NotRecorded as error:
        log.error("the outcome of #%d could not be written to the audit: %s", intent, error)  # noqa: TRY400 -- told, not traced
        return None


def _after(order: ActionCommand, context: ActionContext, done: Sequence[ScriptOutcome]) -> dict[str, JobRow]:
    """Reads the changed jobs once more; returns nothing when there are many, or when the store does not answer."""
    changed = [one for one in done if one.outcome is Outcome.DONE and one.state is not None]
    if not changed or len(changed) > LOOKED_AFTER:
        return {}
    known = context.target.following.rows() if context.target.following else {}
    found = {one.id: row for one in changed if (row := known.get(one.id))}
    with suppress(StoreError):
        wanted = [(one.id, one.state) for one in changed if one.state is not None and one.id not in known]
        found |= (
            {row.id: row for row in context.queue.rows(wanted, by_script=order.epoch is None) if row is not None}
            if wanted
            else {}
        )
    return found


def _all(jobs: Sequence[ExpectedJob], outcome: Outcome, why: str) -> tuple[ScriptOutcome, ...]:
    return tuple(ScriptOutcome(seen.id, outcome, why) for seen in jobs)


def _refusal(one: PrecheckedJob) -> JobResult:
    return JobResult(one.judgement.id, one.judgement.outcome, one.judgement.why)


def _result(done: ScriptOutcome, number: int | None, holding: UndoCopyResult) -> JobResult:
    can_restore = done.id in holding.ids
    why = " ".join(_remarks(done, number, holding))
    return JobResult(done.id, done.outcome, why, number, can_restore, done.is_untried, done.affected)


def _remarks(done: ScriptOutcome, number: int | None, holding: UndoCopyResult) -> Iterator[str]:
    if done.why:
        yield done.why
    if number is None:
        yield UNTOLD
    if done.kept and done.id not in holding.ids:
        yield f"It cannot be restored. {holding.trouble}".strip()
