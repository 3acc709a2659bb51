"""Reads the log that a job writes itself: its end, an earlier window, or what came behind the last line on a page."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from dashboard.base.redaction import PayloadPart, PayloadRedactor
from recovery.domain.jobs import Job, LogPage
from recovery.reads.queues import job_details
from recovery.reads.queues.job_lists import Queue

SHOWN_MOST = 2000  # lines on a page that follows; then it begins again with the newest


@dataclass(frozen=True, slots=True)
class JobLogWindow:
    """Numbered lines. `mark` identifies the last one: a library that keeps the newest lines only renumbers them."""

    lines: tuple[tuple[int, str], ...]
    total: int | None
    after: int  # the number of the last line
    mark: str
    earlier: int | None = None
    later: int | None = None


def window(queue: Queue, job: Job, see: PayloadRedactor, given: str) -> JobLogWindow:
    """Returns the end of the log, or the earlier window that is asked for."""
    total = job.log_count or 0
    if given.isascii() and given.isdigit() and len(given) < 10:
        return _log(job_details.logs(queue, job.row.id, start=min(int(given), max(0, total - 1))), see)
    page = job_details.logs(queue, job.row.id, start=max(0, total - job_details.LOG_LINES))
    if page.lines and page.start + len(page.lines) < total:  # the lines are so long that fewer fit
        page = job_details.logs(queue, job.row.id, start=total - len(page.lines))
    return _log(page, see)


def lines_after(queue: Queue, job: Job, see: PayloadRedactor, after: int, mark: str) -> JobLogWindow | None:
    """Returns the lines behind a line; None if that line is no longer where it was."""
    log = _log(job_details.logs(queue, job.row.id, start=after - 1), see)
    if not log.lines or _mark(log.lines[0][1]) != mark:
        return None
    return JobLogWindow(log.lines[1:], log.total, log.after, log.mark, later=log.later)


def _log(page: LogPage, see: PayloadRedactor) -> JobLogWindow:
    lines = tuple((number, see.text(line, PayloadPart.LOGS)) for number, line in enumerate(page.lines, page.start + 1))
    after = page.start + len(lines)
    return JobLogWindow(
        lines=lines,
        total=page.total,
        after=after,
        mark=_mark(lines[-1][1]) if lines else "",
        earlier=max(0, page.start - job_details.LOG_LINES) if page.start else None,
        later=after if page.total is not None and after < page.total else None,
    )


def _mark(line: str) -> str:
    return f"{crc32(line.encode('utf-8', 'replace')):08x}"
