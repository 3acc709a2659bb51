"""Defines actions on jobs and queues: what an operator or a scanner can do, what was seen beforehand, and the result.

`ExpectedJob` is the fence of every act on a job: the script does nothing unless the job still is as it was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobRow, JobState

# Why a fence refused a script: the later epoch of another scheduler of ours, or another installation's name.
Rival = int | str


class Action(StrEnum):
    """Name of each action; the same in code, URLs, shell, audit and API."""

    REQUEUE = "requeue"
    FAIL = "fail"
    RELEASE = "release"
    RETRY = "retry"
    PROMOTE = "promote"
    REMOVE = "remove"
    CANCEL = "cancel"
    RESTORE = "restore"
    CLEAN = "clean"
    DRAIN = "drain"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY_EXECUTION = "retry-execution"
    MARK = "mark-crashed"
    RESCUE = "rescue"


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"  # `why` says what stood against it, and how the job is now
    MISSING = "missing"  # the job does not exist (any more)
    UNCHANGED = "unchanged"  # the job is in the wanted state already
    UNKNOWN = "unknown"  # the store went away in the middle: it may or may not have happened


@dataclass(frozen=True, slots=True)
class ExpectedJob:
    """A job as it was when an operator or a scanner decided. Scripts compare each of these before the first write."""

    id: str
    state: JobState
    token: str | None = None  # of the lock; None: there was no lock
    processed_at: int | None = None
    attempts: int = 0  # made, as the library counts them
    starts: int | None = None  # `ats`, BullMQ ≥ 5
    stalls: int = 0

    @classmethod
    def of(cls, row: JobRow) -> ExpectedJob:
        token = row.lock.token if row.lock else None
        return cls(row.id, row.state, token, row.processed_at, row.attempts, row.starts, row.stalls)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields by name. `Seen(**…)` reads them, except for the state, which is written as its value."""
        return {
            "id": self.id,
            "state": self.state,
            "token": self.token,
            "processed_at": self.processed_at,
            "attempts": self.attempts,
            "starts": self.starts,
            "stalls": self.stalls,
        }


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """Options of an action. An action ignores those that it does not know."""

    force: bool = False  # despite quarantined jobs, or a holder that is still connected
    consent: bool = False  # n8n: the workflow may run a second time from its start
    reset_stalls: bool = False  # requeue, retry: forget stalls and a deferred failure, so that it is not failed at once
    counts_as_stall: bool = True  # requeue: as the library's own recovery counts
    at_start: bool = False  # requeue of a table's rows: their worker has just started, so none of them is under way
    requeue: bool = False  # release: and back to wait in the same script
    reset_attempts: bool = False  # retry
    rerun_completed: bool = False  # retry: a job that has completed, too; it does its work a second time
    children: bool = False  # remove: with its children that name it as their parent
    other_queues: bool = False  # also change other queues: children and parents
    affected: frozenset[str] | None = None  # names of the jobs that may change with it, set by the runner; None: any
    directly: bool = False  # fail: even if a live worker's stalled check would do it
    is_late: bool = False  # fail, requeue: two sightings proved it (Bull, BullMQ ≤ 4), set by the runner
    state: JobState | None = None  # clean
    older_than: int = 0  # clean: ms since it finished, or was added
    limit: int = 0  # clean: at most so many; 0: all
    delayed: bool = False  # drain: delayed jobs too
    mark: bool = False  # retry-execution: mark a running execution as crashed first; n8n does not retry a new one
    latest: bool = False  # retry-execution: with the currently saved workflow, not as it was then
    cursor: str = ""  # clean, drain: where the step before ended (`RemovalStep.next`); "" begins anew
    message: str = ""  # fail: the reason that is written into the job


class RelativeChange(StrEnum):
    """Effect of an action on one job upon another job of its family."""

    REMOVED = "removed"
    FAILED = "failed"
    RELEASED = "released"  # a parent does not wait for it any more


@dataclass(frozen=True, slots=True)
class JobSideEffect:
    """A job that changes because of an action on another job."""

    job: JobRef
    change: RelativeChange

    def as_json(self) -> dict[str, str]:
        return {"queue": str(self.job.queue), "job": self.job.id[:_ID_LISTED], "change": self.change.value}


@dataclass(frozen=True, slots=True)
class ActionEffects:
    """Effects of an action on one job upon others. `staying`: children left alone, as they are in other queues."""

    affected: tuple[JobSideEffect, ...] = ()
    staying: int = 0
    refusal: str = ""  # why it cannot be done, or is not known


NO_EFFECTS = ActionEffects()
_ID_LISTED = 300  # characters
AFFECTED_LISTED = 20  # in a dialog, an answer and an entry of the audit, for each job; of more only the number is shown


