"""Reads all running rows of a job table in one statement, so that they are judged side by side."""

from __future__ import annotations

from recovery.backends.sql import select
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import QueueRef

LIMIT = 5_000  # rows of one look: some 50 ms


def running(wire: object, ref: QueueRef, limit: int = LIMIT) -> tuple[JobRow, ...]:
    """Returns at most so many, with the smallest ids, which are the oldest nearly everywhere. Raises StoreError."""
    with select.scene(wire, ref) as scene:
        return tuple(look.row for look in select.window(scene, State.ACTIVE, limit))
