"""Settings of workers as far as running queues show them in Redis; each value is a lower bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.tuning.findings import Severity, TuningFinding, number_text, seconds_text
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.worker_setup import WorkerSetup

_CLOCK = 1.0  # seconds by which a reading may be off
_EVICTS = "maxmemory-policy is "


@dataclass(frozen=True, slots=True)
class ObservedQueue:
    """Settings that one queue shows, in seconds; None: nothing was seen. `lock`: the longest time left of a lock.
    `renewed`: by how much the shortest was below it, so renewals are at least that far apart. `interval`: the longest
    time left of the stalled check's key.
    """

    queue: QueueRef
    library: QueueLibrary
    label: str = ""  # of library and version
    is_n8n: bool = False
    active: int | None = None
    workers: int | None = None
    lock: float | None = None
    renewed: float | None = None
    interval: float | None = None
    is_unwatched: bool = False  # jobs are active, and no worker runs the stalled check
    recovers_within: float | None = None  # from a worker's death until its job runs again; None: never, or unknown

    @property
    def timing(self) -> WorkerTiming | None:
        """Timing as far as it is known; None if no lock or no stalled check was seen."""
        if self.lock is None or self.interval is None:
            return None
        usual = self.lock / (6 if self.is_n8n else 2)
        return WorkerTiming(self.library, self.lock, min(max(self.renewed or 0.0, usual), self.lock), self.interval)


@dataclass(frozen=True, slots=True)
class ObservedStore:
    """A deployment. `warnings` are its own; `holds_state`: the state store is the same database."""

    name: str
    warnings: tuple[str, ...] = ()
    holds_state: bool = False


@dataclass(frozen=True, slots=True)
class ObservedSettings:
    """Settings that the running queues show. `left_out`: queues beyond the limit of one reading. `trouble`: read
    failures.
    """

    queues: tuple[ObservedQueue, ...] = ()
    stores: tuple[ObservedStore, ...] = ()
    left_out: int = 0
    trouble: tuple[str, ...] = field(default=())


def findings(running: ObservedSettings) -> Iterator[TuningFinding]:
    """Finds problems of what runs, whatever the files say."""
    for store in running.stores:
        if store.holds_state:
            says = "The state store is the database of these queues: if it is full or flushed, both are affected."
            remedy = "Another server, or another database number, in UNSTALL_STATE_URL."
            yield TuningFinding("shared-database", Severity.HIGH, store.name, says, remedy=remedy)
        for warning in store.warnings:
            if warning.startswith(_EVICTS):
                remedy = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file."
                yield TuningFinding("eviction", Severity.HIGH, store.name, warning, remedy=remedy)
    for seen in running.queues:
        if seen.is_unwatched:
            within = seen.recovers_within
            rescue = (
                "nothing will ever recover them"
                if within is None
                else f"only a scanner recovers them, within {seconds_text(within)} of their worker's death"
            )
            says = f"Jobs are active and no worker runs the stalled check: {rescue}."
            remedy = "Start a worker, or leave skipStalledCheck out of its options."
            severity = Severity.HIGH if within is None else Severity.MEDIUM
            yield TuningFinding("nobody-checks", severity, seen.queue.label, says, remedy=remedy)


def differences(running: ObservedSettings, setups: Sequence[WorkerSetup]) -> Iterator[TuningFinding]:
    """Finds workers of n8n that run with other values than the files have; a longer time than configured is proof."""
    for setup in setups:
        for seen in running.queues if setup.version else ():
            pairs = (
                ("lock", seen.lock, setup.timing.lock),
                ("check", seen.interval, setup.timing.stalled_interval),
            )
            for what, found, written in pairs if seen.is_n8n else ():
                if found is not None and found > written + _CLOCK:
                    says = (
                        f"{seen.queue.label} runs with a {what} of {seconds_text(found)}: the files do not match the "
                        "running workers."
                    )
                    arithmetic = f"seen {number_text(found)} s, written {number_text(written)} s"
                    remedy = "Restart all its workers with these files, or analyze the files that they run with."
                    yield TuningFinding("not-in-force", Severity.MEDIUM, setup.where, says, arithmetic, remedy)
