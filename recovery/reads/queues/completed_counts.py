"""Counts the jobs that a queue completed lately."""

from __future__ import annotations

from recovery.domain.queues.types import QueueLibrary
from recovery.reads.queues import history
from recovery.reads.queues.job_lists import Queue


def last_hour(queue: Queue, now: int) -> int | None:
    """Returns how many jobs were completed in the last sixty closed minutes, at least; None: there are no counts."""
    if queue.flavour.library is QueueLibrary.TABLE:
        return None
    points = history.series(queue.ref, queue.flavour, 1, now=now).points
    known = [point.completed for point in points if point.completed is not None]
    return sum(known) if known else None
