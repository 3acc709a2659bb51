"""Reads what the running queues show of their workers' settings."""

from __future__ import annotations

from math import ceil

from recovery.config import Config, Deployment
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.jobs import JobState
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.queues.types import QueueLibrary, QueueSample, Snapshot
from recovery.domain.stuck.outlook import recovers_within
from recovery.domain.tuning.observed import ObservedQueue, ObservedSettings, ObservedStore
from recovery.errors import ConfigError, StoreError, UnstallError
from recovery.reads.queues import job_lists
from recovery.reads.stuck import observations
from recovery.reads.stuck import queries as stuck_queries
from recovery.reads.stuck.observations import QueueObservation
from recovery.stores.registry import registry

QUEUES_LIMIT = 20  # queues whose locks are read at once; those with the most active jobs
_LOCKS = 50  # jobs of each
_LIBRARIES = frozenset({QueueLibrary.BULL, QueueLibrary.BULLMQ})


def running(snapshot: Snapshot, config: Config, now: int) -> ObservedSettings:
    """Reads the queues of Bull and BullMQ, the busiest first. Failures are part of the result; nothing is raised."""
    readable = [sample for sample in snapshot.queues if sample.flavour.library in _LIBRARIES and not sample.error]
    ordered = sorted(readable, key=lambda sample: (-(sample.counts.active or 0), sample.ref))
    queues: list[ObservedQueue] = []
    trouble: list[str] = []
    for sample in ordered[:QUEUES_LIMIT]:
        try:
            queues.append(_seen(sample, snapshot, config, now))
        except UnstallError as error:
            trouble.append(f"{printable(sample.ref.label)}: {error}")
    trouble += [f"{one.name} does not answer: {one.error}" for one in snapshot.deployments if one.error]
    return ObservedSettings(
        tuple(queues), _stores(snapshot, config), max(0, len(ordered) - QUEUES_LIMIT), tuple(trouble)
    )


def _seen(sample: QueueSample, snapshot: Snapshot, config: Config, now: int) -> ObservedQueue:
    """Reads one queue. Remembered times are those of the orphan watch, which reads the queue more often."""
    queue = job_lists.Queue(sample.ref, sample.flavour, sample)
    memory, left = _memory(sample.ref), _ttls(queue) if sample.counts.active else []
    longest, interval = max([*left, memory.lock_length]), max(memory.interval, sample.stalled_check_ttl or 0)
    around = stuck_queries.verdict_context_of(queue, snapshot, config, now)
    within = recovers_within(around)
    return ObservedQueue(
        queue=sample.ref,
        library=sample.flavour.library,
        label=sample.flavour.label,
        is_n8n=is_n8n(sample.ref, sample.flavour),
        active=sample.counts.active,
        workers=sample.workers,
        lock=_seconds(longest) if longest else None,
        renewed=_seconds(longest - min(left)) if len(left) > 1 else None,
        interval=_seconds(interval) if interval else None,
        is_unwatched=bool(sample.counts.active) and around.watchdog_is_dead,
        recovers_within=None if within is None else _seconds(within),
    )


def _memory(ref: QueueRef) -> QueueObservation:
    """Returns what the orphan watch remembers of a queue; nothing without a state store."""
    try:
        return observations.memory(registry().state(), ref)[0]
    except (ConfigError, StoreError):
        return QueueObservation()


def _ttls(queue: job_lists.Queue) -> list[int]:
    rows = job_lists.window(queue, JobState.ACTIVE, size=_LOCKS).rows
    return [row.lock.ttl for row in rows if row.lock is not None and row.lock.ttl]


def _seconds(ms: int) -> float:
    """Rounds up to whole seconds: settings are whole seconds, and a part of the time has passed when it is read."""
    return float(ceil(ms / 1000))


def _stores(snapshot: Snapshot, config: Config) -> tuple[ObservedStore, ...]:
    warnings = {sample.name: sample.warnings for sample in snapshot.deployments}
    return tuple(
        ObservedStore(one.name, warnings.get(one.name, ()), holds_state=_is_same(config.state, one))
        for one in config.deployments
    )


def _is_same(state: Deployment | None, queues: Deployment) -> bool:
    return state is not None and state.database == queues.database and not set(state.nodes).isdisjoint(queues.nodes)
