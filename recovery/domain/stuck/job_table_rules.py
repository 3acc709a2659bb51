"""Decides the verdict of a running row of a job table by what shows that a worker runs it.

A row is *held* by a lease or a heartbeat that was seen and counts still. It is an *orphan* when its lease is over, its
heartbeat is old or, where it has neither, its age is beyond the limit; *abandoned* when no scanner sweeps its table.
Where nothing tells, it is *unknown*: then only a starting worker knows that its rows are not being run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow
from recovery.domain.policies.enabled_scanners import EnabledScanner
from recovery.domain.stuck.job_rules import mark_malformed, mark_quarantined
from recovery.domain.stuck.outlook import FOR_NOW, NEVER, JobOutlook, blocked_scanners_text, outlook_of_row
from recovery.domain.stuck.types import LossCause, Verdict, VerdictKind
from recovery.domain.time_units import age


@dataclass(frozen=True, slots=True)
class JobTableLimits:
    """Limits for the rows of a table, in ms. `sweep` None: no scanner recovers them; it may also be blocked."""

    now: int
    lease_grace: int = 0
    heartbeat_limit: int = 0
    age_limit: int | None = None
    overdue_after: int | None = None
    sweep: EnabledScanner | None = None
    lost: int = 0  # rows of this table that are lost now
    counts_attempts: bool = False  # a column of the table does

    @property
    def swept_within(self) -> int | None:
        """Returns the ms from a row's loss until it is recovered, at worst; None: never."""
        return None if self.sweep is None or self.sweep.held else self.sweep.after + self.sweep.every


def verdict_for_row(
    row: JobRow, terms: JobTableLimits, *, owned: Sequence[JobRow] = (), orphaned: int = 0, breaks: str = ""
) -> Verdict:
    """Returns the verdict of a row. `owned`: all running rows of its owner. `orphaned`, `breaks`: as for Redis jobs."""
    kind = row_verdict_kind(row, terms)
    ahead = outlook_for_row(row, terms, orphaned=orphaned, breaks=breaks)
    fate = _fate(kind, row, terms, ahead)
    cause, hint = _cause(row, owned) if kind.is_lost else (LossCause.UNKNOWN, "")
    suggests = Action.REQUEUE if kind.is_orphaned else None
    evidence = _evidence(kind, row, terms)
    found = Verdict(kind, evidence, cause, hint, fate, ahead.at, suggests, orphaned, rescuer=ahead.rescuer)
    found = mark_quarantined(found) if kind.is_orphaned else found
    return mark_malformed(found, breaks) if breaks else found


def outlook_for_row(row: JobRow, terms: JobTableLimits, *, orphaned: int = 0, breaks: str = "") -> JobOutlook:
    """Returns the sweep's outlook for a row without a holder. A row whose data is bad it leaves to a person."""
    if breaks or not row_verdict_kind(row, terms).is_orphaned:
        return JobOutlook()
    lost_at = lost_since(row, terms)
    return outlook_of_row(
        terms.sweep, terms.now if lost_at is None else lost_at, terms.now, crowd=terms.lost, orphaned=orphaned
    )


def row_verdict_kind(row: JobRow, terms: JobTableLimits) -> VerdictKind:
    if row.lock is None and row.lock_known:
        return VerdictKind.ORPHAN if terms.swept_within is not None else VerdictKind.ABANDONED
    if _is_overdue(row, terms):
        return VerdictKind.OVERDUE
    if row.lock is None:
        return VerdictKind.UNKNOWN
    return VerdictKind.LATE if _is_late(row, terms) else VerdictKind.RUNNING


def lost_since(row: JobRow, terms: JobTableLimits) -> int | None:
    """Returns since when no lease, heartbeat or age shows that a worker runs it; None while one does."""
    if row.lock is not None or not row.lock_known:
        return None
    if row.lease_until is not None:
        return row.lease_until + terms.lease_grace
    if row.heartbeat_at is not None:
        return row.heartbeat_at + terms.heartbeat_limit
    return None if row.processed_at is None else row.processed_at + (terms.age_limit or 0)


def _is_overdue(row: JobRow, terms: JobTableLimits) -> bool:
    if terms.overdue_after is None or row.processed_at is None:
        return False
    return terms.now - row.processed_at > terms.overdue_after


