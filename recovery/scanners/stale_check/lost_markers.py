"""Reports queues of BullMQ ≥ 5 whose idle workers wait for a missing marker, while jobs wait for them.

A worker also polls now and then, so this heals, unless its blocking read hangs: then only a restart helps. It is
only reported: a marker set from outside wakes no worker whose read hangs.
"""

from __future__ import annotations

from recovery.backends.bullmq.versions import MARKER_KEY
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.queues.types import QueueLibrary, QueueSample, Snapshot
from recovery.domain.time_units import age
from recovery.reads.queues.job_lists import Queue

NOT_TOUCHED = "Report only: workers also poll without the marker. A worker that does not is hung and needs a restart."
_BLOCKED = "bzpopmin"  # how a worker waits for the marker
_PLACES = (b"wait", b"prioritized")


def missing_marker(queue: Queue, snapshot: Snapshot, after: int, now: int) -> str:
    """Describes a missing marker in one sentence; "" if none is missing, or if that is unknown. Raises StoreError."""
    sample = queue.sample
    if sample is None or not _may_be(sample, after, now):
        return ""
    idle = sum(worker.queue == queue.ref and worker.command == _BLOCKED for worker in snapshot.workers)
    if not idle:
        return ""
    keys = Keys(queue.ref.base)
    active, waiting, prioritized, marker, limited = queue.wire.call(
        [
            (b"LLEN", keys.active),
            (b"LLEN", keys.named(_PLACES[0])),
            (b"ZCARD", keys.named(_PLACES[1])),
            (b"ZSCORE", keys.named(b"marker"), b"0"),
            (b"EXISTS", keys.limiter),
        ]
    )
    jobs = [decode.count(waiting), decode.count(prioritized)]
    if None in (*jobs, decode.count(active)) or isinstance(marker, Exception):
        return ""
    count = sum(number or 0 for number in jobs)
    if not count or marker is not None or limited or _is_full(sample, decode.count(active) or 0):
        return ""
    oldest = age(now - (sample.oldest_waiting_at or now))
    workers = "1 worker is" if idle == 1 else f"{idle:,} workers are"
    return f"{count:,} jobs wait, the oldest for {oldest}; {workers} idle, and the wake-up marker is missing."


def _may_be(sample: QueueSample, after: int, now: int) -> bool:
    """Tells by the snapshot whether a marker may be missing."""
    flavour = sample.flavour
    is_marked = flavour.library is QueueLibrary.BULLMQ and (flavour.major or 0) >= MARKER_KEY and not flavour.mixed
    oldest = sample.oldest_waiting_at
    return is_marked and sample.is_paused is False and oldest is not None and oldest <= now - after


def _is_full(sample: QueueSample, active: int) -> bool:
    return sample.concurrency is not None and active >= sample.concurrency
