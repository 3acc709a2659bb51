"""Limits how many jobs of a queue are auto-retried: in any minute at most ten, or a tenth of what the queue completes.

The minute slides. A bucket that refills would let two minutes' worth through around its refill; here every auto-retry
of the last 60 s counts, in slots of one second that leave when their *end* is a minute old. So the budget is never
exceeded, and at most a sixtieth of it is left unused.

The state is a value. A spender reads it, takes, and writes it back (also when nothing was granted) by compare-and-set,
and retries jobs only after that succeeded. `now` is the clock of the store that keeps it, so that two spenders have one
clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from recovery.domain import json_fields
from recovery.domain.time_units import MINUTE, SECOND

FLOOR = 10  # a minute, in any queue
SHARE = 10  # auto-retries for each hundred jobs that completed: the queue does its own work first
_PER_HOUR = 60  # minutes


@dataclass(frozen=True, slots=True)
class RetryBudgetLimit:
    """Auto-retries allowed in any minute. `completed` in the last hour; None: not known, so the floor counts."""

    per_minute: int
    completed: int | None = None

    @property
    def words(self) -> str:
        if self.completed is None:
            return f"{self.per_minute:,} a minute; the completion rate of the queue is unknown."
        if self.per_minute > FLOOR:
            return f"{self.per_minute:,} a minute: a tenth of the {self.completed:,} jobs completed in the last hour."
        return f"{self.per_minute:,} a minute; {self.completed:,} jobs completed in the last hour."


@dataclass(frozen=True, slots=True)
class BudgetSlot:
    """Auto-retries spent in one second. `at` is its start."""

    at: int
    count: int


@dataclass(frozen=True, slots=True)
class BudgetGrant:
    """Permission for `count` auto-retries, counted at that moment."""

    count: int
    at: int


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """Use of a budget, for the page. `free_at` is when the next auto-retry is possible, None: now."""

    spent: int
    limit: RetryBudgetLimit
    free_at: int | None
    words: str


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """Auto-retries that a queue has spent in the last minute."""

    slots: tuple[BudgetSlot, ...] = ()

    @classmethod
    def used_up(cls, now: int, limit: RetryBudgetLimit) -> Self:
        """Returns a budget that is fully spent for a minute, for a state that was lost: its spending is unknown."""
        return cls((BudgetSlot(_slot(now), limit.per_minute),))

    def spent(self, now: int) -> int:
        return sum(slot.count for slot in self._lately(now))

    def room(self, now: int, limit: RetryBudgetLimit) -> int:
        return max(0, limit.per_minute - self.spent(now))

    def take(self, now: int, wanted: int, limit: RetryBudgetLimit) -> tuple[BudgetGrant, RetryBudget]:
        """Grants as many of the wanted as there is room for, and returns the state to store before any is retried."""
        count = min(max(0, wanted), self.room(now, limit))
        return BudgetGrant(count, now), RetryBudget(_merged((*self._lately(now), BudgetSlot(_slot(now), count))))

    def give_back(self, grant: BudgetGrant, unused: int, now: int | None = None) -> RetryBudget:
        """Returns the budget without the part of a grant that was surely not used. What may have happened stays spent:
        from `now` on, when the last job was retried, or else from when it was granted.
        """
        at, left = _slot(grant.at), max(0, min(unused, grant.count))
        if now is None:
            return RetryBudget(_merged(tuple(_less(slot, left) if slot.at == at else slot for slot in self.slots)))
        others = tuple(_less(slot, grant.count) if slot.at == at else slot for slot in self.slots)
        return RetryBudget(_merged((*others, BudgetSlot(max(at, _slot(now)), grant.count - left))))

    def free_at(self, now: int, limit: RetryBudgetLimit, wanted: int = 1) -> int | None:
        """Returns when there is room for `wanted`, at the earliest; None: never, the limit is smaller."""
        if wanted > limit.per_minute:
            return None
        over = self.spent(now) + wanted - limit.per_minute
        for slot in self._lately(now):
            if over <= 0:
                break
            over -= slot.count
            now = max(now, _left_at(slot))
        return now

    def gauge(self, now: int, limit: RetryBudgetLimit) -> BudgetUsage:
        spent, free_at = self.spent(now), self.free_at(now, limit)
        said = f"{spent:,} of {limit.per_minute:,} auto-retries in the last minute."
        return BudgetUsage(spent, limit, free_at if free_at != now else None, said)

    def as_json(self) -> list[list[int]]:
        return [[slot.at, slot.count] for slot in self.slots]

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Parses the output of `as_json`. Raises ValueError on anything else."""
        found = (
            BudgetSlot(json_fields.whole(at), json_fields.count(number)) for at, number in json_fields.rows(written, 2)
        )
        return cls(_merged(tuple(found)))

    def _lately(self, now: int) -> tuple[BudgetSlot, ...]:
        """Returns the slots that count, oldest first. One from the future was written before the clock was set back: it
        counts as if it were of now, which keeps it for longer than it has to be, but not until that future comes.
        """
        this = _slot(now)
        return _merged(tuple(BudgetSlot(min(slot.at, this), slot.count) for slot in self.slots if _left_at(slot) > now))


def limit(completed: int | None, *, floor: int = FLOOR, share: int = SHARE) -> RetryBudgetLimit:
    """Returns the limit of a queue that completed so many jobs in the last hour."""
    return RetryBudgetLimit(max(floor, (completed or 0) * share // (100 * _PER_HOUR)), completed)


def _merged(slots: tuple[BudgetSlot, ...]) -> tuple[BudgetSlot, ...]:
    sums: dict[int, int] = {}
    for slot in slots:
        sums[slot.at] = sums.get(slot.at, 0) + slot.count
    return tuple(BudgetSlot(at, count) for at, count in sorted(sums.items()) if count)


def _less(slot: BudgetSlot, unused: int) -> BudgetSlot:
    return BudgetSlot(slot.at, max(0, slot.count - unused))


def _slot(at: int) -> int:
    return at - at % SECOND


def _left_at(slot: BudgetSlot) -> int:
    """Returns when the last moment of the slot is a minute old."""
    return slot.at + SECOND + MINUTE
