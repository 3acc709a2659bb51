"""Safety limits that hold, as the scanners leave them behind."""

from __future__ import annotations

from recovery.actions.safety_limits.compare_and_set import swap_one
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import QueueRef, slug
from recovery.domain.safety_limits.circuit_breaker import AutoRetryOutcome, CircuitBreaker
from recovery.domain.safety_limits.redis_pause import RedisObservation
from recovery.domain.safety_limits.retry_budget import RetryBudgetLimit
from recovery.models import Incident
from recovery.reads.safety_limits.limit_rows import (
    BREAKER,
    BUDGET,
    REDIS_PAUSE,
    RETRY_HISTORY,
    SafetyLimitScope,
    breaker_key,
)
from tests.support.stuck.watching import now_ms
from tests.web.acting import BASE

MAIL = QueueRef("main", BASE)
_HOUR = 3_600_000


def hold_store(deployment: str = "main") -> None:
    """Many jobs lost their locks a minute ago."""
    look = RedisObservation(now_ms() - 60_000, active=400, lost=380)
    swap_one(REDIS_PAUSE, SafetyLimitScope(deployment), lambda pause, _: pause.seen(look))


def trip(error: str = "connect ECONNREFUSED", queue: QueueRef = MAIL, *, failures: int = 18) -> str:
    """A breaker after twenty auto-retries; open when more than half of them failed. Its key."""
    breaker, at = CircuitBreaker(error), now_ms() - 120_000
    for number in range(20):
        id, ended = str(number), AutoRetryOutcome.FAILED if number < failures else AutoRetryOutcome.SUCCEEDED
        breaker = breaker.retried(id, at + number, 1).settled(id, ended, at + number + 1, error)
    swap_one(BREAKER, SafetyLimitScope.of(queue), lambda _, __: breaker, breaker_key(error))
    return breaker_key(error)


def cap(id: str, queue: QueueRef = MAIL, times: int = 3) -> str:
    """A job that was auto-retried lately. Its key."""
    for hour in range(times, 0, -1):
        swap_one(
            RETRY_HISTORY,
            SafetyLimitScope.of(queue),
            lambda past, at: past.retried(at),
            job_key(id),
            now_ms() - hour * _HOUR,
        )
    return job_key(id)


def spend(count: int, queue: QueueRef = MAIL, *, completed: int = 300, limit: int = 10) -> None:
    swap_one(
        BUDGET,
        SafetyLimitScope.of(queue),
        lambda budget_state, at: budget_state.take(at, count, RetryBudgetLimit(limit, completed))[1],
    )


def quarantine(id: str, queue: QueueRef = MAIL, times: int = 3) -> str:
    """A job that was orphaned so often. Its key."""
    for number in range(times):
        at = now_ms() - (number + 1) * _HOUR
        Incident.objects.create(
            deployment=queue.deployment,
            base=slug(queue.base),
            job=job_key(id),
            name="resize",
            kind="orphan",
            opened_at=at,
            proven_at=at + 5000,
            closed_at=at + 9000,
            resolved_by="scanner",
        )
    return job_key(id)
