"""Describes a mismatch: the evidence, and what happens without intervention."""

from __future__ import annotations

from dataclasses import replace

from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobState
from recovery.domain.n8n import outlook
from recovery.domain.n8n import rules as n8n_rules
from recovery.domain.n8n.comparison import JobExecutionPair
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.lost_executions import LostExecutionRecord
from recovery.domain.n8n.mismatches import MismatchKind
from recovery.domain.time_units import age

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
        return outlook.paused_queue_outlook(around)
    if kind is MismatchKind.OVERDUE:
        return outlook.OVERDUE
    if kind in (MismatchKind.NO_JOB, MismatchKind.DEAD_PARENT):
        return outlook.unfinished_outlook(execution, around) if execution else ""
    if claim is None:
        return ""
    if kind is MismatchKind.ORPHANED:
        return outlook.orphan_outlook(claim, around)
    if kind is MismatchKind.UNSEEN:
        return outlook.UNSEEN
    if kind is MismatchKind.STOPPING:
        return outlook.STOPPING
    if kind is MismatchKind.LEFT and execution is not None:
        return outlook.leftover_job_outlook(claim, execution, around)
    return outlook.deleted_execution_outlook(claim, around)


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
