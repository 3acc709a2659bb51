"""How much work a queue gets done, as far as anybody counted."""

from __future__ import annotations

from recovery.domain.counts import Library
from recovery.reads import history
from recovery.reads.lists import Queue


def last_hour(queue: Queue, now: int) -> int | None:
    """Jobs completed in the last sixty closed minutes, at least; None: nobody counted."""
    if queue.flavour.library is Library.TABLE:
        return None
    points = history.series(queue.ref, queue.flavour, 1, now=now).points
    known = [point.completed for point in points if point.completed is not None]
    return sum(known) if known else None
