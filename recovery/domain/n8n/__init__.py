"""n8n in queue mode: how its queues are known, and how its jobs and its executions stand to each other."""

from __future__ import annotations

from recovery.domain.counts import Flavour, Library
from recovery.domain.refs import QueueRef

_QUEUE = "jobs"
_POOL = "jobs-"  # worker pools have one queue each


def is_n8n(ref: QueueRef, flavour: Flavour) -> bool:
    """By its name alone: n8n leaves nothing else in Redis when it has nothing to do."""
    name = ref.base.rpartition(":")[2]
    return flavour.library is Library.BULL and (name == _QUEUE or name.startswith(_POOL))
