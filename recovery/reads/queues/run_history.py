"""Reads the run history of a queue: finished jobs of both outcomes, newest first, page by page."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.jobs import JobRow, JobRowPage, JobState
from recovery.domain.queues.job_durations import JobDurations, durations
from recovery.reads.queues import job_lists
from recovery.reads.queues.job_lists import Queue

_BETWEEN = "!"  # occurs in neither cursor
_END = "-"  # this outcome has no more


@dataclass(frozen=True, slots=True)
class FinishedJobsPage:
    rows: tuple[JobRow, ...]
    total: int | None
    next: str = ""


def window(queue: Queue, *, cursor: str = "", size: int = job_lists.SIZES[0]) -> FinishedJobsPage:
    """Merges a page of each outcome by finish time. Each outcome keeps a cursor behind its last row that was shown."""
    good_cursor, _, bad_cursor = cursor.partition(_BETWEEN)
    good = _page(queue, JobState.COMPLETED, good_cursor, size)
    bad = _page(queue, JobState.FAILED, bad_cursor, size)
    rows = sorted((*good.rows, *bad.rows), key=_end, reverse=True)[:size]
    cursors = [_rest(queue, good, rows, good_cursor), _rest(queue, bad, rows, bad_cursor)]
    return FinishedJobsPage(tuple(rows), _total(good, bad), "" if cursors == [_END, _END] else _BETWEEN.join(cursors))


def recent_durations(queue: Queue) -> JobDurations:
    """Returns how long the newest kept completed jobs ran and waited; one read, shared by all viewers."""
    return durations(job_lists.window(queue, JobState.COMPLETED, size=max(job_lists.SIZES)).rows)


def _page(queue: Queue, state: JobState, cursor: str, size: int) -> JobRowPage:
    if cursor == _END:
        return JobRowPage((), 0)
    return job_lists.window(queue, state, cursor=cursor, size=size)


def _end(row: JobRow) -> int:
    return row.finished_at or 0


def _rest(queue: Queue, page: JobRowPage, shown: list[JobRow], start: str) -> str:
    """Returns the cursor at which this outcome continues: behind its last row that is shown."""
    taken = sum(row.state is page.rows[0].state for row in shown) if page.rows else 0
    if taken == len(page.rows):
        return page.next or _END
    if not taken:
        return start
    return job_lists.window(queue, page.rows[0].state, cursor=start, size=taken).next or _END


def _total(good: JobRowPage, bad: JobRowPage) -> int | None:
    return None if good.total is None or bad.total is None else good.total + bad.total
