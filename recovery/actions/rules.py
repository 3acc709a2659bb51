"""Decides whether an action may be done to a job, before it is tried: pure, from what was shown and a fresh look.

The script judges again, atomically, what can change in between; what it cannot know is decided here: whether the
holder is connected, whether an orphan is proven, quarantined, malformed data, and n8n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from recovery.actions.catalog import ENTRIES
from recovery.domain.actions.types import (
    NO_EFFECTS,
    Action,
    ActionEffects,
    ActionOptions,
    ActionPrecheck,
    ExpectedJob,
    JobSideEffect,
    Outcome,
    RelativeChange,
    Right,
)
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.n8n.action_context import ExecutionActionContext
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.types import Verdict, VerdictKind
from recovery.n8n import action_rules
from recovery.reads.stuck.verdict_context import has_window

GONE = "There is no such job (any more)."
CONNECTED = "The worker is still connected: if it is only slow, this job will run twice."
ENDLESS = "This lock never expires. If its worker is still running the job, the job will run twice."
QUARANTINED = "It was orphaned {count} times within 72 hours: running it again may crash the next worker too."
MALFORMED = "Its data violates the queue's schema: the handler will probably fail on it."
N8N_TWICE = "n8n runs the workflow again from its start: every step that already ran will run twice."
N8N_FIRST_RUN = "None of its steps has run: n8n counts its execution as new."
N8N_ONLY_NEW = "Without consent only jobs whose execution has not begun are requeued; the others are refused."
N8N_ALL_REFUSED = "Without consent every one of them is refused."
N8N_STAYS_NEW = (
    "n8n is not notified: the execution of each deleted job stays new until n8n's recovery check marks it crashed."
)
N8N_PAUSE = (
    "This is n8n's queue. While it is paused, n8n marks the executions that wait in it as crashed. "
    "Stop its workers instead."
)
N8N_ABORT = (
    "n8n's worker aborts the run immediately, as n8n's own Stop does: the execution becomes canceled, completed steps "
    "are "
    "not undone, and its job is removed when the running step returns."
)
UNHEARD = "Only a worker that listens for cancellation stops; otherwise the job keeps running."
UNPROVEN = (
    "It has no lock, but that is not yet proof: this library takes a job first and locks it a moment later. "
    "Try again after the next stalled check."
)
UNPROVEN_REMOVE = "It is active without a lock, but it is not proven that its worker is gone."
AT_WORK = "Its row shows that a worker is running it: if that worker is only slow, it will run twice."
UNTOLD = "Its row does not show whether a worker is running it: if one is, it will run twice."
COMPLETED = "It has completed: a retry does its work a second time."
STRAY = "Its parent failed or is gone: no parent waits for its result."
OTHER_QUEUES = "It would change jobs of other queues ({jobs})."
NO_RIGHT = "It would also change {count} other job{s} ({jobs}), which needs the permission to {right}."
STAYING = "{count} of its children stay, as they are in other queues."
_CHANGES = {
    RelativeChange.REMOVED: "{count} of its children and their children {are} removed with it ({jobs}) permanently.",
    RelativeChange.FAILED: "{count} parent{s} fail{es} with it ({jobs}).",
    RelativeChange.RELEASED: "Its parent no longer waits for it ({jobs}).",
}
_NAMED = 3  # jobs in one sentence
_WAITING = (JobState.WAITING, JobState.PRIORITIZED, JobState.PAUSED, JobState.DELAYED)


class _Refused(Exception):
    """Raised with the reason why an action is refused."""


@dataclass(frozen=True, slots=True)
class ActionCandidate:
    """A job that is to be judged. `row` None: it is gone. `seen` None: it was not shown before."""

    id: str
    row: JobRow | None
    verdict: Verdict | None = None
    seen: ExpectedJob | None = None
    standing: ExecutionActionContext | None = None  # of its execution in n8n
    effects: ActionEffects = NO_EFFECTS  # on other jobs
    right: Right | None = None  # right to act on more than one job, if the actor lacks it


def judge(
    act: Action, queue: QueueRef, flavour: LibraryVersion, options: ActionOptions, case: ActionCandidate
) -> ActionPrecheck:
    row = case.row
    if row is None:
        return ActionPrecheck(case.id, is_allowed=False, why=GONE, seen=case.seen, outcome=Outcome.MISSING)
    seen = case.seen or ExpectedJob.of(row)
    try:
        _same(act, seen, row)
        if flavour.library is QueueLibrary.N8N:
            risks = action_rules.on_execution(act, case.standing or ExecutionActionContext(case.id), options)
        else:
            risks = _rule(act, flavour)(_Look(queue, flavour, options, row, case.verdict, case.standing))
            risks += _on_others(queue, options, case)
            risks += action_rules.on_job(act, case.standing, options) if case.standing else []
    except (_Refused, action_rules.N8nActionRefused) as refused:
        return ActionPrecheck(
            case.id, is_allowed=False, why=str(refused), seen=seen, name=row.name, effects=case.effects
        )
    return ActionPrecheck(
        case.id, is_allowed=True, risk=" ".join(risks), seen=seen, name=row.name, effects=case.effects
    )


def judge_queue(act: Action, queue: QueueRef, flavour: LibraryVersion, options: ActionOptions) -> ActionPrecheck:
    """Judges an action on the queue itself; the id of the judgement is empty."""
    if act is Action.PAUSE and is_n8n(queue, flavour):
        return ActionPrecheck("", is_allowed=False, why=N8N_PAUSE)
    if act is Action.CLEAN and options.state is None:
        return ActionPrecheck("", is_allowed=False, why="Give the state to clean.")
    takes_waiting = act is Action.DRAIN or (act is Action.CLEAN and options.state in _WAITING)
    risk = N8N_STAYS_NEW if takes_waiting and is_n8n(queue, flavour) else ""
    return ActionPrecheck("", is_allowed=True, risk=risk)


@dataclass(frozen=True, slots=True)
class ListRisks:
    """Risks of an action on a whole list, known before its jobs are looked at. `needs`: consents to be asked for."""

    risks: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()


def judge_list(
    act: Action, queue: QueueRef, flavour: LibraryVersion, options: ActionOptions, every: JobState | VerdictKind | None
) -> ListRisks:
    """Returns the risks for all jobs of a list; each job is judged by itself later, and refused without its consent."""
    if not is_n8n(queue, flavour):
        return ListRisks()
    if act is Action.FAIL:
        return ListRisks((action_rules.OVERWRITES,))
    if act is Action.REMOVE and every in _WAITING:
        return ListRisks((N8N_STAYS_NEW,))
    if act not in (Action.REQUEUE, Action.RETRY):
        return ListRisks()
    without = () if options.consent else (N8N_ONLY_NEW if act is Action.REQUEUE else N8N_ALL_REFUSED,)
    return ListRisks((N8N_TWICE, *without), frozenset({"consent"}))


def is_proven(verdict: Verdict | None) -> bool:
    """Returns True if it is proven, by two sightings where one is not enough, that no worker holds the job."""
    return verdict is not None and (verdict.of_lock.is_orphaned or verdict.of_lock is VerdictKind.MISSING_DATA)


@dataclass(frozen=True, slots=True)
class _Look:
    queue: QueueRef
    flavour: LibraryVersion
    options: ActionOptions
    row: JobRow
    verdict: Verdict | None
    standing: ExecutionActionContext | None = None

    @property
    def kind(self) -> VerdictKind:
        return self.verdict.kind if self.verdict else VerdictKind.UNKNOWN

    @property
    def of_lock(self) -> VerdictKind:
        return self.verdict.of_lock if self.verdict else VerdictKind.UNKNOWN


def _same(act: Action, seen: ExpectedJob, row: JobRow) -> None:
    """Raises unless the job is as it was shown. A lock that ended matters only to an action that deletes it."""
    states = ENTRIES[act].states
    if row.state is not seen.state or (states and row.state not in states):
        raise _Refused(f"It is {_place(row.state)} now.")
    if row.state is not JobState.ACTIVE:
        return
    if (row.processed_at, row.starts) != (seen.processed_at, seen.starts):
        raise _Refused("A worker has started it again since it was shown.")
    if row.lock and seen.token and row.lock.token != seen.token:
        raise _Refused("Another worker has taken its lock since it was shown.")


def _on_others(queue: QueueRef, options: ActionOptions, case: ActionCandidate) -> list[str]:
    """Returns the risks for children and parents; each is named in the dialog as well."""
    effects = case.effects
    if effects is NO_EFFECTS:
        return []
    if effects.refusal:
        raise _Refused(effects.refusal)
    taken = [one for one in effects.affected if one.change is not RelativeChange.RELEASED]
    if taken and case.right is not None:
        told = {"count": len(taken), "s": "s" * (len(taken) != 1), "jobs": _named(taken), "right": case.right.words}
        raise _Refused(NO_RIGHT.format(**told))
    elsewhere = [one for one in effects.affected if one.job.queue != queue]
    risks = []
    if elsewhere:
        risks.append(_unless(options.other_queues, OTHER_QUEUES.format(jobs=_named(elsewhere)), "other_queues"))
    risks += [_changed(change, those) for change in RelativeChange if (those := _of(effects, change))]
    return [*risks, STAYING.format(count=f"{effects.staying:,}")] if effects.staying else risks


def _of(effects: ActionEffects, change: RelativeChange) -> list[JobSideEffect]:
    return [one for one in effects.affected if one.change is change]


def _changed(change: RelativeChange, those: Sequence[JobSideEffect]) -> str:
    one = len(those) == 1
    words = {"s": "" if one else "s", "es": "s" if one else "", "are": "is" if one else "are"}
    return _CHANGES[change].format(count=f"{len(those):,}", jobs=_named(those), **words)


def _named(those: Sequence[JobSideEffect]) -> str:
    """Names a few of the jobs, and how many more there are."""
    names = ", ".join(f"{one.job.queue.label} {one.job.label}" for one in those[:_NAMED])
    return names + (f" and {len(those) - _NAMED:,} more" if len(those) > _NAMED else "")


def _place(state: JobState) -> str:
    return "in no list of its queue" if state is JobState.UNKNOWN else state.value


def _recover(look: _Look) -> list[str]:
    """Checks a job for requeue or fail: no worker may hold it, and that must be proven."""
    row = look.row
    if row.missing:
        raise _Refused("Its job data is missing: there is nothing to run or to fail. Remove it.")
    if not row.lock_known:
        raise _Refused("Its lock cannot be read (the ACL denies it).")
    if row.lock is not None:
        raise _Refused("A worker holds its lock. Release it first, if that worker is gone.")
    if not look.of_lock.is_orphaned and not _is_bare(look):
        raise _Refused(UNPROVEN)
    return [STRAY] if look.of_lock is VerdictKind.STRAY else []


def _is_bare(look: _Look) -> bool:
    """Returns True if no lock was seen, and jobs are locked as they are taken: the script's own look is proof."""
    return look.of_lock in (VerdictKind.STRAY, VerdictKind.MALFORMED, VerdictKind.UNLOCKED) and not has_window(
        look.flavour
    )


