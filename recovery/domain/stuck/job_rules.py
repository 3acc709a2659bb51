"""Decides the verdict of an active job from what was seen of it and what is known around it.

Rules of truth: nothing is said without its evidence, and what is not known stays unknown. A job is *held* only by a
lock that was seen. A job is an *orphan* only when it was proven: BullMQ ≥ 5 takes and locks in one step, so one atomic
sighting will do; Bull and BullMQ ≤ 4 leave a job active and lock-less for a moment before they start it, so it takes
two sightings of a job of which nothing else has changed: at least one stalled interval apart, unless its lock was
followed until it ran out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow
from recovery.domain.n8n.instances import InstanceEnding
from recovery.domain.stuck.causes import find_cause, worker_label
from recovery.domain.stuck.context import QUARANTINE_AFTER, LocklessObservation, ParentState, VerdictContext
from recovery.domain.stuck.holders import HolderPresence, departures, holder_presence, renewed_at, with_holder_server
from recovery.domain.stuck.lock_expiry import ENDED_FOR
from recovery.domain.stuck.outlook import dead_words, outlook_of_job, outlook_text, parent_words
from recovery.domain.stuck.types import LossCause, Verdict, VerdictKind
from recovery.domain.time_units import age


def verdict_for_job(
    row: JobRow,
    around: VerdictContext,
    *,
    sighting: LocklessObservation | None = None,
    parent: ParentState = ParentState.NONE,
    orphaned: int = 0,
    breaks: str = "",
) -> Verdict:
    """Returns the verdict of an active job. `sighting`: how long it has been seen without a lock; None: this is the
    first check.

    `orphaned` counts its earlier incidents within QUARANTINE_WINDOW. `breaks` says how its data breaks the schema of
    its queue, and holds no value of it; "": it does not, or that is not known.
    """
    sighting = sighting or LocklessObservation(around.now)
    kind = verdict_kind(row, around, sighting, parent)
    evidence = _EVIDENCE[kind](row, around, sighting)
    if kind is VerdictKind.STRAY:
        evidence = (parent_words(row, parent), *evidence)
    ahead = outlook_of_job(kind, row, around, sighting, orphaned=orphaned, is_malformed=bool(breaks))
    why, hint = (
        find_cause(row, with_holder_server(row, around, sighting), sighting.since)
        if kind.is_lost
        else (LossCause.UNKNOWN, "")
    )
    found = Verdict(
        kind,
        evidence,
        why,
        hint,
        outlook_text(kind, row, around, ahead),
        ahead.at,
        suggests=_suggestion(kind, row, around),
        orphaned=orphaned,
        rescuer=ahead.rescuer,
    )
    found = mark_quarantined(found) if kind.is_orphaned or kind is VerdictKind.WORKER_LOST else found
    return mark_malformed(found, breaks) if breaks and kind is not VerdictKind.MISSING_DATA else found


def stray_verdict(row: JobRow, parent: ParentState) -> Verdict | None:
    """Returns the verdict of a waiting job whose parent failed or is gone; None for any other."""
    if parent not in (ParentState.FAILED, ParentState.GONE):
        return None
    fate = "It will run in vain: no parent waits for its result."
    return Verdict(VerdictKind.STRAY, (parent_words(row, parent),), fate=fate, suggests=Action.REMOVE)


def malformed_verdict(breaks: str) -> Verdict:
    """Returns the verdict of a job that is not active and whose data breaks the schema of its queue."""
    return Verdict(VerdictKind.MALFORMED, (breaks,), fate="Nothing happens: it is not running.")


def is_proven(sighting: LocklessObservation, around: VerdictContext) -> bool:
    """Returns True if it is proven that the job is active and no worker holds it."""
    if not around.has_window:
        return sighting.is_atomic or sighting.looks >= 2
    return sighting.looks >= 2 and around.now - sighting.since >= _proof_takes(around, sighting)


def _proof_takes(around: VerdictContext, sighting: LocklessObservation) -> int:
    return min(ENDED_FOR, around.stalled_interval) if sighting.has_expired else around.stalled_interval


def is_late(ttl: int | None, around: VerdictContext) -> bool:
    """Returns True if a lock with so much left has missed a renewal."""
    if ttl is None or not around.lock_length:
        return False
    return 0 <= ttl < around.lock_length * around.renewed_above


def verdict_kind(
    row: JobRow, around: VerdictContext, sighting: LocklessObservation, parent: ParentState = ParentState.NONE
) -> VerdictKind:
    """Returns the verdict's kind alone: for counting, where the sentences would cost more than the rules."""
    if not row.lock_known:
        return VerdictKind.UNKNOWN
    if row.missing:
        return VerdictKind.MISSING_DATA
    if row.lock is None:
        return _unlocked(around, sighting)
    return _locked(row, around, sighting, parent)


