"""Finds out how auto-retried jobs have ended.

A job that is gone is the hard case. It had failed and was kept, so it would be kept if it had failed again: it
succeeded and was removed at once, unless an action removed it, or later failed jobs may have pushed it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.backends.redis_common import job_outcomes, retry_outcomes
from recovery.backends.redis_common.retry_outcomes import RetriedJobOutcome
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.safety_limits.circuit_breaker import AutoRetryOutcome, PendingRetry
from recovery.domain.time_units import MINUTE
from recovery.reads.audit import manual_actions
from recovery.reads.queues.job_lists import Queue

UNDER_WAY = MINUTE  # a recorded retry is made within this time, or not at all
AT_ONCE = 100  # rows read in one go


@dataclass(frozen=True, slots=True)
class AutoRetryResult:
    """End of a retried job. `error`: the first line of its new error."""

    ended: AutoRetryOutcome
    error: str = ""


_NEVER_WENT = AutoRetryResult(AutoRetryOutcome.UNKNOWN)


def failed_at(queue: Queue, ids: Sequence[str]) -> dict[str, int]:
    """Returns when each of these jobs that is failed now has failed; 0: unknown. Raises StoreError."""
    found = zip(ids, _finishes(queue, ids), strict=True)
    return {id: one.failed_at for id, one in found if one is not None and one.failed_at is not None}


def find_outcomes(queue: Queue, outs: Sequence[PendingRetry], now: int) -> dict[str, AutoRetryResult]:
    """Returns how those of these jobs that have ended did so, by id. Raises StoreError and DatabaseError."""
    by_id = {out.id: out for out in outs}
    found = zip(by_id.values(), _finishes(queue, list(by_id)), strict=True)
    known = [(out, one) for out, one in found if one is not None]
    ended = {out.id: AutoRetryResult(AutoRetryOutcome.SUCCEEDED) for out, one in known if one.is_completed}
    failed = [out for out, one in known if not one.is_completed and _has_failed_again(out, one)]
    ended |= {
        id: AutoRetryResult(AutoRetryOutcome.FAILED, error)
        for id, error in _errors(queue, [out.id for out in failed]).items()
    }
    still = [out for out, one in known if one.failed_at is not None and out.id not in ended]
    ended |= {out.id: _NEVER_WENT for out in still if now - out.at > UNDER_WAY}
    gone = [out for out, one in known if not (one.is_there or one.is_completed or one.failed_at is not None)]
    return ended | _of_gone(queue, gone)


def _has_failed_again(out: PendingRetry, one: RetriedJobOutcome) -> bool:
    if one.failed_at is None:
        return False
    return one.failed_at != out.failed_at if out.failed_at else one.failed_at > out.at


def _errors(queue: Queue, ids: Sequence[str]) -> dict[str, str]:
    """Reads the errors of these jobs. One that has moved on since then still counts as failed, without its error."""
    found: dict[str, str] = {}
    for start in range(0, len(ids), AT_ONCE):
        part = ids[start : start + AT_ONCE]
        rows = queue.reader.rows(queue.wire, queue.ref, [(id, JobState.FAILED) for id in part])
        found |= {id: row.reason if row else "" for id, row in zip(part, rows, strict=True)}
    return found


def _of_gone(queue: Queue, gone: Sequence[PendingRetry]) -> dict[str, AutoRetryResult]:
    if not gone:
        return {}
    if queue.flavour.library is QueueLibrary.TABLE:
        return {out.id: AutoRetryResult(AutoRetryOutcome.UNKNOWN) for out in gone}
    since = min(out.at for out in gone)
    is_bullmq = queue.flavour.library is QueueLibrary.BULLMQ
    told = job_outcomes.events(queue.wire, queue.ref, since) if is_bullmq else {}
    taken = manual_actions.removed_jobs(queue.ref, [out.id for out in gone], since)
    oldest = retry_outcomes.oldest_failed(queue.wire, queue.ref)
    return {out.id: AutoRetryResult(_how(out, told.get(out.id, set()), out.id in taken, oldest)) for out in gone}


def _how(out: PendingRetry, told: set[str], is_taken: bool, oldest: int | None) -> AutoRetryOutcome:
    if "completed" in told:
        return AutoRetryOutcome.SUCCEEDED
    if "failed" in told:
        return AutoRetryOutcome.FAILED
    may_be_trimmed = oldest is not None and oldest > out.at
    return AutoRetryOutcome.UNKNOWN if is_taken or may_be_trimmed else AutoRetryOutcome.SUCCEEDED


def _finishes(queue: Queue, ids: Sequence[str]) -> list[RetriedJobOutcome | None]:
    if queue.flavour.library is not QueueLibrary.TABLE:
        return retry_outcomes.finishes(queue.wire, queue.ref, ids)
    rows: list[JobRow | None] = []
    for start in range(0, len(ids), AT_ONCE):
        part = ids[start : start + AT_ONCE]
        rows += queue.reader.rows(queue.wire, queue.ref, [(id, JobState.FAILED) for id in part])
    return [_of_row(row) for row in rows]


def _of_row(row: JobRow | None) -> RetriedJobOutcome:
    if row is None:
        return RetriedJobOutcome(is_there=False, is_completed=False, failed_at=None)
    failed = (row.finished_at or 0) if row.state is JobState.FAILED else None
    return RetriedJobOutcome(not row.missing, row.state is JobState.COMPLETED, failed)
