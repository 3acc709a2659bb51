"""Rules for actions on an execution of n8n, or on its job: pure, from how the execution stands; and what n8n does next.

An execution that has ended is never failed, never run again, and never marked: these rules say so, and `n8n_guard`
checks it once more in the moment in which it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recovery.domain.actions.types import Action, ActionOptions
from recovery.domain.n8n.action_context import ExecutionActionContext
from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.comparison_context import GRACE
from recovery.domain.n8n.executions import LOST_ENDS, Execution, ExecutionStatus
from recovery.domain.n8n.lost_executions import LostExecutionRecord
from recovery.domain.n8n.rescue import RescueContext
from recovery.domain.stuck.types import VerdictKind

_SUCCEEDED = (ExecutionStatus.SUCCESS, ExecutionStatus.WARNING)
_SILENT = (
    "The status of its execution cannot be read from n8n's database ({why}): an execution that has ended would be "
    "{done}."
)
_UNCONFIGURED = "n8n's database is not configured, so it is unknown whether its execution has ended."
OVERWRITES = (
    "n8n's main process is notified and sets the execution to error, from n8n 2.41 on within 30 s. That "
    "overwrites the saved run data, so that nothing is left to run: to run it again, retry the execution first."
)
_AGAIN = (
    "n8n runs it as a new execution from the saved run data, which means from its start unless n8n saves progress: "
    "every step that already ran will run twice."
)
_NOT_RETRIED = "It is {status}: n8n retries only an execution that has started and is not running any more."
_RETRIED = "It was retried already, as execution {id}: what that one did would run twice."
_NEXT_OF_RETRY = "n8n creates a new execution that begins where this one failed."
_FROZEN = (
    "n8n has failed its job because its lock was not renewed, but it is not proven that its worker is gone: a worker "
    "that was only frozen runs it to its end."
)
_BY_LOCK = (
    "That its worker is gone is known by its lock alone: a worker that is only frozen would still run it to its end."
)
_MARKED = "n8n then leaves the row as it is: n8n sends no notification, no error workflow runs, and it can be retried."
_DOES: Mapping[Action, str] = {Action.FAIL: "failed", Action.REQUEUE: "run again", Action.RETRY: "run again"}


class N8nActionRefused(Exception):
    """Raised with the reason against an action; `needs`: the consent that would allow it."""

    def __init__(self, why: str, needs: str = "") -> None:
        super().__init__(f"{why} This needs {needs}." if needs else why)


def on_job(act: Action, standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    """Returns the risks of an action on a job of this execution; raises Against."""
    if act is Action.RELEASE and options.requeue:
        act = Action.REQUEUE
    if act in _DOES:
        return _on_lost(act, standing, options)
    if act is Action.REMOVE and standing.is_there and standing.status.is_going:
        return [
            f"Its execution {standing.id} stays {standing.status} in n8n: n8n is not notified that its job is gone."
        ]
    return []


def is_first_run(standing: ExecutionActionContext) -> bool:
    """Returns True if a job of this execution that is requeued would run for the first time."""
    execution = standing.execution
    return standing.is_known and execution is not None and execution.is_there and not execution.has_begun


def _on_lost(act: Action, standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    if not standing.is_configured:
        return [_UNCONFIGURED]
    if standing.silence:
        return [_unless(options.force, _SILENT.format(why=standing.silence.rstrip("."), done=_DOES[act]), "force")]
    if why := refusal_reason(act, standing.id, standing.execution):
        raise N8nActionRefused(why)
    return [OVERWRITES] if act is Action.FAIL else []


def refusal_reason(act: Action, id: str, execution: Execution | None) -> str:
    """Returns why a job of this execution is neither failed nor run again; "" when nothing is against it."""
    if execution is None or not execution.is_there:
        return f"Its execution {id} was deleted in n8n: remove the job."
    status = execution.status
    if status is ExecutionStatus.STRANGE:
        return f"Its execution {id} has a status of no supported n8n version: its job is not changed."
    if status is ExecutionStatus.WAITING:
        return f"Its execution {id} waits for a time or a webhook call, and resumes with a new job: remove this one."
    if status.is_terminal:
        instead = "retry the execution, and remove the job" if _is_rerun(act, status) else "remove the job"
        return f"Its execution {id} has ended ({status}): {instead}."
    return ""


def on_execution(act: Action, standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    """Returns the risks of an action on the execution itself; raises Against."""
    if not standing.is_there:
        raise N8nActionRefused("It was deleted in n8n.")
    return _RULES[act](standing, options)


def _retry_execution(standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    if standing.no_api:
        raise N8nActionRefused(standing.no_api)
    status = standing.status
    if status in _SUCCEEDED:
        raise N8nActionRefused(f"It succeeded ({status}): n8n does not retry a successful execution.")
    if status in (ExecutionStatus.WAITING, ExecutionStatus.STRANGE):
        raise N8nActionRefused(_NOT_RETRIED.format(status=status))
    risks = _remains(standing, options)
    if is_marked_first(standing, options):
        risks += _mark(standing, options)
    elif status is ExecutionStatus.NEW:
        raise N8nActionRefused(_NOT_RETRIED.format(status=status), "" if standing.claims else "mark")
    elif status.is_going:
        risks += _unheld(standing, options)
    if status is ExecutionStatus.ERROR:
        return [*risks, _NEXT_OF_RETRY]
    if is_first_run(standing):
        return [*risks, "None of its steps has run."]
    return [*risks, _unless(options.consent, _AGAIN, "consent")]


def _remains(standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    """Returns the risks if there is something to run, and it was not run again before; raises Against."""
    if standing.has_start is False:
        raise N8nActionRefused(
            "n8n has no saved run data for it: a retry would end immediately without doing anything."
        )
    risks = [] if standing.has_start else ["It is unknown whether n8n has saved run data for it."]
    if standing.retried_as:
        risks.append(_unless(options.force, _RETRIED.format(id=standing.retried_as), "force"))
    return risks


def is_marked_first(standing: ExecutionActionContext, options: ActionOptions) -> bool:
    """Returns True if a retry begins with the mark, and so only where no job is left that could run it."""
    return options.mark and standing.status.is_going


def _mark(standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    if standing.fixed:
        raise N8nActionRefused(standing.fixed)
    if not standing.status.is_going:
        raise N8nActionRefused(f"It is {standing.status}: only a new or running execution can be marked.")
    if standing.claims:
        job = standing.claims[0].job
        raise N8nActionRefused(f"The job {job.label} of {job.queue.label} exists for it: fail or remove that job.")
    return [*_alone(standing, options), _MARKED]


def _rescue(standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    """Returns the risks of a rescue: a second run begins only where the first is proven to be dead, and once."""
    rescue = standing.rescue or RescueContext()
    loss = rescue.loss
    if why := standing.no_api or rescue.no_write:
        raise N8nActionRefused(why)
    if loss is None:
        raise N8nActionRefused("It was not seen without its worker: there is nothing to rescue.")
    if again := loss.retried_as or rescue.retried_as:
        raise N8nActionRefused(f"It ran again already, as execution {again}.")
    if rescue.is_claimed:
        raise N8nActionRefused("A rescue of it has begun: check n8n for a retry of it, or try again in two minutes.")
    if standing.status is ExecutionStatus.NEW:
        raise N8nActionRefused("It never started: requeue its job, which runs it for the first time.")
    if standing.status.is_going:
        risks = _rescue_going(standing, rescue)
    elif standing.status in LOST_ENDS:
        risks = _rescue_ended(standing, rescue, loss, options)
    else:
        raise N8nActionRefused(f"It is {standing.status}: only an execution that lost its worker is rescued.")
    if loss.verdict is not VerdictKind.WORKER_LOST and (loss.is_proven or rescue.is_lost):
        risks = [*risks, _BY_LOCK]
    if rescue.note:
        return [*risks, f"Its steps may run twice: {rescue.note}"]
    return [*risks, _unless(options.consent, _AGAIN, "consent")]


def _rescue_going(standing: ExecutionActionContext, rescue: RescueContext) -> list[str]:
    """Returns the risks of a rescue before n8n overwrites the data."""
    if rescue.release is not N8nRelease.TWO:
        raise N8nActionRefused("Before n8n 2 a stalled check requeues its job: the execution would run twice.")
    if rescue.is_overwritten:
        raise N8nActionRefused(
            "n8n is overwriting its data right now: try again in some seconds, its copy is used then."
        )
    if standing.claims is None:
        raise N8nActionRefused("Not all of n8n's jobs could be checked: one of it may run.")
    if any(not claim.is_active for claim in standing.claims):
        raise N8nActionRefused("Its job waits: the next free worker runs it.")
    if standing.claims and not rescue.is_lost:
        raise N8nActionRefused("It is not proven yet that its worker is gone: try again in some seconds.")
    if not standing.claims and not (rescue.loss and rescue.loss.is_proven):
        raise N8nActionRefused(
            "Its job is gone, and it was not proven before that its worker is: n8n may still save its result."
        )
    unknown = "It is unknown whether n8n has saved run data for it." if rescue.is_overwritten is None else ""
    return [*filter(None, [unknown]), "n8n sets this execution to error when it notices that its worker is gone."]


def _rescue_ended(
    standing: ExecutionActionContext, rescue: RescueContext, loss: LostExecutionRecord, options: ActionOptions
) -> list[str]:
    """Returns the risks of a rescue after the execution has ended, and n8n may have overwritten its data."""
    if standing.claims is None:
        raise N8nActionRefused("Not all of n8n's jobs could be checked: one of it may run.")
    if any(not claim.is_active for claim in standing.claims) or (standing.claims and not rescue.is_lost):
        raise N8nActionRefused("A job exists for it, which a worker may run: remove or cancel that job first.")
    if rescue.is_overwritten is not False and not loss.has_copy:
        raise N8nActionRefused(f"There is no copy of its data. {loss.copy_trouble}".rstrip())
    if loss.is_proven or rescue.is_lost:
        return ["Its data is restored from the copy, and n8n retries it."] if rescue.is_overwritten else []
    return [_unless(options.force, _FROZEN, "force")]


_RULES: Mapping[Action, Callable[[ExecutionActionContext, ActionOptions], list[str]]] = {
    Action.RETRY_EXECUTION: _retry_execution,
    Action.MARK: _mark,
    Action.RESCUE: _rescue,
}


def _unheld(standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    """Returns the risks for an execution that counts as running, if no worker runs it."""
    if not standing.claims:
        return _alone(standing, options)
    if any(not claim.is_active for claim in standing.claims):
        raise N8nActionRefused("Its job waits: the next free worker runs it.")
    if any(claim.is_locked for claim in standing.claims):
        raise N8nActionRefused("A worker runs it: cancel its job first.")
    if not standing.is_proven:
        raise N8nActionRefused(
            "Its job has no lock, but that is not yet proof: try again after the next stalled check."
        )
    return ["This execution stays as it is: fail its job afterwards, before a worker's stalled check requeues it."]


def _alone(standing: ExecutionActionContext, options: ActionOptions) -> list[str]:
    """Returns the risks for an execution that has long been without a job, and that no process runs without one."""
    if standing.claims is None:
        return [_unless(options.force, "Not all of n8n's jobs could be checked: one may exist for it.", "force")]
    seen_for = standing.alone_for
    if seen_for < GRACE:
        left = -(-(GRACE - seen_for) // 1000)
        raise N8nActionRefused(
            f"It was seen without a job for {seen_for // 1000} s. A worker may still be writing its "
            f"result: n8n itself waits {GRACE // 1000} s. Try again in {left} s."
        )
    execution = standing.execution
    if execution is None:
        return []
    if execution.has_a_job:
        why = standing.workers.may_run(execution.began_at) if execution.has_begun else ""
        return [_unless(options.force, why, "force")] if why else []
    if standing.is_listed:
        return []
    where = "in its parent's process" if execution.is_sub_workflow else "in its main process"
    risk = f"It is of the mode {execution.mode}, which n8n runs without a job, {where}: it may be running there."
    return [_unless(options.force, risk, "force")]


def _is_rerun(act: Action, status: ExecutionStatus) -> bool:
    return act is not Action.FAIL and status not in _SUCCEEDED


def _unless(is_given: bool, risk: str, needed: str) -> str:
    """Returns the risk if it was accepted, else raises Against."""
    if not is_given:
        raise N8nActionRefused(risk, needed)
    return risk