@dataclass(frozen=True, slots=True)
class UndoCopy:
    """Undo copy of a removed job: every key of its own as Redis dumps it, and its position."""

    id: str
    state: JobState
    dumps: tuple[tuple[str, bytes], ...]  # (what follows the job's key: "", ":logs", …; the dump)
    score: str = ""  # its score where it stood in a sorted set, as Redis writes it
    before: str = ""  # the neighbour it stood in front of in a list, nearer to the tail; "" at the tail
    size: int = 0
    parent: str = ""  # full key of the parent that waited for it; "" when none did


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """Result of a script for one job."""

    id: str
    outcome: Outcome
    why: str = ""
    state: JobState | None = None  # where the job is now, as far as the script knows
    kept: UndoCopy | None = None
    fenced: Rival | None = None  # the fence that refused its script
    heard: int | None = None  # fail: how many subscribers received its event; None: not counted
    affected: tuple[JobSideEffect, ...] = ()  # other jobs that were changed with it
    is_untried: bool = False  # refused because the store failed before its script was sent


class Right(StrEnum):
    """Permission that an action needs. Actors who may act in bulk have all of them."""

    ACT = "act"  # on single jobs
    MANY = "many"  # on many jobs at once, where none is deleted
    PAUSE = "pause"  # a queue, and resume it
    BULK = "bulk"  # delete many jobs, and decide what happens by itself: policies, scanners, drills

    @property
    def words(self) -> str:
        return _RIGHTS[self]


_RIGHTS = {
    Right.ACT: "act on jobs",
    Right.MANY: "act on many jobs at once",
    Right.PAUSE: "pause and resume queues",
    Right.BULK: "act in bulk",
}


@dataclass(frozen=True, slots=True)
class Actor:
    """Actor of an action: a person, a machine token, the shell, or a scanner (whose `name` is the scanner's)."""

    kind: str  # person, token, shell, scanner
    name: str
    role: str = ""
    address: str = ""
    may_act: bool = False
    may_bulk: bool = False
    may_many: bool = False
    may_pause: bool = False

    def may(self, right: Right) -> bool:
        own = {Right.ACT: self.may_act, Right.MANY: self.may_many, Right.PAUSE: self.may_pause, Right.BULK: False}
        return self.may_bulk or own[right]


@dataclass(frozen=True, slots=True)
class ActionCommand:
    """Action on some jobs of one queue, or on the queue itself when `jobs` is empty."""

    act: Action
    queue: QueueRef
    actor: Actor
    reason: str
    jobs: tuple[ExpectedJob, ...] = ()
    options: ActionOptions = ActionOptions()
    epoch: int | None = None  # of the scheduler that carries it out; None: a person or the shell does, right now
    installation: str = ""  # that the scheduler belongs to


@dataclass(frozen=True, slots=True)
class ActionPrecheck:
    """Result of checking beforehand whether an action may be done to a job; `risk` is a sentence for people."""

    id: str
    is_allowed: bool
    why: str = ""  # why not
    risk: str = ""
    seen: ExpectedJob | None = None
    name: str = ""
    outcome: Outcome = Outcome.REFUSED  # of a job that it may not be done to: refused, or missing
    effects: ActionEffects = NO_EFFECTS


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of an action for one job, as the API returns it: `{"job", "outcome", "why", "audit"}`."""

    job: str
    outcome: Outcome
    why: str = ""
    audit: int | None = None  # number of the entry that holds the outcome
    can_restore: bool = False
    is_untried: bool = False  # as Done has it
    affected: tuple[JobSideEffect, ...] = ()  # as Done has them; predicted when nothing was done

    def as_json(self) -> dict[str, Any]:
        told = {"job": self.job, "outcome": self.outcome.value, "why": self.why, "audit": self.audit}
        return told | affected_json(self.affected)


def affected_json(affected: Sequence[JobSideEffect]) -> dict[str, Any]:
    """Returns the first AFFECTED_LISTED affected jobs and their total; an empty dictionary if there are none."""
    listed = [one.as_json() for one in affected[:AFFECTED_LISTED]]
    return {"affected": listed, "affected_total": len(affected)} if listed else {}


@dataclass(frozen=True, slots=True)
class RemovalStep:
    """Result of one bounded step of a clean or a drain."""

    jobs: tuple[UndoCopy, ...] = field(default=())
    removed: int = 0
    skipped: int = 0
    is_finished: bool = False
    next: str = ""  # to be handed on in `ActionOptions.cursor`, so that what was passed over is not looked at again
    fenced: Rival | None = None  # the fence that refused a script: the step ends there