def _is_late(row: JobRow, terms: JobTableLimits) -> bool:
    """Returns True if its lease is over, and only the grace is left."""
    if row.lock is None or row.lock.ttl is None or row.lease_until is None:
        return False
    return row.lock.ttl < terms.lease_grace


def _evidence(kind: VerdictKind, row: JobRow, terms: JobTableLimits) -> tuple[str, ...]:
    if kind.is_orphaned:
        swept = () if kind is VerdictKind.ORPHAN else ("No scanner checks this table now.",)
        return (_over(row, terms), *swept)
    if kind is VerdictKind.OVERDUE:
        ran, limit = terms.now - (row.processed_at or terms.now), terms.overdue_after or 0
        return f"It has run for {age(ran)}; the limit of this queue is {age(limit)}.", _held(row, terms)
    return (_held(row, terms),)


def _over(row: JobRow, terms: JobTableLimits) -> str:
    whose = f" of {printable(row.worker)}" if row.worker else ""
    if row.lease_until is not None:
        return f"The lease{whose} ended {age(terms.now - row.lease_until)} ago and was not renewed."
    if row.heartbeat_at is not None:
        heard, limit = age(terms.now - row.heartbeat_at), age(terms.heartbeat_limit)
        return f"The last heartbeat{whose} is {heard} old; the limit is {limit}."
    ran, at = age(terms.now - (row.processed_at or terms.now)), f" at {printable(row.worker)}" if row.worker else ""
    return f"It has run{at} for {ran}; the limit for a row is {age(terms.age_limit or 0)}."


def _held(row: JobRow, terms: JobTableLimits) -> str:
    who = printable(row.worker) or "A worker"
    if row.lock is None:
        return _untold(row, terms)
    left = row.lock.ttl or 0
    if row.lease_until is None:
        return f"{who} sent its last heartbeat {age(terms.now - (row.heartbeat_at or terms.now))} ago."
    if left < terms.lease_grace:
        return f"Its lease has expired; the grace period of {age(terms.lease_grace)} has {age(left)} left."
    return f"{who} holds it; its lease has {age(left - terms.lease_grace)} left."


def _untold(row: JobRow, terms: JobTableLimits) -> str:
    if row.processed_at is None:
        return "Its row does not show whether a worker runs it, nor since when."
    ran = f"It has run for {age(terms.now - row.processed_at)}"
    if terms.age_limit is None:
        return f"{ran}; its row does not show whether a worker runs it."
    return f"{ran} of {age(terms.age_limit)} that a row may run; only its age shows whether a worker may be running it."


def _fate(kind: VerdictKind, row: JobRow, terms: JobTableLimits, ahead: JobOutlook) -> str:
    if ahead.at is not None:
        return f"A sweep recovers it within {age(ahead.at - terms.now)}{_then(row, terms)}."
    if kind.is_orphaned:
        never = FOR_NOW if ahead.is_for_now else NEVER
        return f"{never}, unless a worker of this table sweeps it on startup.{blocked_scanners_text(ahead, terms.now)}"
    if kind is VerdictKind.UNKNOWN:
        return _fate_unknown(row, terms)
    if kind is VerdictKind.LATE and terms.swept_within is not None:
        return "It counts as lost unless its lease is renewed; then a sweep recovers it."
    return "Nothing happens: its worker keeps running it."


def _fate_unknown(row: JobRow, terms: JobTableLimits) -> str:
    if terms.age_limit is None or row.processed_at is None:
        return "It stays until its worker finishes it, or a starting worker sweeps it."
    if terms.swept_within is None:
        return "Beyond that age it counts as lost, and no scanner checks this table."
    return "Beyond that age a sweep recovers it."


def _then(row: JobRow, terms: JobTableLimits) -> str:
    if terms.counts_attempts and row.attempts + 1 >= row.attempts_limit:
        return f"; its {row.attempts_limit:,} attempts are used up then, so it fails"
    return ", and it waits again"


def _cause(row: JobRow, owned: Sequence[JobRow]) -> tuple[LossCause, str]:
    """Returns the cause that the owner's other rows show. A single row shows nothing."""
    others = [one for one in owned if one.ref != row.ref]
    if not row.worker or not others:
        return LossCause.UNKNOWN, ""
    alive = sum(one.lock is not None for one in others)
    if alive:
        return LossCause.STARVED, f"{printable(row.worker)} is alive: it still holds {_rows(alive)}."
    return LossCause.CRASHED, f"{printable(row.worker)} holds none of its {_rows(len(others) + 1)} any more."


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
