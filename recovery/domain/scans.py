"""What one run of a scanner came to: what it looked at, what it found, what was done, and what held it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from recovery.domain.acting import Act, Outcome
from recovery.domain.refs import JobRef


class Scan(StrEnum):
    """All scanners that are shown, in the order of the page. The first three run every few seconds."""

    COLLECT = "collect"
    DISCOVER = "discover"
    ORPHAN_WATCH = "orphan-watch"
    STALE_CHECK = "stale-check"
    RELAUNCH_FAILED = "relaunch-failed"
    STARTUP_SWEEP = "startup-sweep"
    PRUNE = "prune"

    @property
    def may_act(self) -> bool:
        """Whether there is anything in it to arm."""
        return self in _ACTING


_ACTING = frozenset({Scan.ORPHAN_WATCH, Scan.STALE_CHECK, Scan.RELAUNCH_FAILED, Scan.STARTUP_SWEEP})


@dataclass(frozen=True, slots=True)
class Find:
    """One job that a scanner stopped at. `outcome` None: nothing was tried, and `policy` says why not.

    `job.id` "" is the queue itself. `policy`: what allowed it, or what held it, in one sentence.
    """

    job: JobRef
    what: str
    policy: str
    act: Act | None = None
    outcome: Outcome | None = None
    why: str = ""
    audit: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """`holds`: sentences of the brakes that held something back. `faults`: what could not be looked at or done."""

    looked: int = 0
    finds: tuple[Find, ...] = ()
    holds: tuple[str, ...] = ()
    faults: tuple[str, ...] = field(default=())

    @property
    def acted(self) -> int:
        return sum(find.outcome is Outcome.DONE for find in self.finds)

    @property
    def refused(self) -> int:
        return sum(find.outcome not in (None, Outcome.DONE) for find in self.finds)