def _locked(row: JobRow, around: VerdictContext, sighting: LocklessObservation, parent: ParentState) -> VerdictKind:
    """Returns the kind of a locked job: what may soon be lost comes before what merely takes long."""
    if _is_worker_lost(row, around, sighting):
        return VerdictKind.WORKER_LOST
    if row.lock is not None and is_late(row.lock.ttl, around):
        return VerdictKind.LATE
    if parent in (ParentState.FAILED, ParentState.GONE):
        return VerdictKind.STRAY
    return VerdictKind.OVERDUE if _is_overdue(row, around) else VerdictKind.RUNNING


def _unlocked(around: VerdictContext, sighting: LocklessObservation) -> VerdictKind:
    if not is_proven(sighting, around):
        return VerdictKind.UNLOCKED
    return VerdictKind.ABANDONED if around.watchdog_is_dead else VerdictKind.ORPHAN


def _is_worker_lost(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> bool:
    if holder_presence(row, around) is HolderPresence.GONE:
        return True
    # A holder that lives would have given its lock an end by now.
    return _is_endless(row) and sighting.looks >= 2 and around.now - sighting.since >= around.stalled_interval


def _is_endless(row: JobRow) -> bool:
    return row.lock is not None and row.lock.ttl is None


def _is_overdue(row: JobRow, around: VerdictContext) -> bool:
    if around.overdue_after is None or row.processed_at is None:
        return False
    return around.now - row.processed_at > around.overdue_after


def mark_quarantined(found: Verdict) -> Verdict:
    """Marks the verdict as quarantined if the job was orphaned often enough, this time included."""
    if found.orphaned + 1 < QUARANTINE_AFTER:
        return found
    said = f"It was orphaned {found.orphaned:,} times before, within 72 h: it may crash its workers."
    suggests = Action.FAIL if found.kind.is_orphaned else found.suggests
    return replace(found, evidence=(*found.evidence, said), suggests=suggests, is_quarantined=True)


def mark_malformed(found: Verdict, breaks: str) -> Verdict:
    """Turns the verdict into MALFORMED and keeps its sentences: running the job again would not help."""
    who = "The next worker" if found.kind.is_lost else "Its handler"
    return replace(
        found,
        kind=VerdictKind.MALFORMED,
        behind=found.kind,
        evidence=(breaks, *found.evidence),
        fate=f"{found.fate} {who} will probably fail on it.",
        suggests=Action.FAIL if found.suggests is Action.REQUEUE else found.suggests,
    )


def _suggestion(kind: VerdictKind, row: JobRow, around: VerdictContext) -> Action | None:
    match kind:
        case VerdictKind.ORPHAN | VerdictKind.ABANDONED:
            # n8n runs a job again from the start of its workflow: no repair for what has begun.
            return Action.FAIL if around.is_n8n and row.processed_at is not None else Action.REQUEUE
        case VerdictKind.WORKER_LOST:
            return Action.RELEASE
        case VerdictKind.OVERDUE | VerdictKind.STRAY:
            return Action.CANCEL
        case VerdictKind.MISSING_DATA:
            return Action.REMOVE if row.lock is None else None
    return None


# -- evidence

_RAN_OUT = "Its lock expired: no worker renewed it."


def _running(row: JobRow, around: VerdictContext, _: LocklessObservation) -> tuple[str, ...]:
    if _is_endless(row):
        return (
            f"{_holder_words(row, around)} holds it with a lock that never expires, which Bull and BullMQ never set.",
        )
    return (f"{_holder_words(row, around)} holds it; its lock has {_left(row)} left.",)


def _late(row: JobRow, around: VerdictContext, _: LocklessObservation) -> tuple[str, ...]:
    often = f", {_renewals(around)}" if around.renews_every else ""
    said = f"Its lock has {_left(row)} of {age(around.lock_length or 0)} left: at least one renewal was missed{often}."
    if holder_presence(row, around) is HolderPresence.HERE:
        return said, f"Worker {printable(row.worker)} is still connected."
    last = renewed_at(row, around)
    gone = [one for one in around.left if last is not None and one.at >= last and one.ending != InstanceEnding.STOPPED]
    if not gone:
        return (said,)
    worker = worker_label(gone[-1], row)
    return said, f"{worker[0].upper()}{worker[1:]} lost its connection {age(around.now - gone[-1].at)} ago."


def _renewals(around: VerdictContext) -> str:
    every = age(around.renews_every or 0)
    return f"which come every {every} here" if around.is_rhythm_seen else f"which come every {every} by n8n's default"


def _worker_lost(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> tuple[str, ...]:
    if holder_presence(row, around) is not HolderPresence.GONE:
        seen = age(around.now - sighting.since)
        return (f"Its lock never expires and has not been renewed for {seen}: Bull and BullMQ never set such a lock.",)
    lock = "a lock that never expires" if _is_endless(row) else "its lock"
    return (f"{_gone_words(row, around)}, and {lock} is still there.",)


def _lockless(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> tuple[str, ...]:
    seen = around.now - sighting.since
    started = " and never started" if row.processed_at is None else ""
    since = f"for {age(seen)}" if seen >= 1000 else "since this check"
    ended = (_RAN_OUT,) if sighting.has_expired else ()
    return (f"It is active{started} and has had no lock {since}.", *ended)


def _unproven(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> tuple[str, ...]:
    said = _lockless(row, around, sighting)
    if not around.has_window:
        return *said, "It was seen once, in separate reads: the next check confirms it."
    wait = max(0, _proof_takes(around, sighting) - (around.now - sighting.since))
    if sighting.has_expired:
        return *said, f"Confirmed at the next check, in {age(wait)}."
    return *said, f"With this library a starting job briefly has no lock: confirmed in {age(wait)}."


def _abandoned(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> tuple[str, ...]:
    return *_lockless(row, around, sighting), dead_words(around)


def _overdue(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> tuple[str, ...]:
    ran, limit = around.now - (row.processed_at or around.now), around.overdue_after or 0
    return (f"It has run for {age(ran)}; the limit of this queue is {age(limit)}.", *_running(row, around, sighting))


def _missing_data(row: JobRow, around: VerdictContext, _: LocklessObservation) -> tuple[str, ...]:
    held = " A worker has its lock." if row.lock else ""
    return (f"Its id is in the list of active jobs, but its job data is missing: it was removed meanwhile.{held}",)


def _unknown(*_: object) -> tuple[str, ...]:
    return ("Its lock cannot be read: permissions are missing, or a proxy refuses the command.",)


_EVIDENCE: Mapping[VerdictKind, Callable[[JobRow, VerdictContext, LocklessObservation], tuple[str, ...]]] = {
    VerdictKind.RUNNING: _running,
    VerdictKind.LATE: _late,
    VerdictKind.WORKER_LOST: _worker_lost,
    VerdictKind.UNLOCKED: _unproven,
    VerdictKind.ORPHAN: _lockless,
    VerdictKind.ABANDONED: _abandoned,
    VerdictKind.OVERDUE: _overdue,
    VerdictKind.MISSING_DATA: _missing_data,
    VerdictKind.STRAY: _running,
    VerdictKind.UNKNOWN: _unknown,
}


def _left(row: JobRow) -> str:
    return age(row.lock.ttl or 0) if row.lock else "nothing"


def _holder_words(row: JobRow, around: VerdictContext) -> str:
    return f"Worker {printable(row.worker)}" if holder_presence(row, around) is HolderPresence.HERE else "A worker"


def _gone_words(row: JobRow, around: VerdictContext) -> str:
    if not around.nobody_is_here:
        went = departures(row.worker, around)
        ago = f" lost its connection {age(around.now - went[-1].at)} ago" if went else " is no longer connected"
        return f"Worker {printable(row.worker)}{ago}"
    if around.left:
        last = around.left[-1]
        named = f", {printable(last.instance)}," if last.instance else ""
        return f"The last worker of this queue{named} lost its connection {age(around.now - last.at)} ago"
    return "No worker of this queue is connected"
