"""Builds the context of verdicts on a queue's jobs: its sample and workers from the snapshot, the memory of the
orphan watch, and the configuration.
"""

from __future__ import annotations

from collections.abc import Collection

from recovery.backends.bullmq.versions import MARKER_KEY
from recovery.config import Config
from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n import detection
from recovery.domain.n8n.versions import Version
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample, Snapshot, Worker
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.stuck import context as stuck_context
from recovery.domain.stuck.context import RENEWED_ABOVE, VerdictContext
from recovery.reads.stuck.observations import QueueObservation

FRESH = 30_000  # ms: an older snapshot does not show which workers are connected now
NOWHERE = AddressMap()
# BullMQ 3 and 4 begin to count a lock's age when their timer first sees the job: three quarters may pass.
_RENEWED_ABOVE_EARLY = 0.2


def build_context(
    sample: QueueSample,
    workers: Collection[Worker],
    memory: QueueObservation,
    config: Config,
    now: int,
    *,
    taken_at: int,
    restarted_at: int | None = None,
    lost_together: int = 0,
    where: AddressMap = NOWHERE,
    n8n_version: Version | None = None,
) -> VerdictContext:
    """Builds the context. `taken_at` is the time of the sample, `workers` are the queue's, `where` their servers."""
    ref, flavour = sample.ref, sample.flavour
    limits = config.thresholds_of(ref.deployment, ref.base)
    is_fresh = not sample.error and now - taken_at <= FRESH
    ttl = _left(sample, now - taken_at) if is_fresh else None
    return VerdictContext(
        now=now,
        has_window=has_window(flavour),
        follows_locks=flavour.library is QueueLibrary.BULL and not flavour.mixed,
        workers=sample.workers if is_fresh else None,
        listed_at=taken_at,
        names=frozenset(worker.name for worker in workers if worker.name),
        connections=frozenset(worker.link for worker in workers),
        hosts=_hosts(workers, where),
        loads=where.loads,
        unnamed=sum(not worker.name for worker in workers),
        left=memory.left,
        came=memory.came,
        stalled_check_ttl=ttl,
        watchdog_seen_at=taken_at if ttl is not None else memory.watchdog_seen_at,
        watched_since=memory.watched_since if is_fresh else now,
        stalled_interval=max(limits.stalled_interval, memory.interval),
        lock_length=memory.lock_length or None,
        renewed_above=renewed_above(ref, flavour, memory),
        renews_every=renews_every(ref, flavour, memory),
        is_rhythm_seen=bool(memory.renews_every),
        is_paused=sample.is_paused is True,
        overdue_after=limits.overdue_after,
        restarted_at=restarted_at,
        lost_together=lost_together,
        is_n8n=detection.is_n8n(ref, flavour),
        n8n_version=n8n_version,
    )


def renewed_above(ref: QueueRef, flavour: LibraryVersion, memory: QueueObservation) -> float:
    """Returns the share of its length that a lock has left at least while no renewal was missed."""
    every = renews_every(ref, flavour, memory)
    if every is not None:
        return stuck_context.renewed_above(every, memory.lock_length)
    return _RENEWED_ABOVE_EARLY if _counts_late(flavour) else RENEWED_ABOVE


def renews_every(ref: QueueRef, flavour: LibraryVersion, memory: QueueObservation) -> int | None:
    """Returns the interval at which n8n renews its locks: as observed, else n8n's default. None: not a queue of n8n."""
    if not detection.is_n8n(ref, flavour) or not memory.lock_length:
        return None
    return memory.renews_every or detection.renews_every(memory.lock_length)


def unknown_context(ref: QueueRef, flavour: LibraryVersion, config: Config, now: int) -> VerdictContext:
    """Builds the context of a queue that no snapshot has, from the configuration only."""
    return build_context(
        QueueSample(ref, flavour, error="not in the snapshot"), (), QueueObservation(), config, now, taken_at=now
    )


def sample_of(snapshot: Snapshot, ref: QueueRef) -> QueueSample | None:
    """Returns a queue's sample, with its deployment's error if there is one."""
    sample, deployment = snapshot.queue(ref), snapshot.deployment(ref.deployment)
    if sample is None or deployment is None or not deployment.error:
        return sample
    return sample._replace(error=sample.error or deployment.error)


def has_window(flavour: LibraryVersion) -> bool:
    """Tells whether a job may be active for a moment before it is locked; True if in doubt."""
    is_new = flavour.major is not None and flavour.major >= MARKER_KEY and not flavour.mixed
    return not (flavour.library is QueueLibrary.BULLMQ and is_new)


def _hosts(workers: Collection[Worker], where: AddressMap) -> dict[str, str]:
    """Returns workers' hosts by name; "" for a name on several hosts: which of them holds a job is unknown."""
    found: dict[str, str] = {}
    for worker in workers:
        host = where.host(worker.address)
        found[worker.name] = host if found.get(worker.name, host) == host else ""
    return found


def _counts_late(flavour: LibraryVersion) -> bool:
    return flavour.library is not QueueLibrary.BULL and has_window(flavour)


def _left(sample: QueueSample, since: int) -> int | None:
    """Returns the TTL left of the stalled check's key; 0 if it has expired since the sample: the next pass is due."""
    return None if sample.stalled_check_ttl is None else max(0, sample.stalled_check_ttl - since)
