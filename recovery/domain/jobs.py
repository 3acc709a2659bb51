"""Defines a job for all libraries: states, locks, a row of a list, the whole job.

Times are milliseconds since 1970, as the libraries write them. None means: not there, or not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from recovery.domain.identifiers import JobRef, QueueRef


class JobState(StrEnum):
    """State of a job. It follows from the list or set that holds its id, never from its fields."""

    ACTIVE = "active"
    WAITING = "waiting"
    PRIORITIZED = "prioritized"
    DELAYED = "delayed"
    WAITING_CHILDREN = "waiting-children"
    COMPLETED = "completed"
    FAILED = "failed"
    PAUSED = "paused"
    UNKNOWN = "unknown"  # a hash that no list or set holds

    @property
    def is_finished(self) -> bool:
        return self in (JobState.COMPLETED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class JobLock:
    """Lock of the worker that holds a job. `ttl` None: it never expires, which no library does by itself."""

    token: str
    ttl: int | None

    @property
    def holder(self) -> str:
        """Returns what groups jobs by worker: a BullMQ token is `<worker>:<n>`, a Bull token is the process's own."""
        return self.token.rpartition(":")[0] or self.token


@dataclass(frozen=True, slots=True)
class JobRow:
    """Row of a job list: named fields only, no payload."""

    ref: JobRef
    state: JobState
    name: str = ""
    added_at: int | None = None
    processed_at: int | None = None
    finished_at: int | None = None
    due_at: int | None = None  # delayed: when it becomes runnable
    delay: int = 0
    priority: int = 0
    attempts: int = 0  # made, as the library counts them
    attempts_limit: int = 1
    starts: int | None = None  # `ats`, BullMQ ≥ 5
    stalls: int = 0
    worker: str = ""  # `pb`, BullMQ ≥ 5.3: the last *named* worker, never cleared
    progress: str = ""
    reason: str = ""  # failedReason, first line, bounded
    result: str = ""  # return value, one line, bounded
    scheduler: str = ""  # `rjk`
    parent: str = ""  # full key of the parent
    data_size: int | None = None
    lock: JobLock | None = None
    lock_known: bool = True  # False: we may not look
    missing: bool = False  # an id without a job hash
    lease_until: int | None = None  # of a job table: until when its worker has it
    heartbeat_at: int | None = None  # of a job table: when its worker was heard of last
    is_one_moment: bool = field(default=False, compare=False)  # all of it was read at once, so nothing moved meanwhile

    @property
    def id(self) -> str:
        return self.ref.id


@dataclass(frozen=True, slots=True)
class BoundedText:
    """A payload as far as it was read: undecodable bytes replaced; `size` is the whole in bytes."""

    value: str
    size: int

    @property
    def is_cut(self) -> bool:
        return len(self.value.encode("utf-8", "replace")) < self.size


@dataclass(frozen=True, slots=True)
class Job:
    """A job in full. `fields` holds every field of its hash by name, each cut on its own."""

    row: JobRow
    data: BoundedText
    options: BoundedText
    result: BoundedText
    reason: str
    stack: tuple[str, ...]  # one entry an attempt, oldest first
    fields: tuple[tuple[str, BoundedText], ...]
    log_count: int | None
    dedup: str = ""  # `deid`
    deferred_failure: str = ""  # `defa`
    has_children: bool = False


@dataclass(frozen=True, slots=True)
class JobRowPage:
    """A window of a list. `next` is a cursor to hand back for the following one, "" at the end."""

    rows: tuple[JobRow, ...]
    total: int | None
    next: str = ""
    previous: str = ""


@dataclass(frozen=True, slots=True)
class LogPage:
    """A window of a job's own `:logs`, oldest first."""

    lines: tuple[str, ...]
    start: int
    total: int | None


@dataclass(frozen=True, slots=True)
class JobRelative:
    """A parent or a child, perhaps in another queue. `outcome`: pending, processed, failed, ignored, unsuccessful."""

    ref: JobRef | None  # None when the key is not one we can split
    key: str
    outcome: str
    state: JobState = JobState.UNKNOWN
    name: str = ""


@dataclass(frozen=True, slots=True)
class JobFamily:
    parent: JobRelative | None
    children: tuple[JobRelative, ...] = ()
    total: int | None = 0  # children in all; more than are listed when the window is full


@dataclass(frozen=True, slots=True)
class SchedulerRow:
    """A job scheduler (BullMQ ≥ 5.16) or a repeatable job (older, and Bull)."""

    queue: QueueRef
    id: str
    name: str = ""
    pattern: str = ""  # cron
    every: int | None = None  # ms
    timezone: str = ""
    next_at: int | None = None
    runs: int | None = None  # `ic`
    limit: int | None = None
    ends_at: int | None = None


@dataclass(frozen=True, slots=True)
class JobSearchSlice:
    """Slice of a search: what it found, how far it came, and the cursor to go on ("" at the end)."""

    rows: tuple[JobRow, ...] = field(default=())
    examined: int = 0
    total: int | None = 0
    next: str = ""
    skipped: int = 0  # payloads too long to be compared
