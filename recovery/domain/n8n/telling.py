"""Describes a mismatch: the evidence, and what happens without intervention."""

from __future__ import annotations

from dataclasses import replace

from recovery.domain.ages import age
from recovery.domain.jobs import State
from recovery.domain.n8n import fates, judging
from recovery.domain.n8n.around import Around
from recovery.domain.n8n.claims import Claim
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.losses import Loss
from recovery.domain.n8n.mismatches import Mismatch
from recovery.domain.n8n.pairs import Pair
from recovery.domain.refs import shown

_OF_LOSSES = (Mismatch.ORPHANED, Mismatch.NO_JOB, Mismatch.LEFT)  # kinds that the loss of a worker may have caused
EXECUTION = "Execution"  # first word of the sentence that gives the status


def told(pair: Pair, around: Around) -> Pair:
    """Returns the pair with its finding described in sentences."""
    finding = pair.finding
    if finding is None:
        return pair
    evidence = tuple(sentence for sentence in _evidence(pair, finding.kind, around) if sentence)
    return replace(pair, finding=replace(finding, evidence=evidence, fate=_fate(pair, finding.kind, around)))


def caused(pair: Pair, loss: Loss | None, now: int) -> Pair:
    """Returns the pair with the loss of its worker, which the history recorded while there was a job."""
    finding, execution = pair.finding, pair.execution
    if finding is None or loss is None or execution is None or loss.started_at != execution.started_at:
        return pair
    if finding.kind not in _OF_LOSSES:
        return pair
    worker = f" {shown(loss.worker)}" if loss.worker else ""
    said = f"Its job {shown(loss.job.id)} lost its worker{worker} {age(now - loss.noticed_at)} ago."
    return replace(pair, finding=replace(finding, evidence=(*finding.evidence, said), cause=loss.cause))


def _evidence(pair: Pair, kind: Mismatch, around: Around) -> tuple[str, ...]:  # noqa: PLR0911 -- a table
    claim, stands = pair.claim, _stands(pair.execution, around)
    if claim is None or kind is Mismatch.DEAD_PARENT:
        return stands, *_without_a_job(pair, kind, around)
    job = shown(claim.job.id)
    match kind:
        case Mismatch.ORPHANED:
            nobody = "No worker is connected." if around.nobody_works(claim.job.queue) else ""
            return f"Job {job} is active and has no lock.", stands, nobody
        case Mismatch.NO_JOB:
            ended = f", {age(around.now - claim.finished_at)} ago" if claim.finished_at is not None else ""
            return stands, f"Its job {job} is {claim.state}{ended}: n8n's main process was not notified."
        case Mismatch.STOPPING:
            return f"Job {job} is active and locked, and n8n's abort is written in it.", stands
        case Mismatch.UNSEEN:
            return f"Job {job} is active and locked: a worker runs it.", stands
        case Mismatch.LEFT:
            return stands, f"Its job {job} is {_place(claim)}."
        case Mismatch.PAUSED:
            how = "is delayed" if claim.state is State.DELAYED else "waits in a paused queue"
            return f"Job {job} {how}{_since(claim.added_at, around)}.", stands
        case _:
            gone = "was deleted by n8n" if pair.execution else "is not in the database"
            return f"Job {job} is {_place(claim)}.", f"Its execution {shown(claim.execution)} {gone}."


def _without_a_job(pair: Pair, kind: Mismatch, around: Around) -> tuple[str, ...]:
    may_run = judging.may_run(pair.execution, around) if pair.execution else ""
    parent = pair.finding.parent if pair.finding else ""
    if kind is Mismatch.DEAD_PARENT and parent:
        return f"Its parent, execution {parent}, was lost with its worker.", may_run
    if kind is Mismatch.DEAD_PARENT:
        return (
            "No unfinished execution began before it, and no worker has been connected that long.",
            "It is a sub-workflow, which has no job of its own: it ran inside its parent's process.",
        )
    if kind is Mismatch.OVERDUE and pair.execution:
        return (f"It was to resume {age(around.now - (pair.execution.wait_until or around.now))} ago.",)
    return "No job for it waits or runs in any of n8n's queues.", may_run


def _fate(pair: Pair, kind: Mismatch, around: Around) -> str:  # noqa: PLR0911 -- a table
    claim, execution = pair.claim, pair.execution
    if kind is Mismatch.PAUSED:
        return fates.of_paused(around)
    if kind is Mismatch.OVERDUE:
        return fates.OVERDUE
    if kind in (Mismatch.NO_JOB, Mismatch.DEAD_PARENT):
        return fates.of_going(execution, around) if execution else ""
    if claim is None:
        return ""
    if kind is Mismatch.ORPHANED:
        return fates.of_orphan(claim, around)
    if kind is Mismatch.UNSEEN:
        return fates.UNSEEN
    if kind is Mismatch.STOPPING:
        return fates.STOPPING
    if kind is Mismatch.LEFT and execution is not None:
        return fates.of_left(claim, execution, around)
    return fates.of_deleted(claim, around)


def _stands(execution: Execution | None, around: Around) -> str:
    if execution is None:
        return ""
    moment = execution.stopped_at if execution.status.is_terminal else execution.began_at
    return f"{EXECUTION} {execution.id} is {execution.status}{_since(moment, around)}."


def _place(claim: Claim) -> str:
    if not claim.is_active:
        return str(claim.state)
    return "active and locked" if claim.is_locked else "active and has no lock"


def _since(moment: int | None, around: Around) -> str:
    return "" if moment is None else f" since {age(around.now - moment)}"
