"""Counts safety limits: paused deployments, budgets and breakers. Rows that did not change are not read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from django.db.models import QuerySet

from recovery.config import Config
from recovery.domain.identifiers import QueueRef
from recovery.domain.metrics.counters import BreakerCounts, BudgetSpending
from recovery.domain.safety_limits.circuit_breaker import BreakerStage, CircuitBreaker
from recovery.domain.safety_limits.retry_budget_state import RetryBudgetState
from recovery.domain.time_units import HOUR
from recovery.models import BrakeState
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import BREAKER, BUDGET, REDIS_PAUSE, SafetyLimitKind

T = TypeVar("T")

READ = 2_000  # rows of a kind, those written last
AT_ONCE = 400  # of them in one query
_SPENT_FOR = HOUR  # a budget that was not used for so long is full, and is not counted


class SafetyLimitRowCache(Generic[T]):
    """Decoded rows of one kind, cached between two runs."""

    def __init__(self, kind: SafetyLimitKind[T]) -> None:
        self._kind = kind
        self._held: dict[int, tuple[int, QueueRef, T]] = {}

    def values(self, rows: QuerySet[BrakeState]) -> Iterator[tuple[QueueRef, T]]:
        """Yields the values of these rows with their queue. Raises Error of the database."""
        newest = dict(rows.order_by("-at").values_list("pk", "version")[:READ])
        self._held = {key: held for key, held in self._held.items() if newest.get(key) == held[0]}
        changed = [key for key in newest if key not in self._held]
        for start in range(0, len(changed), AT_ONCE):
            for row in rows.filter(pk__in=changed[start : start + AT_ONCE]):
                self._held[row.pk] = row.version, limit_rows.place_of(row).queue, self._decoded(row)
        for _, queue, value in self._held.values():
            yield queue, value

    def _decoded(self, row: BrakeState) -> T:
        return limit_rows.decode_row(self._kind, row).value


class SafetyLimitCounts:
    def __init__(self, config: Config) -> None:
        self._deployments = frozenset(deployment.name for deployment in config.deployments)
        self._stores = SafetyLimitRowCache(REDIS_PAUSE)
        self._budgets: SafetyLimitRowCache[RetryBudgetState] = SafetyLimitRowCache(BUDGET)
        self._breakers: SafetyLimitRowCache[CircuitBreaker] = SafetyLimitRowCache(BREAKER)

    def held(self, now: int) -> tuple[str, ...]:
        stores = self._stores.values(_of(REDIS_PAUSE))
        return tuple(
            sorted(
                ref.deployment for ref, pause in stores if ref.deployment in self._deployments and pause.holding(now)
            )
        )

    def spending(self, now: int) -> tuple[BudgetSpending, ...]:
        lately = self._budgets.values(_of(BUDGET).filter(at__gt=now - _SPENT_FOR))
        return tuple(
            sorted((_spending(queue, budget_state, now) for queue, budget_state in lately), key=lambda one: one.queue)
        )

    def breakers(self, now: int) -> tuple[BreakerCounts, ...]:
        """Returns the numbers of closed, open and half-open breakers, of queues with any that is not idle."""
        stages: dict[QueueRef, Counter[BreakerStage]] = {}
        for queue, breaker in self._breakers.values(_of(BREAKER)):
            if not breaker.is_idle(now):
                stages.setdefault(queue, Counter())[breaker.stage(now)] += 1
        return tuple(
            BreakerCounts(queue, found[BreakerStage.CLOSED], found[BreakerStage.OPEN], found[BreakerStage.HALF_OPEN])
            for queue, found in sorted(stages.items())
        )


def _of(kind: SafetyLimitKind[Any]) -> QuerySet[BrakeState]:
    return limit_rows.rows_of_kind(kind)


def _spending(queue: QueueRef, budget_state: RetryBudgetState, now: int) -> BudgetSpending:
    budget = budget_state.found(now, budget_state.limit).budget
    return BudgetSpending(queue, budget.spent(now), budget_state.limit.per_minute)
