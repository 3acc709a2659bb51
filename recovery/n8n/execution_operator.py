"""The operator of n8n's executions: the retry that n8n is asked for, and the mark in its database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.db import Error

from recovery.backends.base import Target
from recovery.config import N8nInstallation
from recovery.domain.actions.types import (
    Action,
    ActionEffects,
    ActionOptions,
    ExpectedJob,
    Outcome,
    RemovalStep,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.n8n.action_context import state_of
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.queues.types import LibraryVersion
from recovery.errors import AccessDenied, StatementRefused, StoreError, Unsupported
from recovery.n8n import action_targets, lost_executions, retry_execution
from recovery.n8n import copy_store as copies
from recovery.n8n.api_client import RetryRequest
from recovery.n8n.database import executions, mark_crashed, row_lock, run_data
from recovery.n8n.database.schema import N8nTables
from recovery.n8n.retry_execution import ExecutionRetryOutcome
from recovery.stores.registry import registry
from recovery.stores.sql.sql_client import SqlClient

# -- rescue execution
# Runs an execution of n8n again whose worker was lost: before n8n overwrites its data, or from the kept copy. One
# rescue at a time: the process that begins one claims the row of the history first, with a conditional UPDATE. 1.
# While the execution has not ended, its row in n8n's database is locked, looked at once more, and n8n is asked to
# retry it. n8n's main, and a worker that was only frozen, wait for that lock before they write how it ended: the
# retry reads the data as it was. 2. After n8n has overwritten it, the copy is written back in one transaction that
# looks at the row again, and then n8n is asked. Where that fails the data stays restored, and n8n's own retry works
# too.


_UNKNOWN_LOSS = "The history of lost executions cannot be read, or does not have it."
_TAKEN = "Another rescue of it has begun."
_RESCUE_MOVED = "It is {status} now."
_WIPED = "n8n has overwritten its data: rescue it again, its copy is used then."
_SEALED = "Its copy cannot be decrypted: it was made with another UNSTALL_SECRET_KEY."
_NO_COPY = "There is no copy of its data (any more)."
_NO_LOCK = "Our user may not lock n8n's executions: GRANT UPDATE (status) on them (docs/n8n.md)."
_RESTORED = "Its data was restored from the copy."


@dataclass(frozen=True, slots=True)
class RescueTarget:
    """An installation and its database."""

    n8n: N8nInstallation
    wire: SqlClient
    known: N8nTables


def rescue(place: RescueTarget, execution: Execution, *, latest: bool, now: int) -> ScriptOutcome:
    """Rescues an execution; returns the result. Raises StoreError while nothing was begun."""
    try:
        loss = lost_executions.newest_by_execution(place.n8n.name, [execution.id]).get(execution.id)
        is_ours = loss is not None and copies.claim(loss, now)
    except Error:
        return _rescue_refused(execution, _UNKNOWN_LOSS)
    if loss is None or not is_ours:
        return _rescue_refused(execution, _UNKNOWN_LOSS if loss is None else _TAKEN)
    try:
        found = (
            _going(place, execution, latest) if execution.status.is_going else _ended(place, execution, loss, latest)
        )
    except StoreError:  # raised while nothing was begun; after another error the claim stays until its result is known
        copies.release(loss.number)
        raise
    _conclude(loss, execution, found, now)
    return found.done


def _going(place: RescueTarget, execution: Execution, latest: bool) -> ExecutionRetryOutcome:
    """Rescues an execution that has not ended: n8n reads its data while our lock keeps it from being overwritten."""
    wire, known = place.wire, place.known
    if not row_lock.can_hold(wire, known):
        return ExecutionRetryOutcome(_rescue_refused(execution, _NO_LOCK))
    retried: ExecutionRetryOutcome | None = None
    try:
        with row_lock.locked_executions(wire, known, [execution.id]) as found:
            held = found.get(execution.id)
            if held is None or not held.is_there or not _is_same(held, execution):
                return ExecutionRetryOutcome(
                    _rescue_refused(held or execution, _RESCUE_MOVED.format(status=held.status if held else "gone"))
                )
            if run_data.is_overwritten(wire, place.n8n, execution.id):
                return ExecutionRetryOutcome(_rescue_refused(execution, _WIPED))
            retried = retry_execution.retry(wire, known, _asked(place, execution, latest), state_of(execution.status))
    except StoreError:
        if retried is None:
            raise  # else only the lock was lost: nothing was written under it
    return retried


def _ended(place: RescueTarget, execution: Execution, loss: LostExecutionRecord, latest: bool) -> ExecutionRetryOutcome:
    """Rescues an execution that has ended: from the copy, unless n8n still has its data."""
    is_restored = False
    if run_data.is_overwritten(place.wire, place.n8n, execution.id) is not False:
        if why := _restore(place, execution, loss):
            return ExecutionRetryOutcome(_rescue_refused(execution, why))
        is_restored = True
    found = retry_execution.retry(place.wire, place.known, _asked(place, execution, latest), state_of(execution.status))
    said = f"{_RESTORED} {found.done.why}" if is_restored else found.done.why
    return ExecutionRetryOutcome(ScriptOutcome(execution.id, found.done.outcome, said, found.done.state), found.made)


def _restore(place: RescueTarget, execution: Execution, loss: LostExecutionRecord) -> str:
    """Restores the data from the copy; returns why it was not restored, "" when it was."""
    if not loss.has_copy:
        return _NO_COPY
    text = copies.load_copy(loss)
    if text is None:
        return _SEALED
    try:
        return run_data.restore(place.wire, place.known, place.n8n, execution, text)
    except (AccessDenied, StatementRefused) as error:
        return f"The database refused it: {error.reason}"


def _conclude(loss: LostExecutionRecord, execution: Execution, found: ExecutionRetryOutcome, now: int) -> None:
    """Records that it runs again, or that nothing was begun. While that is unsure, the claim stays."""
    if found.made:
        outcome = LostExecutionOutcome.RESCUED if execution.status.is_going else LostExecutionOutcome.RETRIED
        copies.record_outcome(loss, outcome, now, retried_as=found.made)
    elif found.done.outcome is Outcome.REFUSED:
        copies.release(loss.number)


def _asked(place: RescueTarget, execution: Execution, latest: bool) -> RetryRequest:
    return RetryRequest(place.n8n, execution.id, latest=latest)


def _is_same(held: Execution, execution: Execution) -> bool:
    return (held.status, held.started_at) == (execution.status, execution.started_at)


def _rescue_refused(execution: Execution, why: str) -> ScriptOutcome:
    return ScriptOutcome(execution.id, Outcome.REFUSED, why, state_of(execution.status))


# -- execution operator


OWN = frozenset({Action.RETRY_EXECUTION, Action.MARK, Action.RESCUE})
_CHUNKS = {
    Action.RETRY_EXECUTION: 5,
    Action.RESCUE: 5,
    Action.MARK: 100,
}  # a retry may take as long as n8n needs to answer
_MARKED = "Its row is now marked as crashed."
_REFUSED = "That action is for jobs: an n8n execution can be retried, rescued or marked as crashed."
_GONE = "There is no such execution (any more)."
_MOVED = "It is {status} now."
_STARTED = "It was started again since it was shown."


class ExecutionOperator:
    """Operator of n8n's executions. Stateless: which n8n it is comes with the target."""

    def refusals(self, flavour: LibraryVersion) -> Mapping[Action, str]:
        return {act: _REFUSED for act in Action if act not in OWN}

    def chunk(self, act: Action) -> int:
        return _CHUNKS.get(act, 1)

    def effects(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions
    ) -> Mapping[str, ActionEffects]:
        return {}

    def on_jobs(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
    ) -> tuple[ScriptOutcome, ...]:
        if act not in OWN:
            raise Unsupported(_REFUSED)
        n8n = action_targets.installation(registry(), target.ref)
        wire, known = action_targets.database(registry(), n8n)
        found = executions.fetch_by_ids(wire, known, [job.id for job in jobs])
        told: list[ScriptOutcome] = []
        for job in jobs:
            execution = found.get(job.id)
            refused = _moved(job, execution)
            if refused or execution is None:
                told.append(refused or _missing(job))
            elif act is Action.MARK:
                told.append(_mark(wire, known, execution))
            elif act is Action.RESCUE:
                told.append(rescue(RescueTarget(n8n, wire, known), execution, latest=options.latest, now=now))
            else:
                retry = RetryRequest(n8n, job.id, latest=options.latest)
                told.append(_again(wire, known, retry, job, execution if options.mark else None))
        return tuple(told)

    def on_queue(self, act: Action, target: Target, options: ActionOptions, now: int) -> ScriptOutcome:
        raise Unsupported(_REFUSED)

    def take_away(self, act: Action, target: Target, options: ActionOptions, now: int, *, budget: int) -> RemovalStep:
        raise Unsupported(_REFUSED)

    def put_back(self, target: Target, kept: UndoCopy, now: int) -> ScriptOutcome:
        raise Unsupported(_REFUSED)

    def fence(self, target: Target) -> None:
        """Does nothing: n8n's rows have no fence, and each is changed only as it is then."""


