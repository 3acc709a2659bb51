"""Defines the snapshot: all queues, workers and deployments at one moment. None always means unknown, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from recovery.domain.identifiers import QueueRef


class JobCounts(NamedTuple):
    """Number of jobs in each state. A tuple, because a snapshot makes a thousand of them."""

    waiting: int | None = None
    active: int | None = None
    prioritized: int | None = None
    delayed: int | None = None
    waiting_children: int | None = None
    completed: int | None = None
    failed: int | None = None
    paused: int | None = None  # the `paused` list of Bull and BullMQ ≤ 5

    @property
    def backlog(self) -> int | None:
        """Returns the number of jobs that a worker could take now, or could if the queue were not paused."""
        parts = (self.waiting, self.prioritized, self.paused)
        return None if None in parts else sum(part or 0 for part in parts)


class QueueLibrary(StrEnum):
    BULL = "bull"
    BULLMQ = "bullmq"
    PRO = "bullmq-pro"
    TABLE = "table"  # rows of a SQL database
    N8N = "n8n"  # executions in n8n's own database
    UNKNOWN = "unknown"


class LibraryVersion(NamedTuple):
    """Library and version of a queue, as far as Redis shows it.

    `major` is that of the workers (they decide what the scripts do); `version` is what a producer wrote. `evidence`
    lists what was seen, for the queue page. `read_only` holds the reason when actions are off.
    """

    library: QueueLibrary = QueueLibrary.UNKNOWN
    major: int | None = None
    version: str = ""
    evidence: tuple[str, ...] = ()
    read_only: str = ""
    mixed: bool = False  # two generations at work on one queue
    upto: int | None = None  # what is in Redis fits several majors: `major` is the lowest, this the highest

    @property
    def label(self) -> str:
        names = {
            QueueLibrary.BULL: "Bull",
            QueueLibrary.BULLMQ: "BullMQ",
            QueueLibrary.PRO: "BullMQ Pro",
            QueueLibrary.TABLE: "Table",
        }
        names |= {QueueLibrary.N8N: "Executions of n8n"}
        name = names.get(self.library, "unknown")
        number = ".".join(self.version.split(".")[:2]) or (str(self.major) if self.major else "")
        if self.upto and not self.version:
            number = f"{self.major}–{self.upto}" if self.major else f"≤ {self.upto}"
        return f"{name} {number}".strip()


class Rates(NamedTuple):
    """Finished jobs per minute, newest minute first. `source`: "library", "recorded", or "" when unknown.

    `left` counts jobs that went away: the only trace of finished ones where the application removes them at once.
    """

    completed: tuple[int | None, ...] = ()
    failed: tuple[int | None, ...] = ()
    source: str = ""
    left: tuple[int | None, ...] = ()


class QueueSample(NamedTuple):
    """State of one queue at one moment."""

    ref: QueueRef
    flavour: LibraryVersion = LibraryVersion()
    counts: JobCounts = JobCounts()
    is_paused: bool | None = None
    concurrency: int | None = None  # meta.concurrency, global
    limit_max: int | None = None  # meta.max
    limit_duration: int | None = None  # meta.duration, ms
    limited_for: int | None = None  # ms left on the rate limiter's key
    oldest_waiting_at: int | None = None
    oldest_active_at: int | None = None
    next_delayed_at: int | None = None
    stalled_check_ttl: int | None = None  # ms left on `stalled-check`; None: no worker has checked lately
    workers: int | None = None  # None: no permission to list them
    rates: Rates = Rates()
    added: int | None = None  # the queue's own id counter: jobs ever added
    error: str = ""  # why this queue could not be read
    is_old: bool = False  # with an error: what was read last, before it
    read_at: int | None = None  # when these numbers were read: at the snapshot, or a tick before it; None: never


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as CLIENT LIST shows it. `name` is "" when the application gave none."""

    queue: QueueRef
    name: str
    address: str
    age: int  # seconds connected
    idle: int  # seconds since its last command
    command: str
    connection: str  # Redis's own client id

    @property
    def link(self) -> str:
        """Returns a name of this connection alone: ids repeat in a cluster, and a unix socket has no address."""
        return f"{self.address} {self.connection}"


@dataclass(frozen=True, slots=True)
class DeploymentSample:
    """State of one deployment at one moment: how it answered, and what it is."""

    name: str
    target: str  # password hidden
    taken_at: int
    took_ms: float = 0.0
    commands: int = 0
    error: str = ""  # empty: it answered
    advice: str = ""
    server: str = ""  # "Valkey 9.1.2", "Redis 7.0.15"
    run_id: str = ""
    workers_known: bool = True
    warnings: tuple[str, ...] = ()  # eviction policy, replica, and the like


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts of all queues at one moment. A queue of a dead deployment keeps its last good sample."""

    number: int
    taken_at: int
    deployments: tuple[DeploymentSample, ...]
    queues: tuple[QueueSample, ...]
    workers: tuple[Worker, ...] = ()

    def queue(self, ref: QueueRef) -> QueueSample | None:
        return next((sample for sample in self.queues if sample.ref == ref), None)

    def deployment(self, name: str) -> DeploymentSample | None:
        return next((sample for sample in self.deployments if sample.name == name), None)
