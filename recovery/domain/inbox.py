"""What one look at all active jobs found: every job that wants an eye, and how each queue is watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.domain.refs import QueueRef
from recovery.domain.verdicts import Kind, Stuck

ROW_LIMIT = 1_000  # rows of an inbox: what a person can still look through; all are counted


@dataclass(frozen=True, slots=True)
class Watchdog:
    """A queue's own stalled check, as far as its key tells. `recovers_within` None: neither it nor a scanner ever will,
    or nobody knows.
    """

    seen_at: int | None = None  # when its key was last there
    interval: int = 0  # ms between two passes
    is_dead: bool = False  # nobody runs it
    recovers_within: int | None = None  # ms from a holder's death until its job runs again, at worst


@dataclass(frozen=True, slots=True)
class Tally:
    """One queue with active jobs. `error`: why it, or its deployment, could not be looked at; then all else is old."""

    queue: QueueRef
    kinds: Mapping[Kind, int] = field(default_factory=dict)
    people: int = 0  # jobs that nothing but a person will put right
    looked: int = 0
    left_out: int = 0  # active jobs beyond the limit of a look
    checked_at: int = 0
    watchdog: Watchdog = Watchdog()
    error: str = ""
    rescued: int = 0  # of the abandoned: those that a scanner puts right by itself
    # Jobs with a lock by the worker that is written in them. Beside workers without a name that is no proof.
    holders: Mapping[str, int] = field(default_factory=dict)

    @property
    def stuck(self) -> int:
        return sum(count for kind, count in self.kinds.items() if kind.urgency)


@dataclass(frozen=True, slots=True)
class Inbox:
    """`rows` most urgent first, at most ROW_LIMIT; `queues` are those that had something active."""

    checked_at: int
    rows: tuple[Stuck, ...] = ()
    queues: tuple[Tally, ...] = ()
    faults: tuple[str, ...] = ()  # what could not be done, one sentence each

    @property
    def looked(self) -> int:
        return sum(tally.looked for tally in self.queues)

    @property
    def stuck(self) -> int:
        return sum(tally.stuck for tally in self.queues)

    @property
    def people(self) -> int:
        return sum(tally.people for tally in self.queues)

    @property
    def counts(self) -> Mapping[Kind, int]:
        found: dict[Kind, int] = {}
        for tally in self.queues:
            for kind, count in tally.kinds.items():
                found[kind] = found.get(kind, 0) + count
        return found

    def tally(self, ref: QueueRef) -> Tally | None:
        return next((tally for tally in self.queues if tally.queue == ref), None)


def ordered(rows: list[Stuck]) -> list[Stuck]:
    """Most urgent first; of equal ones, the longest stuck."""
    return sorted(rows, key=lambda stuck: (-stuck.verdict.urgency, stuck.since, stuck.job))
