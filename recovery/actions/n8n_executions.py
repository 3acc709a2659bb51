"""The operator of n8n's executions: the retry that n8n is asked for, and the mark in its database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recovery.actions import n8n_rescue, n8n_retry
from recovery.actions.n8n_rescue import RescuePlace
from recovery.backends.base import Target
from recovery.connections.registry import registry
from recovery.connections.sql import SqlWire
from recovery.domain.acting import Act, ActionEffects, Done, Kept, Options, Outcome, Removed, Seen
from recovery.domain.counts import Flavour
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.standing import state_of
from recovery.errors import StatementRefused, Unsupported
from recovery.n8n import executions, marking
from recovery.n8n.public import Retry
from recovery.n8n.tables import Tables
from recovery.reads.n8n import targets

OWN = frozenset({Act.RELAUNCH, Act.MARK, Act.RESCUE})
_CHUNKS = {Act.RELAUNCH: 5, Act.RESCUE: 5, Act.MARK: 100}  # a retry may take as long as n8n needs to answer
_MARKED = "Its row is now marked as crashed."
_REFUSED = "That action is for jobs: an n8n execution can be relaunched, rescued or marked as crashed."
_GONE = "There is no such execution (any more)."
_MOVED = "It is {status} now."
_STARTED = "It was started again since it was shown."


class ExecutionOperator:
    """Operator of n8n's executions. Stateless: which n8n it is comes with the target."""

    def refusals(self, flavour: Flavour) -> Mapping[Act, str]:
        return {act: _REFUSED for act in Act if act not in OWN}

    def chunk(self, act: Act) -> int:
        return _CHUNKS.get(act, 1)

    def effects(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options) -> Mapping[str, ActionEffects]:
        return {}

    def on_jobs(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
        if act not in OWN:
            raise Unsupported(_REFUSED)
        n8n = targets.installation(registry(), target.ref)
        wire, known = targets.database(registry(), n8n)
        found = executions.of_ids(wire, known, [job.id for job in jobs])
        told: list[Done] = []
        for job in jobs:
            execution = found.get(job.id)
            refused = _moved(job, execution)
            if refused or execution is None:
                told.append(refused or _missing(job))
            elif act is Act.MARK:
                told.append(_mark(wire, known, execution))
            elif act is Act.RESCUE:
                told.append(n8n_rescue.rescue(RescuePlace(n8n, wire, known), execution, latest=options.latest, now=now))
            else:
                retry = Retry(n8n, job.id, latest=options.latest)
                told.append(_again(wire, known, retry, job, execution if options.mark else None))
        return tuple(told)

    def on_queue(self, act: Act, target: Target, options: Options, now: int) -> Done:
        raise Unsupported(_REFUSED)

    def take_away(self, act: Act, target: Target, options: Options, now: int, *, budget: int) -> Removed:
        raise Unsupported(_REFUSED)

    def put_back(self, target: Target, kept: Kept, now: int) -> Done:
        raise Unsupported(_REFUSED)

    def fence(self, target: Target) -> None:
        """Does nothing: n8n's rows have no fence, and each is changed only as it is then."""


def _moved(job: Seen, execution: Execution | None) -> Done | None:
    """Returns the refusal for an execution that is not as it was shown, else None."""
    if execution is None or not execution.is_there:
        return _missing(job)
    if state_of(execution.status) is not job.state:
        return _refused(job.id, execution, _MOVED.format(status=execution.status))
    return None if execution.started_at == job.processed_at else _refused(job.id, execution, _STARTED)


def _mark(wire: SqlWire, known: Tables, execution: Execution) -> Done:
    if why := marking.refusal(wire, known):
        return _refused(execution.id, execution, why)
    try:
        now = marking.mark(wire, known, execution)
    except StatementRefused as error:
        return _refused(execution.id, execution, f"The database refused it: {error.reason}")
    if now is None:
        return Done(execution.id, Outcome.DONE, _MARKED)
    if not now.is_there:
        return Done(execution.id, Outcome.MISSING, _GONE)
    return _refused(execution.id, now, _MOVED.format(status=now.status))


def _again(wire: SqlWire, known: Tables, retry: Retry, job: Seen, first: Execution | None) -> Done:
    """Relaunches an execution. `first`: the execution that is marked before, if it still counts as going."""
    if first is None or not first.status.is_going:
        return n8n_retry.retry(wire, known, retry, job.state).done
    marked = _mark(wire, known, first)
    if marked.outcome is not Outcome.DONE:
        return marked
    done = n8n_retry.retry(wire, known, retry, job.state).done
    now = done.state if done.outcome is Outcome.DONE else state_of(ExecutionStatus.CRASHED)
    return replace(done, why=f"{_MARKED} {done.why}", state=now)


def _missing(job: Seen) -> Done:
    return Done(job.id, Outcome.MISSING, _GONE)


def _refused(id: str, execution: Execution, why: str) -> Done:
    return Done(id, Outcome.REFUSED, why, state_of(execution.status))
