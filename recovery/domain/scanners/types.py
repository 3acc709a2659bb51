"""Defines the scanners that are shown, and the report of one run: what was checked, found, done and blocked."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import JobRef


class ScannerKind(StrEnum):
    """Scanners that are shown, in the order of the page. Collect, discover and orphan-watch run every few seconds."""

    COLLECT = "collect"
    DISCOVER = "discover"
    ORPHAN_WATCH = "orphan-watch"
    STALE_CHECK = "stale-check"
    AUTO_RETRY = "auto-retry"
    STARTUP_SWEEP = "startup-sweep"
    PRUNE = "prune"

    @property
    def may_act(self) -> bool:
        """Returns True if the scanner can be enabled to change jobs."""
        return self in _ACTING

    @property
    def can_pause(self) -> bool:
        """Returns False for scanners whose snapshot and list of queues all pages need."""
        return not self.feeds_pages

    @property
    def looks_on(self) -> bool:
        """Returns True if a pause only stops its actions: it still checks, as pages need its results."""
        return self is ScannerKind.ORPHAN_WATCH

    @property
    def can_be_ordered(self) -> bool:
        """Returns True if a run can be requested. Collecting and discovering go on all the time anyway."""
        return not self.feeds_pages

    @property
    def feeds_pages(self) -> bool:
        """Returns True if it must not wait for the database: its runs have no rows, and the last one shows errors."""
        return self in (ScannerKind.COLLECT, ScannerKind.DISCOVER)

    @property
    def is_frequent(self) -> bool:
        """Returns True if it runs so often that only runs with news are worth a row."""
        return self in _FREQUENT

    @property
    def purpose(self) -> str:
        """Returns one sentence: what it looks for, and does about it."""
        return _PURPOSE[self]


class ScanStatus(StrEnum):
    """State of a stored run."""

    WAITING = "waiting"  # requested; the scheduler starts it within a second
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


_ACTING = frozenset(
    {ScannerKind.ORPHAN_WATCH, ScannerKind.STALE_CHECK, ScannerKind.AUTO_RETRY, ScannerKind.STARTUP_SWEEP}
)
_FREQUENT = frozenset({ScannerKind.COLLECT, ScannerKind.DISCOVER, ScannerKind.ORPHAN_WATCH, ScannerKind.STARTUP_SWEEP})
_PURPOSE = {
    ScannerKind.COLLECT: "Counts every queue and its workers, for the pages and for the other scanners.",
    ScannerKind.DISCOVER: "Finds queues and the library that they run on.",
    ScannerKind.ORPHAN_WATCH: "Checks all active jobs for those whose worker is gone, and requeues them.",
    ScannerKind.STALE_CHECK: (
        "Checks in depth what has been stuck for long: lost locks, locks that never expire, missing job data."
    ),
    ScannerKind.AUTO_RETRY: "Auto-retries failed jobs slowly, and stops when they fail again.",
    ScannerKind.STARTUP_SWEEP: "Checks job tables for rows left running by a process that has ended.",
    ScannerKind.PRUNE: "Removes data that is past its retention.",
}


@dataclass(frozen=True, slots=True)
class ScannerFinding:
    """A job that a scanner found. `outcome` None: nothing was tried, and `policy` says why not.

    `job.id` "" is the queue itself. `policy`: what allowed or blocked it, in one sentence.
    """

    job: JobRef
    what: str
    policy: str
    act: Action | None = None
    outcome: Outcome | None = None
    why: str = ""
    audit: int | None = None


@dataclass(frozen=True, slots=True)
class ScannerReport:
    """Report of one run. `holds`: sentences of the safety limits that blocked something. `faults`: what could not be
    checked or done.

    `count`: how many it found, where not each of them is among `finds`. `reached`: how many of the places to check
    could be checked, where it may be that none of them holds anything. `is_refused`: the store does not let its user do
    what was to be done.
    """

    looked: int = 0
    finds: tuple[ScannerFinding, ...] = ()
    holds: tuple[str, ...] = ()
    faults: tuple[str, ...] = field(default=())
    count: int = 0
    is_refused: bool = False
    reached: int = 0

    @property
    def has_looked(self) -> bool:
        """Returns True if any place was checked, or no check failed. One place that is away is no failed run."""
        return bool(self.looked or self.reached or not self.faults)

    @property
    def found(self) -> int:
        return max(self.count, len(self.finds))

    @property
    def acted(self) -> int:
        return sum(find.outcome is Outcome.DONE for find in self.finds)

    @property
    def refused(self) -> int:
        return sum(find.outcome not in (None, Outcome.DONE) for find in self.finds)
