"""Catalogue of all actions: name, effect, the jobs that each is for, and the right that it needs.

What deletes many jobs takes the right to act in bulk. To act on many jobs at once otherwise, and to pause or resume a
queue, are rights of their own, which operators have as the configuration says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recovery.actions.operators import refusals
from recovery.domain.actions.types import Action, Right
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import LibraryVersion
from recovery.domain.stuck.types import Verdict, VerdictKind

_ACTIVE = frozenset({JobState.ACTIVE})
_FINISHED = frozenset({JobState.COMPLETED, JobState.FAILED})
_RELEASABLE = frozenset({VerdictKind.LATE, VerdictKind.WORKER_LOST})


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """An action. `states`: of the jobs it is for; empty: any."""

    act: Action
    label: str  # on a button
    done: str  # "3 jobs …"
    effect: str  # one sentence
    states: frozenset[JobState] = frozenset()
    is_for_queue: bool = False
    is_for_execution: bool = False  # of n8n: it may have no job at all
    one: Right = Right.ACT  # what it takes for one job, or for the queue
    many: Right = Right.MANY  # and for many jobs at once
    is_tried_once: bool = False  # what was tried and has no outcome is never tried again: it would run twice
    in_steps: bool = False  # takes jobs away step by step until none is left
    irreversible: bool = False
    restorable: bool = False  # for 24 hours
    tone: str = ""  # of the button: "", primary, danger

    def right(self, *, many: bool) -> Right:
        return self.many if many and not self.is_for_queue else self.one

    def counted(self, count: int) -> str:
        """Returns what the action is done to, in words, as in "3 jobs"."""
        noun = "execution" if self.is_for_execution else "job"
        return f"{count:,} {noun}{'s' * (count != 1)}"


_ALL = (
    ActionSpec(
        Action.REQUEUE,
        "Requeue",
        "requeued",
        "The job goes back to wait, where its library would put it, and the next free worker runs it again.",
        _ACTIVE,
        tone="primary",
    ),
    ActionSpec(
        Action.FAIL,
        "Fail",
        "failed",
        "The job fails as its library fails a job that stalled too often; parents and listeners are notified.",
        _ACTIVE,
        tone="danger",
    ),
    ActionSpec(
        Action.RELEASE,
        "Release",
        "released",
        "The lock that was shown is deleted, so that the job can be recovered before the lock expires.",
        _ACTIVE,
    ),
    ActionSpec(
        Action.RETRY,
        "Retry",
        "retried",
        "The finished job goes back to wait and runs again, with its priority and its place in its flow.",
        _FINISHED,
        tone="primary",
    ),
    ActionSpec(
        Action.PROMOTE,
        "Promote",
        "promoted",
        "The delayed job becomes runnable now.",
        frozenset({JobState.DELAYED}),
    ),
    ActionSpec(
        Action.CANCEL,
        "Cancel",
        "asked to stop",
        "Its worker is asked to stop the job; only a worker that listens for this can.",
        _ACTIVE,
        tone="danger",
    ),
    ActionSpec(
        Action.REMOVE,
        "Remove",
        "removed",
        "The job is deleted, with its log. It can be restored for 24 hours, unless children are deleted with it.",
        many=Right.BULK,
        restorable=True,
        tone="danger",
    ),
    ActionSpec(
        Action.RESTORE,
        "Restore",
        "restored",
        "The removed job comes back to where it was.",
    ),
    ActionSpec(
        Action.PAUSE,
        "Pause",
        "paused",
        "Workers finish what they have and take nothing new from this queue.",
        is_for_queue=True,
        one=Right.PAUSE,
    ),
    ActionSpec(
        Action.RESUME,
        "Resume",
        "resumed",
        "Workers take jobs from this queue again.",
        is_for_queue=True,
        one=Right.PAUSE,
        tone="primary",
    ),
    ActionSpec(
        Action.CLEAN,
        "Clean",
        "cleaned",
        "Jobs of one state that are older than the given age are deleted. They can be restored for 24 hours.",
        is_for_queue=True,
        one=Right.BULK,
        in_steps=True,
        irreversible=True,
        restorable=True,
        tone="danger",
    ),
    ActionSpec(
        Action.DRAIN,
        "Drain",
        "drained",
        "Every waiting job is deleted; active and finished ones stay. They can be restored for 24 hours.",
        is_for_queue=True,
        one=Right.BULK,
        in_steps=True,
        irreversible=True,
        restorable=True,
        tone="danger",
    ),
    ActionSpec(
        Action.RETRY_EXECUTION,
        "Retry",
        "retried",
        "n8n is asked to retry the execution: it creates a new one from the saved data of this one.",
        is_for_execution=True,
        is_tried_once=True,
        tone="primary",
    ),
    ActionSpec(
        Action.RESCUE,
        "Rescue",
        "rescued",
        "The execution runs again as a new one: from n8n's data before n8n overwrites it, else from the kept copy.",
        is_for_execution=True,
        tone="primary",
    ),
    ActionSpec(
        Action.MARK,
        "Mark crashed",
        "marked as crashed",
        "The execution's row is marked in n8n's database as n8n marks it when it finds no job: crashed, stopped now.",
        is_for_execution=True,
        tone="danger",
    ),
)
ENTRIES: Mapping[Action, ActionSpec] = {entry.act: entry for entry in _ALL}
_OF_ROWS = {
    Action.REQUEUE: "The row waits again, with one attempt more; when its attempts are used up it fails instead.",
    Action.FAIL: "The row is marked as failed: no worker takes it unless it is retried.",
    Action.RETRY: "The finished row waits again, and the next free worker runs it.",
}


def effect(act: Action, *, of_rows: bool) -> str:
    """Returns the effect of an action in one sentence, for jobs of a library or for rows of a table."""
    return (_OF_ROWS.get(act) if of_rows else None) or ENTRIES[act].effect


def offered(row: JobRow, verdict: Verdict | None, flavour: LibraryVersion) -> tuple[Action, ...]:
    """Returns the actions that fit this job as it is, the suggested one first. What needs force is not offered."""
    if flavour.read_only:
        return ()
    refused = refusals(flavour)
    fitting = [entry.act for entry in _ALL if entry.act not in refused and _fits(entry, row, verdict)]
    suggested = verdict.suggests if verdict else None
    return tuple(sorted(fitting, key=lambda act: act is not suggested))


def on_queue(flavour: LibraryVersion) -> tuple[Action, ...]:
    """Returns the actions on the queue itself that this flavour allows."""
    if flavour.read_only:
        return ()
    refused = refusals(flavour)
    return tuple(entry.act for entry in _ALL if entry.is_for_queue and entry.act not in refused)


def _fits(entry: ActionSpec, row: JobRow, verdict: Verdict | None) -> bool:
    if entry.is_for_queue or entry.is_for_execution or entry.act is Action.RESTORE:
        return False
    if entry.states and (row.missing or row.state not in entry.states):
        return False
    fits = _FITS.get(entry.act)
    return fits is None or fits(row, verdict.of_lock if verdict else VerdictKind.UNKNOWN)


def _is_orphaned(row: JobRow, kind: VerdictKind) -> bool:
    return row.lock is None and kind.is_orphaned


def _can_be_released(row: JobRow, kind: VerdictKind) -> bool:
    return row.lock is not None and (row.lock.ttl is None or kind in _RELEASABLE)


def _is_held(row: JobRow, kind: VerdictKind) -> bool:
    return row.lock is not None and kind is not VerdictKind.WORKER_LOST


def _is_free(row: JobRow, kind: VerdictKind) -> bool:
    return row.lock is None and row.lock_known and kind is not VerdictKind.UNLOCKED


_FITS: Mapping[Action, Callable[[JobRow, VerdictKind], bool]] = {
    Action.REQUEUE: _is_orphaned,
    Action.FAIL: _is_orphaned,
    Action.RELEASE: _can_be_released,
    Action.CANCEL: _is_held,
    Action.REMOVE: _is_free,
}
