"""Rules that decide whether a job and its execution contradict each other. They take one pair at a time and are cheap:
there may be many.

What is younger than the grace is no contradiction: n8n writes one store after the other. Sentences are made later, for
the pairs that are shown (`telling`).
"""

from __future__ import annotations

from recovery.domain.jobs import JobState
from recovery.domain.n8n.comparison import MismatchFinding
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import UNCHECKED_STATES, N8nJob
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.domain.time_units import MINUTE

RESUMED_WITHIN = 2 * MINUTE  # n8n's main looks every minute for what is to be resumed within the next 70 s
_ENDED_WELL = (ExecutionStatus.SUCCESS, ExecutionStatus.WARNING)


def mismatch_of_job(claim: N8nJob, execution: Execution | None, around: ComparisonContext) -> MismatchFinding | None:
    """Judges a live job against its execution; None: n8n's database has no such row."""
    if execution is None or not execution.is_there:
        repair = MismatchRepair.CANCEL if claim.is_locked else MismatchRepair.REMOVE
        return MismatchFinding(MismatchKind.DELETED, repair)
    status = execution.status
    if status is ExecutionStatus.STRANGE:
        return None
    if status.is_terminal:
        return _grown(_ended(claim, execution), around)
    if claim.is_orphaned:
        # Neither store says since when a job is orphaned, or left by a parked execution: only a second comparison can.
        kind = MismatchKind.LEFT if status is ExecutionStatus.WAITING else MismatchKind.ORPHANED
        return MismatchFinding(kind, repair_of_orphan(execution))
    if status.is_going and _is_unlooked(claim, around):
        repair = MismatchRepair.NONE if claim.state is JobState.DELAYED else MismatchRepair.RESUME
        return _grown(MismatchFinding(MismatchKind.PAUSED, repair, claim.added_at), around)
    return None


def repair_of_orphan(execution: Execution | None) -> MismatchRepair:
    """Returns the repair of an active job without a lock. It is removed when its execution has ended or resumes with a
    new job, requeued when its execution has not begun, and failed when part of it has run already.
    """
    if execution is None or not execution.is_there or execution.status.is_terminal:
        return MismatchRepair.REMOVE
    if execution.status is ExecutionStatus.WAITING:
        return MismatchRepair.REMOVE
    return MismatchRepair.FAIL if execution.has_begun else MismatchRepair.REQUEUE


def mismatch_of_execution(
    execution: Execution, kept: N8nJob | None, around: ComparisonContext
) -> MismatchFinding | None:
    """Judges an execution that has no live job. `kept` is a job of it that has ended and still exists."""
    if execution.is_there and execution.status is ExecutionStatus.WAITING:
        return _overdue(execution, around)
    if not (execution.is_there and execution.status.is_going and execution.has_a_job):
        return None
    if _is_new(execution, around):
        return None
    # A job that is gone leaves nothing behind: only a second comparison knows since when it is missing.
    repair = MismatchRepair.CHECK if may_run(execution, around) and kept is None else MismatchRepair.MARK
    return _grown(MismatchFinding(MismatchKind.NO_JOB, repair, kept.finished_at if kept else None), around)


def _overdue(execution: Execution, around: ComparisonContext) -> MismatchFinding | None:
    until = execution.wait_until
    is_over = until is not None and around.now - until >= RESUMED_WITHIN
    return MismatchFinding(MismatchKind.OVERDUE, MismatchRepair.CHECK_MAIN, until) if is_over else None


def may_run(execution: Execution, around: ComparisonContext) -> str:
    """Returns why a worker may still run an execution whose job is gone; "" when none can."""
    return around.worker_ages.may_run(execution.began_at) if execution.has_begun else ""


def mismatch_of_sub_workflow(
    execution: Execution, around: ComparisonContext, parent: str = ""
) -> MismatchFinding | None:
    """Judges a sub-workflow whose parent is lost, or whose every possible parent is, as the caller has found out."""
    if _is_new(execution, around):
        return None
    repair = MismatchRepair.CHECK if parent and may_run(execution, around) else MismatchRepair.MARK
    return MismatchFinding(MismatchKind.DEAD_PARENT, repair, parent=parent)


def _ended(claim: N8nJob, execution: Execution) -> MismatchFinding:
    if claim.is_locked and execution.status not in _ENDED_WELL:
        since = _latest(execution.stopped_at, claim.processed_at)
        if claim.is_aborting:
            return MismatchFinding(MismatchKind.STOPPING, MismatchRepair.NONE, since)
        return MismatchFinding(MismatchKind.UNSEEN, MismatchRepair.CANCEL, since)
    repair = (
        MismatchRepair.NONE if claim.is_locked else MismatchRepair.REMOVE
    )  # to fail it would make main overwrite the status
    since = None if claim.is_orphaned else _latest(execution.stopped_at, claim.added_at)
    return MismatchFinding(MismatchKind.LEFT, repair, since)


def _is_new(execution: Execution, around: ComparisonContext) -> bool:
    return execution.began_at is not None and around.now - execution.began_at < around.grace


def _is_unlooked(claim: N8nJob, around: ComparisonContext) -> bool:
    return not claim.is_active and (claim.state in UNCHECKED_STATES or claim.job.queue in around.paused)


def _grown(finding: MismatchFinding, around: ComparisonContext) -> MismatchFinding | None:
    is_young = finding.since is not None and around.now - finding.since < around.grace
    return None if is_young else finding


def _latest(one: int | None, other: int | None) -> int | None:
    """Returns the time since which both have been as they are, as far as it is known."""
    return other if one is None else one if other is None else max(one, other)
