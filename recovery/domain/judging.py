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

from recovery.domain.acting import Act
from recovery.domain.ages import age
from recovery.domain.causes import cause, who
from recovery.domain.holders import Holder, departures, holder, placed, renewed_at
from recovery.domain.jobs import JobRow
from recovery.domain.lock_expiry import ENDED_FOR
from recovery.domain.n8n.instances import Ending
from recovery.domain.outlook import dead_words, outlook, parent_words, words
from recovery.domain.refs import shown
from recovery.domain.surroundings import QUARANTINE_AFTER, Parent, Sighting, Surroundings
from recovery.domain.verdicts import Cause, Kind, Verdict


def verdict(
    row: JobRow,
    around: Surroundings,
    *,
    sighting: Sighting | None = None,
    parent: Parent = Parent.NONE,
    orphaned: int = 0,
    breaks: str = "",
) -> Verdict:
    """Returns the verdict of an active job. `sighting`: how long it has been seen without a lock; None: this is the
    first check.

    `orphaned` counts its earlier incidents within QUARANTINE_WINDOW. `breaks` says how its data breaks the schema of
    its queue, and holds no value of it; "": it does not, or that is not known.
    """
    sighting = sighting or Sighting(around.now)
    kind = kind_of(row, around, sighting, parent)
    evidence = _EVIDENCE[kind](row, around, sighting)
    if kind is Kind.STRAY:
        evidence = (parent_words(row, parent), *evidence)
    ahead = outlook(kind, row, around, sighting, orphaned=orphaned, is_malformed=bool(breaks))
    why, hint = cause(row, placed(row, around, sighting), sighting.since) if kind.is_lost else (Cause.UNKNOWN, "")
    found = Verdict(
        kind,
        evidence,
        why,
        hint,
        words(kind, row, around, ahead),
        ahead.at,
        suggests=_suggestion(kind, row, around),
        orphaned=orphaned,
        rescuer=ahead.rescuer,
    )
    found = quarantined(found) if kind.is_orphaned or kind is Kind.WORKER_LOST else found
    return malformed_too(found, breaks) if breaks and kind is not Kind.MISSING_DATA else found


def stray(row: JobRow, parent: Parent) -> Verdict | None:
    """Returns the verdict of a waiting job whose parent failed or is gone; None for any other."""
    if parent not in (Parent.FAILED, Parent.GONE):
        return None
    fate = "It will run in vain: no parent waits for its result."
    return Verdict(Kind.STRAY, (parent_words(row, parent),), fate=fate, suggests=Act.REMOVE)


def malformed(breaks: str) -> Verdict:
    """Returns the verdict of a job that is not active and whose data breaks the schema of its queue."""
    return Verdict(Kind.MALFORMED, (breaks,), fate="Nothing happens: it is not running.")


def is_proven(sighting: Sighting, around: Surroundings) -> bool:
    """Returns True if it is proven that the job is active and no worker holds it."""
    if not around.has_window:
        return sighting.is_atomic or sighting.looks >= 2
    return sighting.looks >= 2 and around.now - sighting.since >= _proof_takes(around, sighting)


def _proof_takes(around: Surroundings, sighting: Sighting) -> int:
    return min(ENDED_FOR, around.stalled_interval) if sighting.has_expired else around.stalled_interval


def is_late(ttl: int | None, around: Surroundings) -> bool:
    """Returns True if a lock with so much left has missed a renewal."""
    if ttl is None or not around.lock_length:
        return False
    return 0 <= ttl < around.lock_length * around.renewed_above


def kind_of(row: JobRow, around: Surroundings, sighting: Sighting, parent: Parent = Parent.NONE) -> Kind:
    """Returns the verdict's kind alone: for counting, where the sentences would cost more than the rules."""
    if not row.lock_known:
        return Kind.UNKNOWN
    if row.missing:
        return Kind.MISSING_DATA
    if row.lock is None:
        return _unlocked(around, sighting)
    return _locked(row, around, sighting, parent)