def _requeue(look: _Look) -> list[str]:
    is_first = look.standing is not None and action_rules.is_first_run(look.standing)
    return [*_recover(look), *_again(look, is_first_run=is_first)]


def _fail(look: _Look) -> list[str]:
    return [*_recover(look), *_spared(look)]


def _spared(look: _Look) -> list[str]:
    is_quarantined = look.verdict is not None and look.verdict.is_quarantined
    return (
        ["It stalled repeatedly and is quarantined; failing it keeps it from the next worker."]
        if is_quarantined
        else []
    )


def _recover_row(look: _Look) -> list[str]:
    """Checks a job table's row: no worker holds it, or its worker just started and says so; others need force."""
    if look.options.at_start:
        return []
    if look.row.lock is not None:
        return [_unless(look.options.force, AT_WORK, "force")]
    return [] if look.row.lock_known else [_unless(look.options.force, UNTOLD, "force")]


def _requeue_row(look: _Look) -> list[str]:
    return [*_recover_row(look), *_again(look)]


def _fail_row(look: _Look) -> list[str]:
    return [*_recover_row(look), *_spared(look)]


def _again(look: _Look, *, is_first_run: bool = False) -> list[str]:
    """Returns the risks of running the job once more; each is refused until the actor accepts it."""
    risks: list[str] = []
    verdict, options = look.verdict, look.options
    if verdict and verdict.is_quarantined:
        risks.append(_unless(options.force, QUARANTINED.format(count=verdict.orphaned + 1), "force"))
    if look.kind is VerdictKind.MALFORMED:
        risks.append(_unless(options.force, MALFORMED, "force"))
    if is_first_run:
        risks.append(N8N_FIRST_RUN)
    elif is_n8n(look.queue, look.flavour):
        risks.append(_unless(options.consent, N8N_TWICE, "consent"))
    return risks


