"""Presents jobs as rows of a queue's lists: ages, locks and attempts in words, secrets taken out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

from django.urls import reverse

from dashboard.base.redaction import PayloadPart, PayloadRedactor
from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.job_durations import DurationPercentiles, JobDurations
from recovery.domain.queues.types import Worker
from recovery.domain.time_units import SECOND, age, elapsed

Cells = dict[str, Any]
ID_LIMIT = 300  # characters of an id in a list; its page has it whole


@dataclass(frozen=True, slots=True)
class LockBar:
    """Remaining time of a lock, as a bar. `state`: held, none, endless, unknown; `verdict` chooses its colour.

    `percent` None: the whole lock's duration is unknown, and no bar is drawn.
    """

    state: str
    words: str
    percent: int | None = 0
    verdict: str = ""


def cells(rows: Iterable[JobRow], now: int, see: PayloadRedactor, longest_lock: int = 0) -> list[Cells]:
    return [_cells(row, now, see, longest_lock) for row in rows]


def _cells(row: JobRow, now: int, see: PayloadRedactor, longest_lock: int) -> Cells:
    queue = row.ref.queue
    return {
        "row": row,
        "anchor": f"job-{brief(row.ref.slug)}",
        "url": reverse("job", args=[queue.deployment, queue.base, row.id]),
        "queue_url": reverse("queue", args=[queue.deployment, queue.base]),
        "id": brief(row.ref.label),
        "name": printable(row.name),
        "holder": _holder(row),
        "started": _exact(row.processed_at),
        "running": "" if row.processed_at is None else age(now - row.processed_at),
        "waited": _between(row.added_at, row.processed_at),
        "took": _between(row.processed_at, row.finished_at),
        "due": _due(row, now),
        "attempts": f"{row.attempts:,} / {row.attempts_limit:,}",
        "lock": lock_bar(row, longest_lock),
        "reason": see.text(row.reason),
        "result": see.payload(queue, PayloadPart.RESULT, row.result),
        "progress": see.payload(queue, PayloadPart.PROGRESS, row.progress),
        "tone": _tone(row),
    }


def workers(found: Iterable[Worker]) -> list[Cells]:
    """Presents worker connections. Redis counts a connection's age and idleness in seconds."""
    return [{"worker": worker, "connected": _since(worker.age), "idle": _since(worker.idle)} for worker in found]


def _since(seconds: int) -> str:
    """Returns the time in words; "" where it is unknown, as for the owner of a row."""
    return age(seconds * SECOND) if seconds >= 0 else ""


def durations(found: JobDurations) -> Cells:
    """Presents durations in words; "" for what no job says."""
    return {"jobs": found.jobs, "ran": _spread(found.ran), "waited": _spread(found.waited)}


def _spread(spread: DurationPercentiles | None) -> str:
    return f"p50 {elapsed(spread.p50)}, p95 {elapsed(spread.p95)}" if spread else ""


def lock_bar(row: JobRow, longest: int) -> LockBar:
    """Compares a lock's TTL with the longest seen on this queue; a lock is at least that long. 0: none was seen."""
    if not row.lock_known:
        return LockBar("unknown", "unknown")
    if row.lock is None:
        return LockBar("none", "none")
    if row.lock.ttl is None:
        return LockBar("endless", "never ends", 100)
    ttl = row.lock.ttl
    if not longest:
        return LockBar("held", f"{age(ttl)} left", None)
    length = max(longest, ttl, 1)
    return LockBar("held", f"{age(ttl)} of ≥ {age(round(length, -3))}", min(100, ttl * 100 // length))


def brief(id: str) -> str:
    """Shortens an id, which may be a whole payload. The number behind keeps two of them apart."""
    return id if len(id) <= ID_LIMIT else f"{id[:ID_LIMIT]}…{crc32(id.encode()):08x}"


def _holder(row: JobRow) -> str:
    """Returns the worker's name; else the start of the lock's token, which groups the jobs of one worker."""
    if row.lock is None:
        return printable(row.worker)
    return printable(row.worker) or printable(row.lock.holder[:8])


def _between(start: int | None, end: int | None) -> str:
    return "" if start is None or end is None or end < start else elapsed(end - start)


def _exact(at: int | None) -> str:
    """Returns date and time in UTC; "" also for a number that no calendar has."""
    try:
        return "" if at is None else f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return ""


def _due(row: JobRow, now: int) -> str:
    if row.due_at is None:
        return "unknown"
    return f"in {age(row.due_at - now)}" if row.due_at > now else f"due for {age(now - row.due_at)}"


def _tone(row: JobRow) -> str:
    if row.missing:
        return "unreadable"
    return "warn" if row.state is JobState.ACTIVE and row.lock_known and row.lock is None else ""