def _locked(row: JobRow, around: Surroundings, sighting: Sighting, parent: Parent) -> Kind:
    """Returns the kind of a locked job: what may soon be lost comes before what merely takes long."""
    if _is_worker_lost(row, around, sighting):
        return Kind.WORKER_LOST
    if row.lock is not None and is_late(row.lock.ttl, around):
        return Kind.LATE
    if parent in (Parent.FAILED, Parent.GONE):
        return Kind.STRAY
    return Kind.OVERDUE if _is_overdue(row, around) else Kind.RUNNING


def _unlocked(around: Surroundings, sighting: Sighting) -> Kind:
    if not is_proven(sighting, around):
        return Kind.UNLOCKED
    return Kind.ABANDONED if around.watchdog_is_dead else Kind.ORPHAN


def _is_worker_lost(row: JobRow, around: Surroundings, sighting: Sighting) -> bool:
    if holder(row, around) is Holder.GONE:
        return True
    # A holder that lives would have given its lock an end by now.
    return _is_endless(row) and sighting.looks >= 2 and around.now - sighting.since >= around.stalled_interval


def _is_endless(row: JobRow) -> bool:
    return row.lock is not None and row.lock.ttl is None


def _is_overdue(row: JobRow, around: Surroundings) -> bool:
    if around.overdue_after is None or row.processed_at is None:
        return False
    return around.now - row.processed_at > around.overdue_after


def quarantined(found: Verdict) -> Verdict:
    """Marks the verdict as quarantined if the job was orphaned often enough, this time included."""
    if found.orphaned + 1 < QUARANTINE_AFTER:
        return found
    said = f"It was orphaned {found.orphaned:,} times before, within 72 h: it may crash its workers."
    suggests = Act.FAIL if found.kind.is_orphaned else found.suggests
    return replace(found, evidence=(*found.evidence, said), suggests=suggests, is_quarantined=True)


def malformed_too(found: Verdict, breaks: str) -> Verdict:
    """Turns the verdict into MALFORMED and keeps its sentences: running the job again would not help."""
    who = "The next worker" if found.kind.is_lost else "Its handler"
    return replace(
        found,
        kind=Kind.MALFORMED,
        behind=found.kind,
        evidence=(breaks, *found.evidence),
        fate=f"{found.fate} {who} will probably fail on it.",
        suggests=Act.FAIL if found.suggests is Act.REQUEUE else found.suggests,
    )


def _suggestion(kind: Kind, row: JobRow, around: Surroundings) -> Act | None:
    match kind:
        case Kind.ORPHAN | Kind.ABANDONED:
            # n8n runs a job again from the start of its workflow: no repair for what has begun.
            return Act.FAIL if around.is_n8n and row.processed_at is not None else Act.REQUEUE
        case Kind.WORKER_LOST:
            return Act.RELEASE
        case Kind.OVERDUE | Kind.STRAY:
            return Act.CANCEL
        case Kind.MISSING_DATA:
            return Act.REMOVE if row.lock is None else None
    return None


# -- evidence

_RAN_OUT = "Its lock expired: no worker renewed it."


def _running(row: JobRow, around: Surroundings, _: Sighting) -> tuple[str, ...]:
    if _is_endless(row):
        return (
            f"{_holder_words(row, around)} holds it with a lock that never expires, which Bull and BullMQ never set.",
        )
    return (f"{_holder_words(row, around)} holds it; its lock has {_left(row)} left.",)


def _late(row: JobRow, around: Surroundings, _: Sighting) -> tuple[str, ...]:
    often = f", {_renewals(around)}" if around.renews_every else ""
    said = f"Its lock has {_left(row)} of {age(around.lock_length or 0)} left: at least one renewal was missed{often}."
    if holder(row, around) is Holder.HERE:
        return said, f"Worker {shown(row.worker)} is still connected."
    last = renewed_at(row, around)
    gone = [one for one in around.left if last is not None and one.at >= last and one.ending != Ending.STOPPED]
    if not gone:
        return (said,)
    worker = who(gone[-1], row)
    return said, f"{worker[0].upper()}{worker[1:]} lost its connection {age(around.now - gone[-1].at)} ago."