def _unless(is_given: bool, risk: str, needed: str) -> str:
    """Returns the risk if it was accepted; else raises the refusal that says what it needs."""
    if not is_given:
        raise _Refused(f"{risk} This needs {needed}.")
    return risk


def _release(look: _Look) -> list[str]:
    lock = look.row.lock
    if not look.row.lock_known:
        raise _Refused("Its lock cannot be read (the ACL denies it).")
    if lock is None:
        raise _Refused("It has no lock (any more): requeue it or fail it.")
    risks = [ENDLESS] if lock.ttl is None else []
    if look.of_lock is not VerdictKind.WORKER_LOST and lock.ttl is not None:
        risks.append(_unless(look.options.force, CONNECTED, "force"))
    return risks + (_again(look) if look.options.requeue else [])


def _retry(look: _Look) -> list[str]:
    if look.row.missing:
        raise _Refused("Its job data is missing: there is nothing to run. Remove it.")
    is_over = look.row.state is JobState.COMPLETED
    risks = [_unless(look.options.rerun_completed, COMPLETED, "rerun_completed")] if is_over else []
    return [*risks, *_again(look)]


def _promote(look: _Look) -> list[str]:
    if look.row.missing:
        raise _Refused("Its job data is missing: there is nothing to run. Remove it.")
    return []


