"""However many spend at once, fall behind, crash or have the clock set back: no minute sees more than the budget."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.safety_limits.retry_budget import BudgetGrant, RetryBudget, RetryBudgetLimit, limit
from recovery.domain.time_units import MINUTE

SPENDERS = 3
moves = st.lists(
    st.tuples(
        st.integers(0, SPENDERS - 1),
        st.sampled_from(["read", "spend", "give back"]),
        st.integers(0, 20_000),  # ms that pass before it
        st.integers(0, 40),  # wanted, or unused
        st.none() | st.integers(0, 40_000),  # completed in the last hour
    ),
    max_size=80,
)


@dataclass
class Till:
    """A store that takes a new state only from whoever read the newest one."""

    kept: str = "[]"
    number: int = 0
    copies: dict[int, tuple[int, RetryBudget]] = field(default_factory=dict)
    grants: dict[int, BudgetGrant] = field(default_factory=dict)
    spent: list[tuple[int, int, int]] = field(default_factory=list)  # (at, how many, the limit then)

    def read(self, spender: int) -> None:
        self.copies[spender] = self.number, RetryBudget.from_json(json.loads(self.kept))

    def spend(self, spender: int, now: int, wanted: int, allowed: RetryBudgetLimit) -> None:
        if spender not in self.copies:
            return
        number, budget = self.copies.pop(spender)
        grant, after = budget.take(now, wanted, allowed)
        if self._kept(number, after):
            self.grants[spender] = grant
            self.spent.append((now, grant.count, allowed.per_minute))

    def give_back(self, spender: int, unused: int) -> None:
        """Of what it was granted last, once."""
        grant = self.grants.pop(spender, None)
        if grant is None:
            return
        unused = min(unused, grant.count)
        self._kept(self.number, RetryBudget.from_json(json.loads(self.kept)).give_back(grant, unused))
        place = max(place for place, (at, count, _) in enumerate(self.spent) if (at, count) == (grant.at, grant.count))
        at, count, allowed = self.spent[place]
        self.spent[place] = at, count - unused, allowed

    def _kept(self, number: int, after: RetryBudget) -> bool:
        if number != self.number:
            return False
        self.kept, self.number = json.dumps(after.as_json()), self.number + 1
        return True


@given(moves)
def test_no_interleaving_spends_more_in_any_minute(steps: list[tuple[int, str, int, int, int | None]]) -> None:
    till, now = Till(), 1_800_000_000_000
    for spender, move, passed, number, completed in steps:
        now += passed
        if move == "read":
            till.read(spender)
        elif move == "spend":
            till.spend(spender, now, number, limit(completed))
        else:
            till.give_back(spender, number)
    for place, (at, count, allowed) in enumerate(till.spent):
        minute = sum(other for then, other, _ in till.spent[: place + 1] if then > at - MINUTE)
        assert not count or minute <= allowed


@given(st.lists(st.tuples(st.integers(-90_000, 30_000), st.integers(0, 20)), max_size=60))
def test_a_clock_that_jumps_back_never_frees_what_is_spent(steps: list[tuple[int, int]]) -> None:
    """`real` is a clock that never goes back; the budget hears one that does."""
    budget, clock, real, spent = RetryBudget(), 1_800_000_000_000, 0, list[tuple[int, int]]()
    for step, wanted in steps:
        clock, real = clock + step, real + max(0, step)
        grant, budget = budget.take(clock, wanted, limit(None))
        spent.append((real, grant.count))
        assert sum(count for at, count in spent if at > real - MINUTE) <= 10


@given(st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 20)), max_size=60), st.integers(1, 10))
def test_the_moment_it_names_is_the_first_with_room(steps: list[tuple[int, int]], wanted: int) -> None:
    budget, now = RetryBudget(), 1_800_000_000_000
    for passed, number in steps:
        now += passed
        _, budget = budget.take(now, number, limit(None))
    free = budget.free_at(now, limit(None), wanted)
    assert free is not None
    assert budget.room(free, limit(None)) >= wanted
    assert free == now or budget.room(free - 1, limit(None)) < wanted
    assert free <= now + MINUTE + 1_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30_000),  # ms until it asks
            st.integers(0, 20),  # wanted
            st.lists(st.integers(0, 20_000), max_size=20),  # ms until each of them goes, behind the one before
        ),
        max_size=40,
    )
)
def test_however_late_what_was_granted_goes_no_minute_sees_more(steps: list[tuple[int, int, list[int]]]) -> None:
    """What went is told once the last of it has gone, and counts from then on."""
    budget, now, went = RetryBudget(), 1_800_000_000_000, list[int]()
    for passed, wanted, late in steps:
        now += passed
        grant, budget = budget.take(now, wanted, limit(None))
        for pause in late[: grant.count]:
            now += pause
            went.append(now)
        budget = budget.give_back(grant, grant.count - min(grant.count, len(late)), now)
    assert all(sum(at - MINUTE < one <= at for one in went) <= 10 for at in went)