def _renewals(around: Surroundings) -> str:
    every = age(around.renews_every or 0)
    return f"which come every {every} here" if around.is_rhythm_seen else f"which come every {every} by n8n's default"


def _worker_lost(row: JobRow, around: Surroundings, sighting: Sighting) -> tuple[str, ...]:
    if holder(row, around) is not Holder.GONE:
        seen = age(around.now - sighting.since)
        return (f"Its lock never expires and has not been renewed for {seen}: Bull and BullMQ never set such a lock.",)
    lock = "a lock that never expires" if _is_endless(row) else "its lock"
    return (f"{_gone_words(row, around)}, and {lock} is still there.",)


def _lockless(row: JobRow, around: Surroundings, sighting: Sighting) -> tuple[str, ...]:
    seen = around.now - sighting.since
    started = " and never started" if row.processed_at is None else ""
    since = f"for {age(seen)}" if seen >= 1000 else "since this check"
    ended = (_RAN_OUT,) if sighting.has_expired else ()
    return (f"It is active{started} and has had no lock {since}.", *ended)


def _unproven(row: JobRow, around: Surroundings, sighting: Sighting) -> tuple[str, ...]:
    said = _lockless(row, around, sighting)
    if not around.has_window:
        return *said, "It was seen once, in separate reads: the next check confirms it."
    wait = max(0, _proof_takes(around, sighting) - (around.now - sighting.since))
    if sighting.has_expired:
        return *said, f"Confirmed at the next check, in {age(wait)}."
    return *said, f"With this library a starting job briefly has no lock: confirmed in {age(wait)}."


def _abandoned(row: JobRow, around: Surroundings, sighting: Sighting) -> tuple[str, ...]:
    return *_lockless(row, around, sighting), dead_words(around)


def _overdue(row: JobRow, around: Surroundings, sighting: Sighting) -> tuple[str, ...]:
    ran, limit = around.now - (row.processed_at or around.now), around.overdue_after or 0
    return (f"It has run for {age(ran)}; the limit of this queue is {age(limit)}.", *_running(row, around, sighting))


def _missing_data(row: JobRow, around: Surroundings, _: Sighting) -> tuple[str, ...]:
    held = " A worker has its lock." if row.lock else ""
    return (f"Its id is in the list of active jobs, but its job data is missing: it was removed meanwhile.{held}",)


def _unknown(*_: object) -> tuple[str, ...]:
    return ("Its lock cannot be read: permissions are missing, or a proxy refuses the command.",)


_EVIDENCE: Mapping[Kind, Callable[[JobRow, Surroundings, Sighting], tuple[str, ...]]] = {
    Kind.RUNNING: _running,
    Kind.LATE: _late,
    Kind.WORKER_LOST: _worker_lost,
    Kind.UNLOCKED: _unproven,
    Kind.ORPHAN: _lockless,
    Kind.ABANDONED: _abandoned,
    Kind.OVERDUE: _overdue,
    Kind.MISSING_DATA: _missing_data,
    Kind.STRAY: _running,
    Kind.UNKNOWN: _unknown,
}


def _left(row: JobRow) -> str:
    return age(row.lock.ttl or 0) if row.lock else "nothing"


def _holder_words(row: JobRow, around: Surroundings) -> str:
    return f"Worker {shown(row.worker)}" if holder(row, around) is Holder.HERE else "A worker"


def _gone_words(row: JobRow, around: Surroundings) -> str:
    if not around.nobody_is_here:
        went = departures(row.worker, around)
        ago = f" lost its connection {age(around.now - went[-1].at)} ago" if went else " is no longer connected"
        return f"Worker {shown(row.worker)}{ago}"
    if around.left:
        last = around.left[-1]
        named = f", {shown(last.instance)}," if last.instance else ""
        return f"The last worker of this queue{named} lost its connection {age(around.now - last.at)} ago"
    return "No worker of this queue is connected"
