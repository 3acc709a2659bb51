"""How many jobs of a queue may be auto-retried in a minute."""

from __future__ import annotations

import pytest

from recovery.domain.safety_limits.retry_budget import BudgetGrant, RetryBudget, limit
from recovery.domain.time_units import MINUTE, SECOND

NOW = 1_800_000_000_000
TEN = limit(None)


@pytest.mark.parametrize(
    ("completed", "per_minute"), [(None, 10), (0, 10), (6_000, 10), (6_599, 10), (6_600, 11), (60_000, 100)]
)
def test_it_is_ten_a_minute_or_a_tenth_of_what_completes(completed: int | None, per_minute: int) -> None:
    assert limit(completed).per_minute == per_minute


def test_what_is_not_known_is_not_said_to_be_nothing() -> None:
    assert TEN.words == "10 a minute; the completion rate of the queue is unknown."
    assert limit(0).words == "10 a minute; 0 jobs completed in the last hour."
    assert limit(60_000).words == "100 a minute: a tenth of the 60,000 jobs completed in the last hour."


def test_no_more_is_granted_than_there_is_room_for() -> None:
    grant, spent = RetryBudget().take(NOW, 50, TEN)
    assert grant == BudgetGrant(10, NOW)
    assert spent.take(NOW + 59_999, 1, TEN)[0].count == 0
    assert spent.take(NOW, -5, TEN)[0].count == 0


def test_the_minute_slides_and_never_lets_two_of_them_through_around_its_turn() -> None:
    _, spent = RetryBudget().take(NOW + 999, 10, TEN)
    assert spent.room(NOW + MINUTE + 998, TEN) == 0
    assert spent.room(NOW + MINUTE + SECOND, TEN) == 10


def test_it_says_when_there_is_room_again() -> None:
    _, spent = RetryBudget().take(NOW, 4, TEN)
    _, spent = spent.take(NOW + 10 * SECOND, 6, TEN)
    assert spent.free_at(NOW + 10 * SECOND, TEN) == NOW + MINUTE + SECOND
    assert spent.free_at(NOW + 10 * SECOND, TEN, 5) == NOW + 10 * SECOND + MINUTE + SECOND
    assert spent.free_at(NOW + 10 * SECOND, TEN, 11) is None
    assert RetryBudget().free_at(NOW, TEN) == NOW


def test_a_limit_that_fell_grants_nothing_until_enough_has_left() -> None:
    _, spent = RetryBudget().take(NOW, 100, limit(60_000))
    assert (spent.room(NOW, TEN), spent.spent(NOW)) == (0, 100)


def test_what_was_surely_not_done_may_be_given_back() -> None:
    grant, spent = RetryBudget().take(NOW, 10, TEN)
    assert spent.give_back(grant, 4).room(NOW, TEN) == 4
    assert spent.give_back(grant, 1_000).room(NOW, TEN) == 10
    assert spent.give_back(grant, -3) == spent


def test_a_clock_that_was_set_back_frees_nothing_and_blocks_for_a_minute_at_most() -> None:
    _, spent = RetryBudget().take(NOW + 1_000 * MINUTE, 10, TEN)
    grant, spent = spent.take(NOW, 1, TEN)
    assert grant.count == 0
    assert spent.room(NOW + MINUTE + SECOND, TEN) == 10


def test_a_lost_state_counts_as_used_up_for_a_minute() -> None:
    lost = RetryBudget.used_up(NOW, TEN)
    assert (lost.room(NOW, TEN), lost.room(NOW + MINUTE + SECOND, TEN)) == (0, 10)


def test_the_gauge_shows_what_is_spent_and_when_more_may_go() -> None:
    gauge = RetryBudget().take(NOW, 10, TEN)[1].gauge(NOW, TEN)
    assert (gauge.spent, gauge.limit, gauge.free_at) == (10, TEN, NOW + MINUTE + SECOND)
    assert gauge.words == "10 of 10 auto-retries in the last minute."
    assert RetryBudget().gauge(NOW, TEN).free_at is None


def test_it_survives_the_store_and_junk_is_refused() -> None:
    spent = RetryBudget().take(NOW + 2_000, 3, TEN)[1].take(NOW + 9_000, 3, TEN)[1]
    assert RetryBudget.from_json(spent.as_json()) == spent
    for junk in (None, {}, [[1]], [[1, -1]], [["a", 1]], [[1.0, 1]], [[True, 1]]):
        with pytest.raises(ValueError, match=r"not a|negative"):
            RetryBudget.from_json(junk)