def _remove(look: _Look) -> list[str]:
    row = look.row
    if row.lock is not None:
        raise _Refused("A worker holds its lock: a running job is not removed.")
    if not row.lock_known:
        raise _Refused("Its lock cannot be read (the ACL denies it): it may be running.")
    is_safe = row.state is not JobState.ACTIVE or row.missing or look.of_lock.is_orphaned or _is_bare(look)
    return [] if is_safe else [_unless(look.options.force, UNPROVEN_REMOVE, "force")]


def _cancel(look: _Look) -> list[str]:
    if look.row.lock is None:
        raise _Refused("No worker holds it, so no worker can be asked to stop it: requeue it or fail it.")
    return [N8N_ABORT if is_n8n(look.queue, look.flavour) else UNHEARD]


_RULES: Mapping[Action, Callable[[_Look], list[str]]] = {
    Action.REQUEUE: _requeue,
    Action.FAIL: _fail,
    Action.RELEASE: _release,
    Action.RETRY: _retry,
    Action.PROMOTE: _promote,
    Action.REMOVE: _remove,
    Action.CANCEL: _cancel,
}
_ROW_RULES: Mapping[Action, Callable[[_Look], list[str]]] = {Action.REQUEUE: _requeue_row, Action.FAIL: _fail_row}


def _rule(act: Action, flavour: LibraryVersion) -> Callable[[_Look], list[str]]:
    """Returns the rule of an action. Rows of a table have rules of their own: they have no lock of a library."""
    return (_ROW_RULES if flavour.library is QueueLibrary.TABLE else _RULES).get(act, _RULES[act])