def _moved(job: ExpectedJob, execution: Execution | None) -> ScriptOutcome | None:
    """Returns the refusal for an execution that is not as it was shown, else None."""
    if execution is None or not execution.is_there:
        return _missing(job)
    if state_of(execution.status) is not job.state:
        return _refused(job.id, execution, _MOVED.format(status=execution.status))
    return None if execution.started_at == job.processed_at else _refused(job.id, execution, _STARTED)


def _mark(wire: SqlClient, known: N8nTables, execution: Execution) -> ScriptOutcome:
    if why := mark_crashed.refusal(wire, known):
        return _refused(execution.id, execution, why)
    try:
        now = mark_crashed.mark(wire, known, execution)
    except StatementRefused as error:
        return _refused(execution.id, execution, f"The database refused it: {error.reason}")
    if now is None:
        return ScriptOutcome(execution.id, Outcome.DONE, _MARKED)
    if not now.is_there:
        return ScriptOutcome(execution.id, Outcome.MISSING, _GONE)
    return _refused(execution.id, now, _MOVED.format(status=now.status))


def _again(
    wire: SqlClient, known: N8nTables, retry: RetryRequest, job: ExpectedJob, first: Execution | None
) -> ScriptOutcome:
    """Retries an execution. `first`: the execution that is marked before, if it still counts as going."""
    if first is None or not first.status.is_going:
        return retry_execution.retry(wire, known, retry, job.state).done
    marked = _mark(wire, known, first)
    if marked.outcome is not Outcome.DONE:
        return marked
    done = retry_execution.retry(wire, known, retry, job.state).done
    now = done.state if done.outcome is Outcome.DONE else state_of(ExecutionStatus.CRASHED)
    return replace(done, why=f"{_MARKED} {done.why}", state=now)


def _missing(job: ExpectedJob) -> ScriptOutcome:
    return ScriptOutcome(job.id, Outcome.MISSING, _GONE)


def _refused(id: str, execution: Execution, why: str) -> ScriptOutcome:
    return ScriptOutcome(id, Outcome.REFUSED, why, state_of(execution.status))
