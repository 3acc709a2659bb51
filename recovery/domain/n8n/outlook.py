"""Sentences that say what n8n does by itself with a job and an execution that contradict each other.
`domain/stuck/outlook.py` says what the library does with the job, when and by whom; what n8n makes of it is added here.

Read in n8n's sources from 1.0 to 2.41: its recovery check takes the newest executions that are new or running, and
marks those crashed whose job is neither active nor waiting. A worker that takes a job removes it when its execution is
crashed, fails it when there is no execution, and runs it in every other case, whatever the status is.
"""

from __future__ import annotations

from recovery.domain.jobs import JobRow
from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.stuck.context import LocklessObservation
from recovery.domain.stuck.outlook import outlook_of_job, outlook_text
from recovery.domain.stuck.types import VerdictKind

UNSEEN = "It runs to its end: its effects stand, whatever status its execution has."
STOPPING = (
    "The job is removed when the running step returns. A worker that missed the abort runs the next step too: if it "
    "goes on, restart that worker."
)
OVERDUE = (
    "It stays as it is until n8n's leading main process resumes it, which looks for what is due every minute while it "
    "runs."
)
_OF_ORPHANS = {
    True: "Its main process is notified, and the execution becomes an error.",
    False: "The workflow then starts from its beginning.",
    None: "Before n8n 2.0 it is requeued once, and the workflow runs again from its start.",
}
_LOOK = "at its next recovery check, every 3 hours by default and whenever its main process starts"


def orphan_outlook(claim: N8nJob, around: ComparisonContext) -> str:
    if around.near(claim.job.queue).watchdog_is_dead:
        return f"{_taken(claim, around)} n8n takes an active job for a running one."
    return f"{_taken(claim, around)} {_OF_ORPHANS[around.release.fails_stalled]}"


def unfinished_outlook(execution: Execution, around: ComparisonContext) -> str:
    """Returns what n8n does with an unfinished execution that no worker runs."""
    if execution.status is ExecutionStatus.UNKNOWN:
        return "Never recovered: n8n checks new and running executions only."
    if around.release is N8nRelease.OLD:
        return (
            "Never recovered before n8n 1.60: it stays as it is. Later versions mark it crashed when their main "
            "process starts."
        )
    return f"n8n marks it crashed {_LOOK}: the newest hundred first."


def leftover_job_outlook(claim: N8nJob, execution: Execution, around: ComparisonContext) -> str:
    if claim.is_locked:
        return "The job is removed when its worker finishes it."
    if claim.is_active:
        taken = _taken(claim, around)
        if around.release.fails_stalled is not None or around.near(claim.job.queue).watchdog_is_dead:
            return taken
        return f"{taken} Before n8n 2.0 it is requeued, and the workflow runs again."
    return _next(claim, around) + _of_ended(execution, around)


def deleted_execution_outlook(claim: N8nJob, around: ComparisonContext) -> str:
    if claim.is_locked:
        return "Its worker runs on in vain: its result cannot be saved."
    if claim.is_active:
        if around.near(claim.job.queue).watchdog_is_dead:
            return _taken(claim, around)
        return f"{_taken(claim, around)} The next worker that takes it finds no such execution, and fails it."
    return f"{_next(claim, around)}fails it: it finds no such execution."


def paused_queue_outlook(around: ComparisonContext) -> str:
    if around.release is N8nRelease.OLD:
        return "It waits until the queue is resumed."
    return f"n8n marks it crashed {_LOOK}, although its job waits. If it is resumed before that, it runs."


def _taken(claim: N8nJob, around: ComparisonContext) -> str:
    """Returns what the library does with an active job without a lock, as in any queue."""
    near = around.near(claim.job.queue)
    kind = VerdictKind.ABANDONED if near.watchdog_is_dead else VerdictKind.ORPHAN
    row = JobRow(claim.job, claim.state, processed_at=claim.processed_at)
    return outlook_text(kind, row, near, outlook_of_job(kind, row, near, LocklessObservation(around.now)))


def _next(claim: N8nJob, around: ComparisonContext) -> str:
    if claim.job.queue in around.paused:
        return "Once the queue is resumed, the next worker "
    if around.nobody_works(claim.job.queue):
        return "No worker is connected: the next one to connect "
    return "The next free worker "


def _of_ended(execution: Execution, around: ComparisonContext) -> str:
    if execution.status is ExecutionStatus.CRASHED and around.release is not N8nRelease.OLD:
        return "removes the job without running it."
    return "runs the workflow again from its start: it does not check how the execution ended."
