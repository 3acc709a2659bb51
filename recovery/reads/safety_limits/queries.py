"""Reads the safety limits for the pages: paused deployments, budgets, breakers, and jobs that wait for a person.

Errors of jobs are redacted here: they may hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from recovery.config import Config
from recovery.domain.auto_retry.rules import CAP_WINDOW, RETRY_CAP
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.redaction import redact
from recovery.domain.safety_limits.circuit_breaker import BreakerStage, CircuitBreaker
from recovery.domain.safety_limits.redis_pause import RedisPause, RedisPauseHold
from recovery.domain.safety_limits.retry_budget import BudgetUsage
from recovery.domain.time_units import HOUR
from recovery.models import BrakeState
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import (
    BREAKER,
    BUDGET,
    REDIS_PAUSE,
    RETRY_HISTORY,
    SafetyLimitRow,
    SafetyLimitScope,
)
from recovery.reads.stuck import incidents
from recovery.reads.stuck.incidents import id_of
from recovery.stores.registry import registry

LISTED = 200  # of each kind: of more the page shows the number
_READ = 2_000  # rows read, those written last
_SPENT_FOR = HOUR  # a budget unused for so long is full, and is not listed
_ORDER = (BreakerStage.OPEN, BreakerStage.HALF_OPEN, BreakerStage.CLOSED)


@dataclass(frozen=True, slots=True)
class DeploymentRedisPause:
    """Redis pause of one deployment. `changed_at` None: the deployment was not checked yet."""

    deployment: str
    holds: tuple[RedisPauseHold, ...] = ()
    words: tuple[str, ...] = ()
    changed_at: int | None = None
    released_at: int | None = None
    released_by: str = ""

    @property
    def is_holding(self) -> bool:
        return bool(self.holds)


@dataclass(frozen=True, slots=True)
class QueueBudget:
    """Budget of a queue: `gauge.spent` of `gauge.limit.per_minute`."""

    queue: QueueRef
    gauge: BudgetUsage


@dataclass(frozen=True, slots=True)
class ErrorBreaker:
    """Breaker of one error; `signature` "" with `key` "" is the one for all errors of its queue."""

    queue: QueueRef
    key: str
    signature: str
    stage: BreakerStage
    words: str
    failed: int  # retried jobs that failed again
    of: int
    out: int
    opened_at: int | None
    retry_at: int | None  # when a probe may go; None while it is closed
    probe: str | None
    error: str  # the last error of a retried job

    @property
    def is_for_all(self) -> bool:
        return not self.key

    @property
    def is_open(self) -> bool:
        return self.stage is not BreakerStage.CLOSED


@dataclass(frozen=True, slots=True)
class RetryLimitedJob:
    """Job at its auto-retry limit; it is retried automatically at `free_at` at the earliest."""

    job: JobRef
    key: str
    count: int  # lately
    made: int  # ever
    last_at: int
    free_at: int


@dataclass(frozen=True, slots=True)
class QuarantinedJob:
    """Job that was orphaned so often that only a person may touch it."""

    job: JobRef
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class SafetyLimits:
    """Safety limits that are in use or in effect. At most LISTED of each kind, the worst first."""

    stores: tuple[DeploymentRedisPause, ...] = ()
    gauges: tuple[QueueBudget, ...] = ()
    breakers: tuple[ErrorBreaker, ...] = ()
    capped: tuple[RetryLimitedJob, ...] = ()
    quarantined: tuple[QuarantinedJob, ...] = ()

    @property
    def holding(self) -> tuple[DeploymentRedisPause, ...]:
        return tuple(store for store in self.stores if store.is_holding)


def all_limits(now: int) -> SafetyLimits:
    """Returns the limits of all queues. Raises django.db.Error, as every function of this module."""
    return replace(_of(None, now), stores=redis_pauses(now))


def limits_of_queue(ref: QueueRef, now: int) -> SafetyLimits:
    """Returns the limits of one queue, with the Redis pause of its deployment."""
    mine = tuple(store for store in redis_pauses(now) if store.deployment == ref.deployment)
    return replace(_of(ref, now), stores=mine)


def redis_pauses(now: int, config: Config | None = None) -> tuple[DeploymentRedisPause, ...]:
    """Returns the Redis pause of every configured deployment."""
    config = config or registry().config
    rows = {row.deployment: limit_rows.decode_row(REDIS_PAUSE, row) for row in limit_rows.rows_of_kind(REDIS_PAUSE)}
    names = (deployment.name for deployment in config.deployments)
    return tuple(_store(name, rows.get(name), now) for name in names)


def breakers(now: int) -> tuple[ErrorBreaker, ...]:
    """Returns the breakers of all queues that are not idle."""
    return tuple(_breakers(None, now))


def _store(name: str, row: SafetyLimitRow[RedisPause] | None, now: int) -> DeploymentRedisPause:
    if row is None:
        return DeploymentRedisPause(name)
    pause = row.value
    return DeploymentRedisPause(
        name, pause.holding(now), pause.words(now), row.at, pause.released_at, pause.released_by
    )


def _of(queue: QueueRef | None, now: int) -> SafetyLimits:
    place = SafetyLimitScope.of(queue) if queue else None
    breakers = sorted(_breakers(place, now), key=lambda one: (_ORDER.index(one.stage), -one.failed, one.queue))
    return SafetyLimits(
        gauges=tuple(sorted(_gauges(place, now), key=lambda one: (-one.gauge.spent, one.queue))[:LISTED]),
        breakers=tuple(breakers[:LISTED]),
        capped=tuple(_capped(place, now))[:LISTED],
        quarantined=tuple(_quarantined(queue, now))[:LISTED],
    )


def _gauges(place: SafetyLimitScope | None, now: int) -> Iterator[QueueBudget]:
    for row in limit_rows.rows_of_kind(BUDGET, place).filter(at__gt=now - _SPENT_FOR).order_by("-at")[:_READ]:
        budget_state = limit_rows.decode_row(BUDGET, row).value
        budget = budget_state.found(now, budget_state.limit).budget
        yield QueueBudget(_queue(row), budget.gauge(now, budget_state.limit))


def _breakers(place: SafetyLimitScope | None, now: int) -> Iterator[ErrorBreaker]:
    for row in limit_rows.rows_of_kind(BREAKER, place).order_by("-at")[:_READ]:
        breaker = limit_rows.decode_row(BREAKER, row).value
        if not breaker.is_idle(now):
            yield _breaker(row, breaker, now)


def _breaker(row: BrakeState, breaker: CircuitBreaker, now: int) -> ErrorBreaker:
    failed, of = breaker.tally(now)
    return ErrorBreaker(
        queue=_queue(row),
        key=row.key,
        signature=redact.text(breaker.signature),
        stage=breaker.stage(now),
        words=redact.text(breaker.words(now)),
        failed=failed,
        of=of,
        out=len(breaker.followed(now)),
        opened_at=breaker.opened_at,
        retry_at=None if breaker.opened_at is None else breaker.retry_at,
        probe=breaker.probe,
        error=redact.text(breaker.error),
    )


def _capped(place: SafetyLimitScope | None, now: int) -> Iterator[RetryLimitedJob]:
    """Yields jobs at their auto-retry limit. Each retry writes the row, so a row of fewer versions is below it."""
    rows = limit_rows.rows_of_kind(RETRY_HISTORY, place).filter(at__gt=now - CAP_WINDOW, version__gte=RETRY_CAP)
    for row in rows.order_by("-at")[:_READ]:
        past = limit_rows.decode_row(RETRY_HISTORY, row).value
        if past.is_capped(now):
            job = _queue(row).job(id_of(row.key))
            yield RetryLimitedJob(job, row.key, len(past.lately(now)), past.made, past.at[-1], past.free_at())


def _quarantined(queue: QueueRef | None, now: int) -> Iterator[QuarantinedJob]:
    for (ref, key), count in incidents.quarantined_jobs(now, queue).items():
        yield QuarantinedJob(ref.job(id_of(key)), key, count)


def _queue(row: BrakeState) -> QueueRef:
    return limit_rows.place_of(row).queue
