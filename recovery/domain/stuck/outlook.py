"""Predicts what happens to a lost job without intervention: what recovers it, how, and when at the latest; or that
nothing does.

Rows of job tables have no library that recovers them, so theirs is short (`of_row`); what n8n does with a job is in
`domain/n8n/mismatch_text.py`.

Nothing else predicts this. The library's own stalled check counts while a worker runs it, a scanner while its policy
lets it act and nothing blocks it (`EnabledScanners`, `domain/scanners/blockers.py`). No recovery by a scanner is
promised for what it leaves to a person: quarantined jobs, bad data, n8n. An enabled scanner that is blocked is
named with its blocker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from recovery.domain.jobs import JobRow
from recovery.domain.n8n.stalled_grace import STALLED_GRACE, error_after, fails_stalled
from recovery.domain.policies.enabled_scanners import LATE, EnabledScanner
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.context import QUARANTINE_AFTER, LocklessObservation, ParentState, VerdictContext
from recovery.domain.stuck.holders import GONE_FOR, HolderPresence, gone_for, holder_presence
from recovery.domain.stuck.lock_expiry import ENDED_FOR
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import age

LOOKS_EVERY = 5_000  # ms: interval of the orphan-watch, where it is not enabled and so not known
REQUEUES, RELEASES, REMOVES = "requeues it", "releases its lock and requeues it", "removes its id"
NEVER, NEVER_THEN = "Never recovered", "it is never recovered"
FOR_NOW, FOR_NOW_THEN = "Not recovered for now", "it is not recovered for now"


@dataclass(frozen=True, slots=True)
class RecoveryEstimate:
    """Recovery by one scanner. `at`: when it is done at the latest (ms). `held`: what blocks it; "": nothing does.
    `ends`: when the blocker ends by itself.
    """

    scanner: PolicyScanner
    does: str
    at: int
    held: str = ""
    ends: int | None = None


@dataclass(frozen=True, slots=True)
class JobOutlook:
    """Outlook of one job. `at`: when it is recovered at the latest, None: never, or not known. `first`: the scanner
    that is sooner than the library, None: there is none. `held`: those that would recover it and are blocked.
    """

    at: int | None = None
    first: RecoveryEstimate | None = None
    held: tuple[RecoveryEstimate, ...] = field(default=())

    @property
    def is_for_now(self) -> bool:
        """Returns True if nothing recovers it now, but what blocks a scanner ends by itself."""
        return self.at is None and any(one.ends is not None for one in self.held)

    @property
    def rescuer(self) -> PolicyScanner | None:
        return self.first.scanner if self.first else None


@dataclass(frozen=True, slots=True)
class QueueOutlook:
    """Outlook of the lost jobs of one queue. `promised`: those that a scanner recovers, the last of them by `by` at
    `until` (ms); `rescued`: the abandoned among them.
    """

    rescued: int = 0
    promised: int = 0
    until: int | None = None
    by: PolicyScanner | None = None
    is_for_now: bool = False  # what blocks a scanner ends by itself

    def words(self, count: int, now: int) -> str:
        """Returns the clause for so many abandoned jobs; first that for those that nothing will recover."""
        left = count - self.rescued
        if left > 0:
            those = "it" if count == 1 else "them" if not self.rescued else f"{left:,} of them"
            return f"nothing recovers {those} for now" if self.is_for_now else f"nothing will ever recover {those}"
        return f"{self.by or 'a scanner'} recovers {'it' if count == 1 else 'them'}{self._within(now)}"

    def _within(self, now: int) -> str:
        return "" if self.until is None else f" within {age(max(0, self.until - now))}"


def outlook_of_queue(outlooks: Iterable[tuple[VerdictKind, JobOutlook]]) -> QueueOutlook:
    """Combines the outlooks of all lost jobs of a queue."""
    rescued, promised, last, is_for_now = 0, 0, None, False
    for kind, one in outlooks:
        is_for_now |= one.is_for_now
        if one.first is not None:
            promised += 1
            rescued += kind is VerdictKind.ABANDONED
            last = one.first if last is None or one.first.at > last.at else last
    if last is None:
        return QueueOutlook(is_for_now=is_for_now)
    return QueueOutlook(rescued, promised, last.at, last.scanner, is_for_now)


def outlook_of_job(
    kind: VerdictKind,
    row: JobRow,
    around: VerdictContext,
    sighting: LocklessObservation,
    *,
    orphaned: int = 0,
    is_malformed: bool = False,
) -> JobOutlook:
    """Returns the outlook of one job. `kind`: as its lock tells. Sightings and earlier incidents as for a verdict."""
    by_library = _by_library(kind, row, around)
    if is_malformed or (orphaned + 1 >= QUARANTINE_AFTER and kind is not VerdictKind.MISSING_DATA):
        return JobOutlook(by_library)
    said = sorted(_all(kind, row, around, sighting), key=lambda one: one.at)
    first = next((one for one in said if not one.held), None)
    held = tuple(one for one in said if one.held)
    if first is None or (by_library is not None and by_library <= first.at):
        return JobOutlook(by_library, held=held)
    return JobOutlook(first.at, first, held)


def outlook_of_row(
    sweep: EnabledScanner | None, lost_at: int, now: int, *, crowd: int = 0, orphaned: int = 0
) -> JobOutlook:
    """Returns the outlook of a job table's row without a holder since `lost_at`: only the sweep can recover it, as
    there is no library.

    An empty one for rows that the sweep leaves to a person.
    """
    if sweep is None or orphaned + 1 >= QUARANTINE_AFTER:
        return JobOutlook()
    done_at = sweep.run_after(lost_at + sweep.after, now, crowd=crowd)
    one = RecoveryEstimate(sweep.scanner, REQUEUES, done_at, sweep.held, sweep.ends)
    return JobOutlook(held=(one,)) if sweep.held else JobOutlook(done_at, one)


def recovers_within(around: VerdictContext) -> int | None:
    """Returns the ms from a holder's death until its job runs again, at worst; None: never, or not known. For n8n 2 and
    later: until its execution is an error.

    The library's part is the worst that `domain/tuning/prediction.py` reckons with: the first check may come as late as
    the lock's end or two intervals after the death, and the one that takes the job two intervals later.
    """
    if around.lock_length is None:
        return None
    lock, interval = around.lock_length, around.stalled_interval
    proof = _proof_takes(around)
    free = [] if around.is_n8n else [one for one in (around.rescuers.watch, around.rescuers.stale) if one]
    within = [lock + max(proof, one.after) + one.every for one in free if not one.held]
    if not around.watchdog_is_dead:
        within.append(max(lock, 2 * interval) + 2 * interval + _n8n_takes(around))
    return min(within, default=None)


def _n8n_takes(around: VerdictContext) -> int:
    """Returns the ms from the failure of a job by n8n's stalled check until its execution is an error, at most."""
    if not around.is_n8n or (around.n8n_version is None and around.fails_stalled is False):
        return 0
    after = error_after(around.n8n_version)
    return STALLED_GRACE if after is None else after


