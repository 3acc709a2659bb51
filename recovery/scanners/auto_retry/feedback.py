"""Tells the breakers how retried jobs have ended: at each step of a run, and every few seconds between two runs."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.actions.safety_limits import auto_retry_limits
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot
from recovery.domain.safety_limits.circuit_breaker import AutoRetryOutcome, PendingRetry
from recovery.errors import DeploymentMissing, QueueMissing
from recovery.reads.auto_retry import outcomes
from recovery.reads.auto_retry.outcomes import AutoRetryResult
from recovery.reads.queues import job_lists
from recovery.reads.queues.job_lists import Queue
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import BREAKER, SafetyLimitScope


def settle_jobs(queue: Queue, outs: Sequence[PendingRetry], now: int) -> int:
    """Settles retried jobs that have ended; returns how many. Raises StoreError, NotRecorded, Error of the database."""
    ends = outcomes.find_outcomes(queue, outs, now) if outs else {}
    if ends:
        auto_retry_limits.settle_retries(queue.ref, ends, now)
    return len(ends)


def settle_queue(ref: QueueRef, outs: Sequence[PendingRetry], snapshot: Snapshot | None, now: int) -> bool:
    """Settles ended jobs; returns True if that closed a breaker. Jobs of a queue that is gone count as unknown."""
    before = open_breakers(ref)
    try:
        settle_jobs(job_lists.locate(ref, snapshot), outs, now)
    except (QueueMissing, DeploymentMissing):
        auto_retry_limits.settle_retries(ref, {out.id: AutoRetryResult(AutoRetryOutcome.UNKNOWN) for out in outs}, now)
    return bool(before - open_breakers(ref))


def open_breakers(ref: QueueRef) -> set[str]:
    """Returns the keys of the breakers that are not closed."""
    return {
        key
        for key, breaker in limit_rows.values_by_key(BREAKER, SafetyLimitScope.of(ref)).items()
        if breaker.opened_at is not None
    }
