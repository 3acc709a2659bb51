"""The operator of n8n's executions: the retry that n8n is asked for, and the mark in its database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recovery.backends.base import Target
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
from recovery.domain.queues.types import LibraryVersion
from recovery.errors import StatementRefused, Unsupported
from recovery.n8n import action_targets, rescue_execution, retry_execution
from recovery.n8n.api_client import RetryRequest
from recovery.n8n.database import executions, mark_crashed
from recovery.n8n.database.schema import N8nTables
from recovery.n8n.rescue_execution import RescueTarget
from recovery.stores.registry import registry
from recovery.stores.sql.sql_client import SqlClient

OWN = frozenset({Action.RELAUNCH, Action.MARK, Action.RESCUE})
_CHUNKS = {Action.RELAUNCH: 5, Action.RESCUE: 5, Action.MARK: 100}  # a retry may take as long as n8n needs to answer
_MARKED = "Its row is now marked as crashed."
_REFUSED = "That action is for jobs: an n8n execution can be relaunched, rescued or marked as crashed."
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
                told.append(
                    rescue_execution.rescue(RescueTarget(n8n, wire, known), execution, latest=options.latest, now=now)
                )
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
    """Relaunches an execution. `first`: the execution that is marked before, if it still counts as going."""
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
