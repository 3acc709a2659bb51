"""Tells n8n's queues from other Bull queues, and knows how often n8n renews the locks of its jobs."""

from __future__ import annotations

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary

LONG_LOCK = 31_000  # ms: longer than n8n's lock was before 1.111
_RENEWS_EVERY = 10_000  # ms; QUEUE_WORKER_LOCK_RENEW_TIME, with a lock of 60 s
_RENEWED_EVERY = 15_000  # ms; before 1.111, with a lock of 30 s
_QUEUE = "jobs"
_POOL = "jobs-"  # worker pools have one queue each


def is_n8n(ref: QueueRef, flavour: LibraryVersion) -> bool:
    """Returns True if this is a queue of n8n, by its name alone: n8n leaves nothing else in Redis while it is idle."""
    name = ref.base.rpartition(":")[2]
    return flavour.library is QueueLibrary.BULL and (name == _QUEUE or name.startswith(_POOL))


def renews_every(lock_length: int) -> int:
    """Returns how often a worker of n8n renews a lock of this length unless it is configured otherwise (ms)."""
    return _RENEWS_EVERY if lock_length >= LONG_LOCK else _RENEWED_EVERY
