"""Defines the stored state of a queue's budget: recent spending, and the limit that counted at the last use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from recovery.domain import stored
from recovery.domain.budget import FLOOR, Budget, Grant, Limit


@dataclass(frozen=True, slots=True)
class Purse:
    """Stored state of a budget. `is_lost`: what was spent is not known, so all of it counts as spent."""

    budget: Budget = field(default_factory=Budget)
    limit: Limit = field(default_factory=lambda: Limit(FLOOR))
    is_lost: bool = False

    @classmethod
    def lost(cls, _at: int = 0) -> Self:
        return cls(is_lost=True)

    def found(self, now: int, limit: Limit) -> Purse:
        """Returns the state with the limit that counts now."""
        return Purse(Budget.used_up(now, limit) if self.is_lost else self.budget, limit)

    def take(self, now: int, wanted: int, limit: Limit) -> tuple[Grant, Purse]:
        purse = self.found(now, limit)
        grant, left = purse.budget.take(now, wanted, limit)
        return grant, replace(purse, budget=left)

    def give_back(self, grant: Grant, unused: int, now: int) -> Purse:
        return replace(self, budget=self.budget.give_back(grant, unused, now))

    def as_json(self) -> dict[str, Any]:
        return {"slots": self.budget.as_json(), "limit": [self.limit.per_minute, self.limit.completed]}

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Parses the output of `as_json`. Raises ValueError on anything else."""
        slots, limit = stored.fields(written, "slots", "limit")
        ((per_minute, completed),) = stored.rows([limit], 2)
        known = None if completed is None else stored.count(completed)
        return cls(Budget.from_json(slots), Limit(stored.count(per_minute), known))
