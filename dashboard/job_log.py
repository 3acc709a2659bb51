"""Reads the log that a job writes itself: its end, an earlier window, or what came behind the last line on a page."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from dashboard.discretion import Discretion, PayloadPart
from recovery.domain.jobs import Job, LogPage
from recovery.reads import jobs
from recovery.reads.lists import Queue

SHOWN_MOST = 2000  # lines on a page that follows; then it begins again with the newest


@dataclass(frozen=True, slots=True)
class Log:
    """Numbered lines. `mark` identifies the last one: a library that keeps the newest lines only renumbers them."""

    lines: tuple[tuple[int, str], ...]
    total: int | None
    after: int  # the number of the last line
    mark: str
    earlier: int | None = None
    later: int | None = None


def window(queue: Queue, job: Job, see: Discretion, given: str) -> Log:
    """Returns the end of the log, or the earlier window that is asked for."""
    total = job.log_count or 0
    if given.isascii() and given.isdigit() and len(given) < 10:
        return _log(jobs.logs(queue, job.row.id, start=min(int(given), max(0, total - 1))), see)
    page = jobs.logs(queue, job.row.id, start=max(0, total - jobs.LOG_LINES))
    if page.lines and page.start + len(page.lines) < total:  # the lines are so long that fewer fit
        page = jobs.logs(queue, job.row.id, start=total - len(page.lines))
    return _log(page, see)


def behind(queue: Queue, job: Job, see: Discretion, after: int, mark: str) -> Log | None:
    """Returns the lines behind a line; None if that line is no longer where it was."""
    log = _log(jobs.logs(queue, job.row.id, start=after - 1), see)
    if not log.lines or _mark(log.lines[0][1]) != mark:
        return None
    return Log(log.lines[1:], log.total, log.after, log.mark, later=log.later)


def _log(page: LogPage, see: Discretion) -> Log:
    lines = tuple((number, see.text(line, PayloadPart.LOGS)) for number, line in enumerate(page.lines, page.start + 1))
    after = page.start + len(lines)
    return Log(
        lines=lines,
        total=page.total,
        after=after,
        mark=_mark(lines[-1][1]) if lines else "",
        earlier=max(0, page.start - jobs.LOG_LINES) if page.start else None,
        later=after if page.total is not None and after < page.total else None,
    )


def _mark(line: str) -> str:
    return f"{crc32(line.encode('utf-8', 'replace')):08x}"
