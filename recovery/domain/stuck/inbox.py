"""Result of one check of all active jobs: every stuck job, and the state of each queue's stalled check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.outlook import NEVER, QueueOutlook, blocked_text
from recovery.domain.stuck.types import StuckJob, VerdictKind

ROW_LIMIT = 1_000  # rows of an inbox: what a person can still look through; all are counted


@dataclass(frozen=True, slots=True)
class StalledCheckState:
    """State of a queue's own stalled check, as far as its key tells. `recovers_within` None: neither it nor a scanner
    ever recovers a job, or that is not known.
    """

    seen_at: int | None = None  # when its key was last there
    interval: int = 0  # ms between two passes
    is_dead: bool = False  # no worker runs it
    recovers_within: int | None = None  # ms from a holder's death until its job runs again, at worst


@dataclass(frozen=True, slots=True)
class StuckTally:
    """Counts of one queue with active jobs. `error`: why it or its deployment could not be checked; the rest is old."""

    queue: QueueRef
    kinds: Mapping[VerdictKind, int] = field(default_factory=dict)
    people: int = 0  # jobs that only a person can recover
    looked: int = 0
    left_out: int = 0  # active jobs beyond the limit of a look
    checked_at: int = 0
    watchdog: StalledCheckState = StalledCheckState()
    error: str = ""
    outlook: QueueOutlook = field(default_factory=QueueOutlook)
    # Jobs with a lock by the worker that is written in them. Beside workers without a name that is no proof.
    holders: Mapping[str, int] = field(default_factory=dict)

    @property
    def stuck(self) -> int:
        return sum(count for kind, count in self.kinds.items() if kind.urgency)

    @property
    def orphans(self) -> int:
        """Returns the number of orphaned jobs, with the abandoned ones."""
        return sum(count for kind, count in self.kinds.items() if kind.is_orphaned)

    @property
    def lost(self) -> int:
        return sum(count for kind, count in self.kinds.items() if kind.is_lost)

    @property
    def unpromised(self) -> StuckTally:
        """Returns the counts as they are while no scanner recovers jobs. Recoveries by the library still count."""
        is_alone = self.watchdog.is_dead or self.outlook.by is PolicyScanner.STARTUP_SWEEP
        people = self.people + (self.outlook.promised if is_alone else 0)
        dog = replace(self.watchdog, recovers_within=None) if is_alone else self.watchdog
        return replace(self, people=people, outlook=QueueOutlook(), watchdog=dog)


@dataclass(frozen=True, slots=True)
class StuckInbox:
    """Stuck jobs of all queues: `rows` most urgent first, at most ROW_LIMIT; `queues` are those with active jobs."""

    checked_at: int
    rows: tuple[StuckJob, ...] = ()
    queues: tuple[StuckTally, ...] = ()
    faults: tuple[str, ...] = ()  # what could not be done, one sentence each

    @property
    def looked(self) -> int:
        return sum(tally.looked for tally in self.queues)

    @property
    def stuck(self) -> int:
        return sum(tally.stuck for tally in self.queues)

    @property
    def shown(self) -> int:
        """Returns how many jobs a page lists. Jobs without a lock for a moment only count if `rows` has them."""
        moments = self.counts.get(VerdictKind.UNLOCKED, 0) - sum(
            row.verdict.kind is VerdictKind.UNLOCKED for row in self.rows
        )
        return self.stuck - moments

    @property
    def people(self) -> int:
        return sum(tally.people for tally in self.queues)

    @property
    def counts(self) -> Mapping[VerdictKind, int]:
        found: dict[VerdictKind, int] = {}
        for tally in self.queues:
            for kind, count in tally.kinds.items():
                found[kind] = found.get(kind, 0) + count
        return found

    def unpromised(self, why: str) -> StuckInbox:
        """Returns the stuck jobs as they are while no scanner recovers anything; `why` is the clause that says so."""
        dogs = {tally.queue: tally.watchdog for tally in self.queues}
        rows = tuple(without_scanner_recovery(row, dogs.get(row.job.queue), why) for row in self.rows)
        return replace(self, rows=rows, queues=tuple(tally.unpromised for tally in self.queues))

    def tally(self, ref: QueueRef) -> StuckTally | None:
        return next((tally for tally in self.queues if tally.queue == ref), None)


def without_scanner_recovery(row: StuckJob, watchdog: StalledCheckState | None, why: str) -> StuckJob:
    """Returns the row as it is while no scanner recovers it. The stalled check of a worker comes as before."""
    told, scanner = row.verdict, row.verdict.rescuer
    if scanner is None:
        return row
    armed = blocked_text(scanner, why)
    is_alone = watchdog is None or watchdog.is_dead or scanner is PolicyScanner.STARTUP_SWEEP
    if watchdog is None or is_alone or told.until is None:
        told = replace(told, fate=f"{NEVER} in the current state. {armed}", until=None, rescuer=None)
    else:
        until = told.until + watchdog.interval
        told = replace(told, fate=f"A worker's stalled check picks it up. {armed}", until=until, rescuer=None)
    return replace(row, verdict=told)


def most_urgent_first(rows: list[StuckJob]) -> list[StuckJob]:
    """Sorts rows, most urgent first; of equal ones, the longest stuck."""
    return sorted(rows, key=lambda stuck: (-stuck.verdict.urgency, stuck.since, stuck.job))
