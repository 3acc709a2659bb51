"""Defines the stored state of a queue's budget: recent spending, and the limit that counted at the last use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from recovery.domain import json_fields
from recovery.domain.safety_limits.retry_budget import FLOOR, BudgetGrant, RetryBudget, RetryBudgetLimit


@dataclass(frozen=True, slots=True)
class RetryBudgetState:
    """Stored state of a budget. `is_lost`: what was spent is not known, so all of it counts as spent."""

    budget: RetryBudget = field(default_factory=RetryBudget)
    limit: RetryBudgetLimit = field(default_factory=lambda: RetryBudgetLimit(FLOOR))
    is_lost: bool = False

    @classmethod
    def lost(cls, _at: int = 0) -> Self:
        return cls(is_lost=True)

    def found(self, now: int, limit: RetryBudgetLimit) -> RetryBudgetState:
        """Returns the state with the limit that counts now."""
        return RetryBudgetState(RetryBudget.used_up(now, limit) if self.is_lost else self.budget, limit)

    def take(self, now: int, wanted: int, limit: RetryBudgetLimit) -> tuple[BudgetGrant, RetryBudgetState]:
        budget_state = self.found(now, limit)
        grant, left = budget_state.budget.take(now, wanted, limit)
        return grant, replace(budget_state, budget=left)

    def give_back(self, grant: BudgetGrant, unused: int, now: int) -> RetryBudgetState:
        return replace(self, budget=self.budget.give_back(grant, unused, now))

    def as_json(self) -> dict[str, Any]:
        return {"slots": self.budget.as_json(), "limit": [self.limit.per_minute, self.limit.completed]}

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Parses the output of `as_json`. Raises ValueError on anything else."""
        slots, limit = json_fields.fields(written, "slots", "limit")
        ((per_minute, completed),) = json_fields.rows([limit], 2)
        known = None if completed is None else json_fields.count(completed)
        return cls(RetryBudget.from_json(slots), RetryBudgetLimit(json_fields.count(per_minute), known))
