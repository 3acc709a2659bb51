"""Defines what is known around an active job for its verdict: its workers, the stalled check, the queue's limits, and
earlier observations. All of it is frozen; None means not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from recovery.domain.n8n.versions import Version
from recovery.domain.policies.enabled_scanners import NO_SCANNERS, EnabledScanners

STALLED_INTERVAL = 30_000  # ms; what both libraries use by default
RENEWED_ABOVE = 0.4  # the libraries renew at half of a lock's length; a busy event loop may be a tenth late
_RENEWED_ABOVE_AT_MOST = 0.75  # of a lock that is renewed far more often than it has to be
_MISSED_AFTER = 1.5  # renewal intervals: an event loop that is busy for half of one has missed nothing
QUARANTINE_AFTER = 3  # orphaned so often within QUARANTINE_WINDOW: whatever it does, it kills its worker
QUARANTINE_WINDOW = 72 * 3_600_000  # ms
CHANGES_KEPT = 50  # of workers that went, and of those that came, for each queue
CHANGES_KEPT_FOR = 3_600_000  # ms: an older one explains nothing that is found now


def renewed_above(every: int, length: int) -> float:
    """Returns the share of a lock's length that is left of every lock that has missed no renewal.

    A lock that is renewed every 10 s of its 60 s has missed one when 45 s are left: a rule made for libraries that
    renew at half of the length would say so 21 s later.
    """
    return max(RENEWED_ABOVE, min(_RENEWED_ABOVE_AT_MOST, 1 - _MISSED_AFTER * every / length)) if length else 0.0


class ParentState(StrEnum):
    """State of a job's parent."""

    NONE = ""
    ALIVE = "alive"
    FAILED = "failed"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """Arrival or departure of a worker's connection. `name` is "" when the application gave none."""

    name: str
    at: int
    host: str = ""  # from where it was connected: a server, else a host
    cpu: float | None = None  # percent, of that server then
    connection: str = ""  # as `Worker.link` has it
    since: int | None = None  # when it was made
    instance: str = ""  # the process of n8n that it was, as n8n's registry names it
    ending: str = ""  # of that process (domain/n8n/instances.py); "": not known yet
    gave_up_after: int | None = None  # seconds that it waited for its jobs after SIGTERM, as its log says


@dataclass(frozen=True, slots=True)
class LocklessObservation:
    """Time for which a job has been seen active and without a lock while nothing else of it changed."""

    since: int  # ms: the first look that saw it so
    looks: int = 1
    # Seen active and lock-less in one moment: between two reads of its lock nothing had started it anew.
    is_atomic: bool = False
    cpu: float | None = None  # percent, of its holder's server at the first look
    has_expired: bool = False  # its lock was followed until it ran out (lock_expiry)


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """Context of one queue at one moment."""

    now: int
    has_window: bool = True  # Bull, BullMQ ≤ 4: a job is active for a moment before it is locked
    follows_locks: bool = False  # Bull: whatever happens to a job that had its lock shows in the job (lock_expiry)
    workers: int | None = None
    listed_at: int | None = None  # when that was asked; None: now
    names: frozenset[str] = frozenset()  # of the connected workers that have one
    connections: frozenset[str] = frozenset()  # of all connected workers, as `Worker.link` has them
    # From where they are connected, each a server or else a host; by name, "" for those without one.
    hosts: Mapping[str, str] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)  # server → percent of its CPU
    # Connected workers without a name: one of them may hold any job, whatever name is written in it.
    unnamed: int = 0
    left: tuple[WorkerChange, ...] = ()  # workers that went, oldest first
    came: tuple[WorkerChange, ...] = ()
    stalled_check_ttl: int | None = None
    watchdog_seen_at: int | None = None  # when its key was last there
    watched_since: int | None = None  # since when we look: nothing is said of the time before
    stalled_interval: int = STALLED_INTERVAL
    lock_length: int | None = None  # the longest seen
    renewed_above: float = RENEWED_ABOVE  # a lock that has less of its length left has missed a renewal
    renews_every: int | None = None  # ms between two renewals, as seen or as n8n does it; None: as the library does
    is_rhythm_seen: bool = False  # `renews_every` was measured
    is_paused: bool = False
    overdue_after: int | None = None
    restarted_at: int | None = None  # when Redis was first seen with another run id
    lost_together: int = 0  # jobs of this queue that lost their locks in one look with this one
    lost: int = 0  # jobs of this queue that are lost now
    cpu: float | None = None  # percent, of the server that runs the holder, when the job was first seen lost
    server: str = ""
    is_n8n: bool = False  # running a job again runs its workflow again from the start
    # Whether the stalled check of this n8n fails a lost job, or requeues it; None: its version is not known.
    fails_stalled: bool | None = None
    n8n_version: Version | None = None  # of its mains; None: not n8n's, or not known
    rescuers: EnabledScanners = NO_SCANNERS  # scanners that recover its lost jobs

    @property
    def nobody_is_here(self) -> bool | None:
        """Returns True if no worker is connected, None if that is not known. A worker may hide its name, so an empty
        list needs a second witness: its workers were seen to leave, or no worker has run the stalled check lately.
        """
        if self.workers is None:
            return None
        if self.workers:
            return False
        if self.stalled_check_ttl is None:
            return True
        return True if self.left and not self._was_checked_after(self.left[-1].at) else None

    def was_watched_since(self, moment: int | None) -> bool:
        """Returns True if the scheduler watched since before that, so that each departure since was noticed."""
        return moment is not None and self.watched_since is not None and self.watched_since <= moment

    def knows_all_since(self, moment: int | None) -> bool:
        """Returns True if every worker since then is known: connected now, or among those that left."""
        is_kept = moment is not None and self.now - moment < CHANGES_KEPT_FOR and len(self.left) < CHANGES_KEPT
        return is_kept and self.was_watched_since(moment)

    @property
    def watchdog_silent_for(self) -> int | None:
        """Returns how long no worker has run the stalled check, as far as watched; None while its key is there."""
        known = [at for at in (self.watchdog_seen_at, self.watched_since) if at is not None]
        if self.stalled_check_ttl is not None or not known:
            return None
        return max(0, self.now - max(known))

    @property
    def watchdog_is_dead(self) -> bool:
        """Returns True if no worker will run the stalled check: none is connected, or those that are leave it out."""
        if self.nobody_is_here:
            return True
        silent = self.watchdog_silent_for
        # Two intervals: the key ends a moment before the next check begins, and that one may be late.
        return silent is not None and silent > 2 * self.stalled_interval

    @property
    def rescued_within(self) -> int:
        """Returns the ms until the next stalled check, at most."""
        return self.stalled_interval if self.stalled_check_ttl is None else self.stalled_check_ttl

    def _was_checked_after(self, moment: int) -> bool:
        """Returns True if the stalled check ran after that moment: its key lives for one interval, and more time is
        left on it than an earlier one would have.
        """
        left = self.stalled_interval - (self.now - moment)
        return self.stalled_check_ttl is not None and self.stalled_check_ttl > left + _SLACK


_SLACK = 2_000  # ms: two looks, two clocks