def _all(
    kind: VerdictKind, row: JobRow, around: VerdictContext, sighting: LocklessObservation
) -> Iterator[RecoveryEstimate]:
    if kind is VerdictKind.MISSING_DATA:
        yield from _of_missing_data(row, around, sighting)
    elif not around.is_n8n and (kind.is_lost or kind is VerdictKind.LATE):
        if row.lock is not None and row.lock.ttl is None:
            yield from _of_endless(row, around, sighting)
        else:
            yield from _of_lost(kind, row, around, sighting)


def _of_missing_data(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> Iterator[RecoveryEstimate]:
    """Yields the stale check's recovery. If a stalled check runs, it moves the id first: the rest is unknown."""
    stale = around.rescuers.stale
    if stale and row.lock is None and around.watchdog_is_dead:
        yield _promise(stale, REMOVES, sighting.since + stale.after, around)


def _of_endless(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> Iterator[RecoveryEstimate]:
    """Yields a recovery by the stale check, which alone touches such a lock, and only of a worker that is gone."""
    stale = around.rescuers.stale
    if stale and stale.release and row.worker and holder_presence(row, around) is HolderPresence.GONE:
        yield _promise(stale, RELEASES, sighting.since + stale.after, around)


def _of_lost(
    kind: VerdictKind, row: JobRow, around: VerdictContext, sighting: LocklessObservation
) -> Iterator[RecoveryEstimate]:
    """Yields recoveries of a job without a lock, or with one that expires by itself."""
    watch, stale = around.rescuers.watch, around.rescuers.stale
    bare_at = sighting.since if row.lock is None else around.now + (row.lock.ttl or 0)
    proof = _proof_takes(around, sighting if row.lock is None else None)
    proven_at = around.now if kind.is_orphaned else bare_at + proof
    gone = gone_for(row, around) if kind is VerdictKind.WORKER_LOST else None
    if watch and watch.release and gone is not None:
        yield _promise(watch, RELEASES, around.now + max(GONE_FOR - gone, watch.after), around)
    elif watch:
        yield _promise(watch, REQUEUES, max(proven_at, bare_at + watch.after), around)
    if stale:
        yield _promise(stale, REQUEUES, max(proven_at, bare_at + stale.after), around)


def _proof_takes(around: VerdictContext, bare: LocklessObservation | None = None) -> int:
    """Returns the ms from the first check without a lock until it is proven that no worker has the job; `bare` None:
    from the lock's end.

    A lock is followed to its end when at least one look falls between its missed renewal and its end.
    """
    if not around.has_window:
        return 0
    every = round(LATE * (around.rescuers.watch.every if around.rescuers.watch else LOOKS_EVERY))
    is_seen_late = around.follows_locks and (around.lock_length or 0) * around.renewed_above > every
    is_followed = bare.has_expired if bare else is_seen_late
    takes = min(ENDED_FOR, around.stalled_interval) if is_followed else around.stalled_interval
    return takes if bare else takes + every


def _promise(armed: EnabledScanner, does: str, ready_at: int, around: VerdictContext) -> RecoveryEstimate:
    done_at = armed.run_after(ready_at, around.now, crowd=around.lost)
    return RecoveryEstimate(armed.scanner, does, done_at, armed.held, armed.ends)


def _by_library(kind: VerdictKind, row: JobRow, around: VerdictContext) -> int | None:
    """Returns when a worker's stalled check recovers the job, or None."""
    if around.watchdog_is_dead:
        return None
    if kind in (VerdictKind.LATE, VerdictKind.WORKER_LOST):
        ttl = row.lock.ttl if row.lock else None
        return None if ttl is None else around.now + ttl + around.stalled_interval
    return around.now + around.rescued_within if kind in (VerdictKind.UNLOCKED, VerdictKind.ORPHAN) else None


# -- in words


def outlook_text(kind: VerdictKind, row: JobRow, around: VerdictContext, ahead: JobOutlook = JobOutlook()) -> str:
    """Returns one sentence, and one more for each blocked scanner where nothing else recovers the job."""
    if ahead.first is not None:
        return _rescue(kind, row, around, ahead.first)
    alone = _alone(kind, row, around)
    if ahead.at is not None:
        return alone
    if ahead.is_for_now:
        alone = alone.replace(NEVER, FOR_NOW).replace(NEVER_THEN, FOR_NOW_THEN)
    return f"{alone}{blocked_scanners_text(ahead, around.now)}"


def blocked_scanners_text(ahead: JobOutlook, now: int) -> str:
    """Returns a sentence for each scanner that would recover the job and is blocked, with its blocker."""
    return "".join(f" {blocked_text(one.scanner, one.held, one.ends, now)}" for one in ahead.held)


def text_for_n8n_version(fate: str, *, fails_stalled: bool | None) -> str:
    """Returns the same sentence for a known version of n8n."""
    return fate.replace(_N8N_THEN[None], _N8N_THEN[fails_stalled])


def blocked_text(scanner: PolicyScanner, why: str, ends: int | None = None, now: int = 0) -> str:
    """Returns a sentence about a blocked scanner. `ends`: when the blocker ends by itself."""
    for_now = "" if ends is None else f" for {age(ends - now)} more"
    return f"{scanner.value.capitalize()} is enabled, but {why}{for_now}."


def _rescue(kind: VerdictKind, row: JobRow, around: VerdictContext, first: RecoveryEstimate) -> str:
    within = f"within {age(first.at - around.now)}"
    if kind is VerdictKind.MISSING_DATA:
        return f"{_name(first)} {first.does} {within}, unless a worker runs it first, without its name and data."
    waits = _waits(around)
    if row.lock is None or row.lock.ttl is None or first.does == RELEASES:
        return f"{_name(first)} {first.does} {within}{waits}."
    unless = " unless it is renewed" if kind is VerdictKind.LATE else ""
    return f"The lock expires in {age(row.lock.ttl)}{unless}; then {first.scanner.value} {first.does}, {within}{waits}."


def _waits(around: VerdictContext) -> str:
    """Returns the clause for what keeps the job from running after its recovery."""
    if around.is_paused:
        return "; it waits then, because the queue is paused"
    return "; it waits then, because no worker is connected" if around.nobody_is_here else ""


def _name(promise: RecoveryEstimate) -> str:
    return promise.scanner.value.capitalize()


def _alone(kind: VerdictKind, row: JobRow, around: VerdictContext) -> str:
    match kind:
        case VerdictKind.LATE | VerdictKind.WORKER_LOST:
            return _expiring(kind, row, around)
        case VerdictKind.UNLOCKED | VerdictKind.ORPHAN:
            return _watched(row, around)
        case VerdictKind.ABANDONED:
            return f"{NEVER}: {_why_dead(around)}."
        case VerdictKind.MISSING_DATA:
            return _missing_data(row, around)
        case _:
            return _SAID[kind]


_SAID = {
    VerdictKind.RUNNING: "Nothing happens: its worker renews the lock.",
    VerdictKind.OVERDUE: "Nothing happens: its worker renews the lock, so it may run forever.",
    VerdictKind.STRAY: "It runs on in vain: no parent waits for its result.",
    VerdictKind.UNKNOWN: "Unknown.",
}


def dead_words(around: VerdictContext) -> str:
    """Returns the sentence that no worker runs the stalled check."""
    said = _why_dead(around)
    return f"{said[0].upper()}{said[1:]}."


def parent_words(row: JobRow, parent: ParentState) -> str:
    how = "has failed" if parent is ParentState.FAILED else "no longer exists"
    return f"Its parent {how}."


def _expiring(kind: VerdictKind, row: JobRow, around: VerdictContext) -> str:
    ttl = row.lock.ttl if row.lock else None
    if ttl is None:
        return f"{NEVER}: the lock never expires, so no stalled check picks it up."
    unless = " unless it is renewed" if kind is VerdictKind.LATE else ""
    if around.watchdog_is_dead:
        return f"The lock expires in {age(ttl)}{unless}; then {NEVER_THEN}: {_why_dead(around)}."
    within = around.stalled_interval
    told = f"a worker's stalled check picks it up within {age(within)}{_then(row, around)}"
    return f"The lock expires in {age(ttl)}{unless}; then {told}."


def _watched(row: JobRow, around: VerdictContext) -> str:
    if around.watchdog_is_dead:
        return f"{NEVER}: {_why_dead(around)}."
    within = around.rescued_within
    said = f"A worker's stalled check picks it up within {age(within)}{_then(row, around)}."
    if around.nobody_is_here is None:
        return f"{said} Whether a worker is connected is not known."
    return said


def _then(row: JobRow, around: VerdictContext) -> str:
    """Returns what the library does with it. How many stalls its workers allow is in no key; one is the default."""
    if row.stalls:
        return f"; it has stalled {_times(row.stalls)} before, so it fails unless maxStalledCount allows more"
    if around.is_n8n:
        return _n8n_then(around)
    return "; it waits then, because the queue is paused" if around.is_paused else ""


def _n8n_then(around: VerdictContext) -> str:
    version = around.n8n_version
    if not (version and fails_stalled(version)):
        return _N8N_THEN[around.fails_stalled if version is None else False]
    return f"{_FAILS}, and its execution is an error up to {_GRACE} later" if error_after(version) else _FAILS


_GRACE = age(STALLED_GRACE)
_FAILS = "; n8n fails it then"
# Where the exact version is not known.
_N8N_THEN: Mapping[bool | None, str] = {
    True: f"{_FAILS}, and from 2.41 on its execution is an error up to {_GRACE} later",
    False: "; n8n runs it again then",
    None: f"; n8n 2 and later fail it then, and from 2.41 on its execution is an error up to {_GRACE} later",
}


def _missing_data(row: JobRow, around: VerdictContext) -> str:
    if row.lock is not None:
        return f"{NEVER}: its worker cannot finish it, because its job data is missing."
    if around.watchdog_is_dead:
        return f"{NEVER} while {_why_dead(around)}; a later worker may run it without its name and data."
    within = age(around.rescued_within)
    return (
        f"The stalled check moves the id back to wait within {within}, and a worker may run it without its name and "
        "data."
    )


def _why_dead(around: VerdictContext) -> str:
    if around.nobody_is_here:
        return "no worker is connected, so no stalled check runs"
    silent = around.watchdog_silent_for
    checked = (
        f"no worker has run the stalled check for {age(silent)}" if silent is not None else "no stalled check runs"
    )
    return checked if around.workers is None else f"workers are connected, but {checked}"


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
