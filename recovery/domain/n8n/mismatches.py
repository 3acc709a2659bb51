"""How a job and its execution can contradict each other, and what puts each right, in the words of every page."""

from __future__ import annotations

from enum import StrEnum


class Repair(StrEnum):
    """What a person can do about it. NONE: nothing but to wait, or to look."""

    NONE = ""
    FAIL = "fail"  # the job, with the publish that main listens for
    CANCEL = "cancel"  # through n8n's own abort
    REMOVE = "remove"  # the job
    RESUME = "resume"  # the queue
    MARK = "mark crashed"  # the execution, in n8n's database


class Mismatch(StrEnum):
    """Worst first: what is lost for ever before what n8n puts right by itself."""

    ORPHANED = "job orphaned"
    NO_JOB = "no job"
    DEAD_PARENT = "parent gone"
    UNSEEN = "runs unseen"
    LEFT = "job left"
    DELETED = "execution deleted"
    PAUSED = "queue paused"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]

    @property
    def rank(self) -> int:
        """Smaller is worse."""
        return _RANKS[self]


_SENTENCES = {
    Mismatch.ORPHANED: "A worker took the job and is gone; the execution counts as going.",
    Mismatch.NO_JOB: "The execution is going, and no job is there that would run it.",
    Mismatch.DEAD_PARENT: "A sub-workflow is going, and every execution that may have started it is gone.",
    Mismatch.UNSEEN: "The execution has ended for n8n, and a worker is running it.",
    Mismatch.LEFT: "The execution has ended, and its job is still there.",
    Mismatch.DELETED: "The execution was deleted, and its job is still there.",
    Mismatch.PAUSED: "The execution waits in a paused queue, where n8n does not look for it.",
}
_RANKS = {kind: number for number, kind in enumerate(Mismatch)}
