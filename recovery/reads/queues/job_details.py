"""Reads what the page of one job shows: the job in full, its own logs, and its family."""

from __future__ import annotations

from recovery.backends.base import LOAD_LIMIT, TEXT_LIMIT
from recovery.domain.jobs import Job, JobFamily, JobRow, LogPage
from recovery.reads.queues.job_lists import Queue
from recovery.stores.state.shared_read import windows

LOG_LINES = 200  # what is read of a job's own log at once


def job(queue: Queue, id: str, *, whole: bool = False) -> Job:
    """Reads one job; raises JobMissing. A whole job may be megabytes: it is read for one request, and not cached."""
    if whole:
        return queue.reader.job(queue.wire, queue.ref, id, limit=LOAD_LIMIT)
    return windows.get(("job", queue.ref, id), lambda: queue.reader.job(queue.wire, queue.ref, id, limit=TEXT_LIMIT))


def row(queue: Queue, id: str) -> JobRow:
    """Reads the job's row with its true state; raises JobMissing."""
    return windows.get(("row", queue.ref, id), lambda: queue.reader.row(queue.wire, queue.ref, id))


def logs(queue: Queue, id: str, *, start: int = 0) -> LogPage:
    return windows.get(
        ("logs", queue.ref, id, start),
        lambda: queue.reader.logs(queue.wire, queue.ref, id, start=start, size=LOG_LINES),
    )


def family(queue: Queue, id: str) -> JobFamily:
    return windows.get(("family", queue.ref, id), lambda: queue.reader.family(queue.wire, queue.ref, id))
