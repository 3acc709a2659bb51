"""Builds the timeline of a job: read from its fields and its lock, nothing guessed."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.jobs import Job, JobRow, JobState
from recovery.domain.time_units import age, elapsed


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """A step. `at` None: it happened (or will), and its time is not recorded."""

    what: str
    at: int | None = None
    detail: str = ""
    state: str = ""
    is_ahead: bool = False


def build_timeline(job: Job, now: int, *, reason: str, of_row: bool = False) -> tuple[TimelineEvent, ...]:
    """Returns the steps, oldest first; what lies ahead comes last. `reason` is the error as the reader may see it.

    `of_row`: of a job table, which has no locks.
    """
    row = job.row
    steps = [TimelineEvent("Added", row.added_at, _added(row), "waiting")]
    if row.state is JobState.DELAYED or (row.delay and row.processed_at is None):
        steps.append(_delayed(row, now))
    if row.processed_at is not None:
        steps.append(TimelineEvent(_started(row), row.processed_at, _waited(row), "active"))
    # A job that the stalled check has failed has no stack of that.
    if failures := max(0, len(job.stack) - (row.state is JobState.FAILED)):
        steps.append(TimelineEvent(f"Failed {_times(failures)}, and was retried", None, "", "failed"))
    if row.stalls:
        steps.append(
            TimelineEvent(f"Stalled {_times(row.stalls)}", None, "its lock expired while it was active", "stuck")
        )
    if row.state.is_finished:
        steps.append(_finished(row, reason))
    elif row.processed_at is not None and row.state is not JobState.ACTIVE:
        steps.append(TimelineEvent(*_back(row), row.state.value))
    if row.state is JobState.ACTIVE:
        steps.append(_now(row, now, sign_words(row) if of_row else lock_words(row)))
    return tuple(steps)


def _added(row: JobRow) -> str:
    parts = []
    if row.priority:
        parts.append(f"priority {row.priority:,}")
    if row.scheduler:
        parts.append("by its scheduler")
    if row.parent:
        parts.append("as a child")
    return ", ".join(parts)


def _delayed(row: JobRow, now: int) -> TimelineEvent:
    is_ahead = row.state is JobState.DELAYED
    due = row.due_at if row.due_at is not None else (row.added_at or 0) + row.delay if row.added_at else None
    wait = f"in {age(due - now)}" if is_ahead and due is not None and due > now else ""
    overdue = "due, not yet moved to wait" if is_ahead and due is not None and due <= now else ""
    return TimelineEvent(
        "Runs again" if is_ahead and row.attempts else "Due", due, wait or overdue, "delayed", is_ahead
    )


def _started(row: JobRow) -> str:
    attempt = row.starts or row.attempts
    return f"Started, attempt {attempt:,}" if attempt > 1 else "Started"


def _waited(row: JobRow) -> str:
    parts = [f"by {row.worker}"] if row.worker else []
    if row.added_at is not None and row.processed_at is not None:
        waited = row.processed_at - row.added_at - (row.delay if row.attempts <= 1 else 0)
        if waited >= 0 and row.attempts <= 1:
            parts.append(f"after {elapsed(waited)} in the queue")
    return ", ".join(parts)


def _finished(row: JobRow, reason: str) -> TimelineEvent:
    ran = ""
    if row.finished_at is not None and row.processed_at is not None and row.finished_at >= row.processed_at:
        ran = f"after {elapsed(row.finished_at - row.processed_at)}"
    what = "Completed" if row.state is JobState.COMPLETED else "Failed"
    return TimelineEvent(
        what, row.finished_at, f"{ran}: {reason}" if ran and reason else ran or reason, row.state.value
    )


def _back(row: JobRow) -> tuple[str, None, str]:
    """Returns the step of a job that ran before and waits again: an attempt failed, it stalled, or it was sent back."""
    left = max(0, row.attempts_limit - row.attempts)
    return "Requeued", None, f"to {row.state.value}; {left:,} of {row.attempts_limit:,} attempts left"


def _now(row: JobRow, now: int, held: str) -> TimelineEvent:
    if row.processed_at is None:
        return TimelineEvent("Taken from the queue, not started yet", None, held, "active")
    return TimelineEvent(f"Running for {age(now - row.processed_at)}", None, held, "active")


def sign_words(row: JobRow) -> str:
    """Returns what in a job table's row shows whether a worker runs it."""
    if not row.lock_known:
        return "whether a worker runs it is unknown"
    if row.lock is None or row.lock.ttl is None:
        return "no worker holds it any more"
    return f"lease valid for another {age(row.lock.ttl)} unless it is renewed"


def lock_words(row: JobRow) -> str:
    """Returns the lock in words, for rows and the timeline."""
    if not row.lock_known:
        return "lock unknown: no permission to read it"
    if row.lock is None:
        return "no lock"
    if row.lock.ttl is None:
        return "lock that never expires"
    return f"lock expires in {age(row.lock.ttl)} unless it is renewed"


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
