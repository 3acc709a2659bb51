"""Kinds of contradiction between a job and its execution, and the repair of each, in the words of every page."""

from __future__ import annotations

from enum import StrEnum

from recovery.domain.actions.types import Action


class MismatchRepair(StrEnum):
    """Repair of a mismatch by an operator. NONE: nothing but to wait, or to check."""

    NONE = ""
    FAIL = "fail"  # the job, with the publish that main listens for
    REQUEUE = "requeue"  # the job, which has not begun to run
    CANCEL = "cancel"  # through n8n's own abort
    REMOVE = "remove"  # the job
    RESUME = "resume"  # the queue
    CHECK_MAIN = "check n8n's main process"  # it resumes what waits
    CHECK = "check the workers"  # whether one of them still runs it; then the execution can be marked
    MARK = "mark crashed"  # the execution, in n8n's database

    @property
    def of_job(self) -> Action | None:
        """Action on the job that carries out this repair; None for repairs that are done elsewhere."""
        return _OF_JOBS.get(self)


class MismatchKind(StrEnum):
    """Kinds of mismatch, worst first: what is lost for good comes before what n8n repairs by itself."""

    ORPHANED = "job orphaned"
    NO_JOB = "no job"
    DEAD_PARENT = "parent gone"
    OVERDUE = "wait overdue"
    UNSEEN = "runs unseen"
    LEFT = "job left"
    DELETED = "execution deleted"
    PAUSED = "queue paused"
    STOPPING = "abort under way"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]

    @property
    def needs_a_person(self) -> bool:
        """Returns True if an operator has to act; an abort under way only has to be waited for."""
        return self is not MismatchKind.STOPPING

    @property
    def rank(self) -> int:
        """Severity of the kind; smaller is worse."""
        return _RANKS[self]


_OF_JOBS = {
    MismatchRepair.FAIL: Action.FAIL,
    MismatchRepair.REQUEUE: Action.REQUEUE,
    MismatchRepair.CANCEL: Action.CANCEL,
    MismatchRepair.REMOVE: Action.REMOVE,
}
_SENTENCES = {
    MismatchKind.ORPHANED: "The worker that took the job is gone; the execution still counts as running.",
    MismatchKind.NO_JOB: "The execution is unfinished, and no job exists that would run it.",
    MismatchKind.DEAD_PARENT: "A sub-workflow is unfinished, and the execution that started it is gone.",
    MismatchKind.OVERDUE: "The time until which the execution waits is over, and it has not resumed.",
    MismatchKind.UNSEEN: "n8n counts the execution as ended, and a worker is still running it.",
    MismatchKind.LEFT: "The execution has ended, and its job still exists.",
    MismatchKind.DELETED: "The execution was deleted, and its job still exists.",
    MismatchKind.PAUSED: "The execution waits in a paused queue, where n8n does not check for it.",
    MismatchKind.STOPPING: "n8n has asked the worker to abort this execution, and a step of it is still running.",
}
_RANKS = {kind: number for number, kind in enumerate(MismatchKind)}
