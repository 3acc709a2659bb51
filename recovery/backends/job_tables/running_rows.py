"""Reads all running rows of a job table in one statement, so that they are judged side by side."""

from __future__ import annotations

from recovery.backends.job_tables import queries as job_tables_queries
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState

LIMIT = 5_000  # rows of one look: some 50 ms


def read_running(wire: object, ref: QueueRef, limit: int = LIMIT) -> tuple[JobRow, ...]:
    """Returns at most so many, with the smallest ids, which are the oldest nearly everywhere. Raises StoreError."""
    with job_tables_queries.table_context(wire, ref) as context:
        return tuple(look.row for look in job_tables_queries.window(context, JobState.ACTIVE, limit))
