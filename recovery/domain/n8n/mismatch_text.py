"""Describes a mismatch: the evidence, and what happens without intervention."""

from __future__ import annotations

from dataclasses import replace

from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.n8n import rules as n8n_rules
from recovery.domain.n8n.comparison import JobExecutionPair, N8nRelease
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.lost_executions import LostExecutionRecord
from recovery.domain.n8n.mismatches import MismatchKind
from recovery.domain.stuck.context import LocklessObservation
from recovery.domain.stuck.outlook import outlook_of_job, outlook_text
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import age

# -- outlook
# Sentences that say what n8n does by itself with a job and an execution that contradict each other.
# `domain/stuck/outlook.py` says what the library does with the job, when and by whom; what n8n makes of it is added
# here. Read in n8n's sources from 1.0 to 2.41: its recovery check takes the newest executions that are new or
# running, and marks those crashed whose job is neither active nor waiting. A worker that takes a job removes it when
# its execution is crashed, fails it when there is no execution, and runs it in every other case, whatever the status
# is.


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


# -- mismatch text


_OF_LOSSES = (
    MismatchKind.ORPHANED,
    MismatchKind.NO_JOB,
    MismatchKind.LEFT,
)  # kinds that the loss of a worker may have caused
EXECUTION = "Execution"  # first word of the sentence that gives the status


def describe_pair(pair: JobExecutionPair, around: ComparisonContext) -> JobExecutionPair:
    """Returns the pair with its finding described in sentences."""
    finding = pair.finding
    if finding is None:
        return pair
    evidence = tuple(sentence for sentence in _evidence(pair, finding.kind, around) if sentence)
    return replace(pair, finding=replace(finding, evidence=evidence, fate=_fate(pair, finding.kind, around)))


def describe_loss(pair: JobExecutionPair, loss: LostExecutionRecord | None, now: int) -> JobExecutionPair:
    """Returns the pair with the loss of its worker, which the history recorded while there was a job."""
    finding, execution = pair.finding, pair.execution
    if finding is None or loss is None or execution is None or loss.started_at != execution.started_at:
        return pair
    if finding.kind not in _OF_LOSSES:
        return pair
    worker = f" {printable(loss.worker)}" if loss.worker else ""
    said = f"Its job {printable(loss.job.id)} lost its worker{worker} {age(now - loss.noticed_at)} ago."
    return replace(pair, finding=replace(finding, evidence=(*finding.evidence, said), cause=loss.cause))


def _evidence(pair: JobExecutionPair, kind: MismatchKind, around: ComparisonContext) -> tuple[str, ...]:  # noqa: PLR0911 -- a table
    claim, stands = pair.claim, _stands(pair.execution, around)
    if claim is None or kind is MismatchKind.DEAD_PARENT:
        return stands, *_without_a_job(pair, kind, around)
    job = printable(claim.job.id)
    match kind:
        case MismatchKind.ORPHANED:
            nobody = "No worker is connected." if around.nobody_works(claim.job.queue) else ""
            return f"Job {job} is active and has no lock.", stands, nobody
        case MismatchKind.NO_JOB:
            ended = f", {age(around.now - claim.finished_at)} ago" if claim.finished_at is not None else ""
            return stands, f"Its job {job} is {claim.state}{ended}: n8n's main process was not notified."
        case MismatchKind.STOPPING:
            return f"Job {job} is active and locked, and n8n's abort is written in it.", stands
        case MismatchKind.UNSEEN:
            return f"Job {job} is active and locked: a worker runs it.", stands
        case MismatchKind.LEFT:
            return stands, f"Its job {job} is {_place(claim)}."
        case MismatchKind.PAUSED:
            how = "is delayed" if claim.state is JobState.DELAYED else "waits in a paused queue"
            return f"Job {job} {how}{_since(claim.added_at, around)}.", stands
        case _:
            gone = "was deleted by n8n" if pair.execution else "is not in the database"
            return f"Job {job} is {_place(claim)}.", f"Its execution {printable(claim.execution)} {gone}."


def _without_a_job(pair: JobExecutionPair, kind: MismatchKind, around: ComparisonContext) -> tuple[str, ...]:
    may_run = n8n_rules.may_run(pair.execution, around) if pair.execution else ""
    parent = pair.finding.parent if pair.finding else ""
    if kind is MismatchKind.DEAD_PARENT and parent:
        return f"Its parent, execution {parent}, was lost with its worker.", may_run
    if kind is MismatchKind.DEAD_PARENT:
        return (
            "No unfinished execution began before it, and no worker has been connected that long.",
            "It is a sub-workflow, which has no job of its own: it ran inside its parent's process.",
        )
    if kind is MismatchKind.OVERDUE and pair.execution:
        return (f"It was to resume {age(around.now - (pair.execution.wait_until or around.now))} ago.",)
    return "No job for it waits or runs in any of n8n's queues.", may_run


def _fate(pair: JobExecutionPair, kind: MismatchKind, around: ComparisonContext) -> str:  # noqa: PLR0911 -- a table
    claim, execution = pair.claim, pair.execution
    if kind is MismatchKind.PAUSED:
        return paused_queue_outlook(around)
    if kind is MismatchKind.OVERDUE:
        return OVERDUE
    if kind in (MismatchKind.NO_JOB, MismatchKind.DEAD_PARENT):
        return unfinished_outlook(execution, around) if execution else ""
    if claim is None:
        return ""
    if kind is MismatchKind.ORPHANED:
        return orphan_outlook(claim, around)
    if kind is MismatchKind.UNSEEN:
        return UNSEEN
    if kind is MismatchKind.STOPPING:
        return STOPPING
    if kind is MismatchKind.LEFT and execution is not None:
        return leftover_job_outlook(claim, execution, around)
    return deleted_execution_outlook(claim, around)


def _stands(execution: Execution | None, around: ComparisonContext) -> str:
    if execution is None:
        return ""
    moment = execution.stopped_at if execution.status.is_terminal else execution.began_at
    return f"{EXECUTION} {execution.id} is {execution.status}{_since(moment, around)}."


def _place(claim: N8nJob) -> str:
    if not claim.is_active:
        return str(claim.state)
    return "active and locked" if claim.is_locked else "active and has no lock"


def _since(moment: int | None, around: ComparisonContext) -> str:
    return "" if moment is None else f" since {age(around.now - moment)}"
