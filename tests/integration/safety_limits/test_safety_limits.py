"""The limits of auto-retries in the database: what they grant, what they forget, and how a person lets go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from django.db import OperationalError, connection

from recovery.actions.audit import audit_log
from recovery.actions.safety_limits import auto_retry_limits, compare_and_set
from recovery.actions.safety_limits.auto_retry_limits import AutoRetryCandidate, AutoRetryResult
from recovery.domain.actions.types import Action, ActionCommand, Actor, ExpectedJob
from recovery.domain.auto_retry.rules import CAP_WINDOW, RetryHistory
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.safety_limits.circuit_breaker import ENOUGH, AutoRetryOutcome
from recovery.domain.safety_limits.retry_budget import RetryBudgetLimit
from recovery.domain.time_units import DAY, HOUR, MINUTE, SECOND
from recovery.errors import NotRecorded
from recovery.models import BrakeState
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import BREAKER, BUDGET, RETRY_HISTORY, SafetyLimitScope, breaker_key

NOW = 1_800_000_000_000
MAIL, OTHER = QueueRef("main", "bull:mail"), QueueRef("main", "bull:other")
TEN = RetryBudgetLimit(10)
REFUSED = "connect ECONNREFUSED #"
pytestmark = pytest.mark.django_db


def going(*ids: str, signature: str = REFUSED, failed_at: int = 0) -> dict[str, AutoRetryCandidate]:
    return dict.fromkeys(ids, AutoRetryCandidate(signature, failed_at))


def ended(how: AutoRetryOutcome, *ids: str, error: str = "") -> dict[str, AutoRetryResult]:
    return dict.fromkeys(ids, AutoRetryResult(how, error))


def tripped(queue: QueueRef = MAIL, now: int = NOW) -> None:
    """Twenty went, and all of them failed again."""
    ids = [str(number) for number in range(ENOUGH)]
    assert auto_retry_limits.admit_retries(queue, going(*ids), now) == tuple(ids)
    auto_retry_limits.settle_retries(
        queue, ended(AutoRetryOutcome.FAILED, *ids, error="connect ECONNREFUSED 10.0.0.7:5432"), now
    )


def spoil(kind: str, at: int = NOW) -> None:
    """What another version wrote, or half of a row."""
    assert BrakeState.objects.filter(kind=kind).update(state='{"slots": "odd"}', at=at)


# -- the budget


def test_what_is_granted_is_never_more_than_the_limit_in_any_minute() -> None:
    assert auto_retry_limits.take_budget(MAIL, 7, TEN, NOW).count == 7
    assert auto_retry_limits.take_budget(MAIL, 7, TEN, NOW + 30 * SECOND).count == 3
    assert auto_retry_limits.take_budget(MAIL, 7, TEN, NOW + MINUTE).count == 0
    assert auto_retry_limits.take_budget(MAIL, 9, TEN, NOW + MINUTE + SECOND).count == 7
    assert auto_retry_limits.take_budget(OTHER, 7, TEN, NOW).count == 7


def test_what_surely_did_not_go_is_given_back_and_the_rest_counts_from_when_it_went() -> None:
    grant = auto_retry_limits.take_budget(MAIL, 10, TEN, NOW)
    auto_retry_limits.return_budget(MAIL, grant, 4, NOW + 20 * SECOND)
    assert auto_retry_limits.take_budget(MAIL, 10, TEN, NOW + 20 * SECOND).count == 4
    assert auto_retry_limits.take_budget(MAIL, 10, TEN, NOW + MINUTE + SECOND).count == 0  # a minute after the grant
    assert auto_retry_limits.take_budget(MAIL, 10, TEN, NOW + 20 * SECOND + MINUTE + SECOND).count == 10


def test_it_tells_when_the_next_may_go() -> None:
    assert auto_retry_limits.budget_free_at(MAIL, TEN, now=NOW) == NOW
    auto_retry_limits.take_budget(MAIL, 10, TEN, NOW)
    assert auto_retry_limits.budget_free_at(MAIL, TEN, now=NOW) == NOW + MINUTE + SECOND
    assert auto_retry_limits.budget_free_at(MAIL, TEN, wanted=11, now=NOW) is None


def test_a_budget_that_cannot_be_read_counts_as_used_up_for_a_minute() -> None:
    auto_retry_limits.take_budget(MAIL, 1, TEN, NOW)
    spoil(BUDGET.name)
    assert auto_retry_limits.budget_free_at(MAIL, TEN, now=NOW) == NOW + MINUTE + SECOND
    assert auto_retry_limits.take_budget(MAIL, 1, TEN, NOW).count == 0
    assert auto_retry_limits.take_budget(MAIL, 1, TEN, NOW + MINUTE).count == 0
    assert auto_retry_limits.take_budget(MAIL, 10, TEN, NOW + MINUTE + SECOND).count == 10


def test_a_budget_that_was_lost_counts_as_used_up_when_the_audit_knows_of_auto_retries() -> None:
    def retried(queue: QueueRef, kind: str) -> None:
        order = ActionCommand(
            Action.RETRY, queue, Actor(kind, "auto-retry"), "policy", (ExpectedJob("1", JobState.FAILED),)
        )
        audit_log._write(audit_log._Draft(audit_log.INTENT, order.actor, order.act, queue, "policy", {}), durable=False)

    retried(MAIL, "scanner")
    retried(OTHER, "person")
    assert auto_retry_limits.take_budget(MAIL, 1, TEN).count == 0
    assert auto_retry_limits.take_budget(OTHER, 1, TEN).count == 1


def test_the_time_is_told_by_the_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT CAST(strftime('%s', 'now') AS INTEGER)")
        (seconds,) = cursor.fetchone()
    assert abs(auto_retry_limits.take_budget(MAIL, 1, TEN).at - seconds * SECOND) < MINUTE


# -- breakers


def test_the_breakers_of_the_error_and_of_all_errors_both_count() -> None:
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, NOW) == ENOUGH
    auto_retry_limits.admit_retries(MAIL, going("1", "2", "3"), NOW)
    auto_retry_limits.admit_retries(MAIL, going("4", signature="timeout"), NOW)
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, NOW) == ENOUGH - 4
    assert auto_retry_limits.breaker_room(OTHER, REFUSED, NOW) == ENOUGH
    assert BrakeState.objects.filter(kind=BREAKER.name).count() == 3


def test_a_failing_upstream_opens_both_and_one_probe_closes_them_again() -> None:
    tripped()
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, NOW) == 0
    assert auto_retry_limits.breaker_room(MAIL, "another error", NOW) == 0
    later = NOW + HOUR
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, later) == 1
    assert auto_retry_limits.admit_retries(MAIL, going("a", "b"), later) == ("a",)
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, later) == 0
    auto_retry_limits.settle_retries(MAIL, ended(AutoRetryOutcome.SUCCEEDED, "a"), later)
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, later) == ENOUGH


def test_what_no_breaker_has_room_for_does_not_go_whatever_was_said_before() -> None:
    """Another one may have auto-retried between the look at the room and the note of it."""
    first = auto_retry_limits.admit_retries(MAIL, going(*map(str, range(15))), NOW)
    second = auto_retry_limits.admit_retries(MAIL, going(*map(str, range(100, 115))), NOW)
    assert (len(first), len(second)) == (15, ENOUGH - 15)
    assert auto_retry_limits.retry_histories(MAIL, ["100", "114"]) == {
        "100": RetryHistory(1, (NOW,)),
        "114": RetryHistory(),
    }


def test_what_is_out_is_told_with_when_it_had_failed_until_it_is_settled() -> None:
    auto_retry_limits.admit_retries(MAIL, going("1", "2", failed_at=NOW - 7), NOW)
    (queue,) = found = auto_retry_limits.unsettled_retries(now=NOW)
    assert queue == MAIL
    assert [(out.id, out.at, out.failed_at) for out in found[MAIL]] == [("1", NOW, NOW - 7), ("2", NOW, NOW - 7)]
    auto_retry_limits.settle_retries(
        MAIL, ended(AutoRetryOutcome.SUCCEEDED, "1") | ended(AutoRetryOutcome.FAILED, "2"), NOW
    )
    assert auto_retry_limits.unsettled_retries(now=NOW) == {}
    assert auto_retry_limits.unsettled_retries(OTHER, NOW) == {}


def test_one_that_goes_again_before_its_failure_was_told_has_failed_all_the_same() -> None:
    """It failed so fast that nobody had looked in between."""
    for times in range(ENOUGH + 1):
        auto_retry_limits.admit_retries(MAIL, going("1", failed_at=NOW + times), NOW + times)
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, NOW + ENOUGH) == 0


def test_one_that_is_noted_twice_for_one_failure_has_not_failed() -> None:
    for failed_at in (NOW, NOW, 0, 0, NOW):
        auto_retry_limits.admit_retries(MAIL, going("1", failed_at=failed_at), NOW)
    breaker = limit_rows.values_by_key(BREAKER, SafetyLimitScope.of(MAIL))[""]
    assert (breaker.tally(NOW), len(breaker.out)) == ((0, 0), 1)


def test_what_a_job_failed_with_is_kept_without_its_secrets() -> None:
    auto_retry_limits.admit_retries(MAIL, going("1"), NOW)
    auto_retry_limits.settle_retries(
        MAIL, ended(AutoRetryOutcome.FAILED, "1", error="login with password=hunter22 failed"), NOW
    )
    kept = "".join(BrakeState.objects.filter(kind=BREAKER.name).values_list("state", flat=True))
    assert "login with" in kept
    assert "hunter22" not in kept


def test_a_breaker_that_cannot_be_read_is_open_until_a_probe_succeeds() -> None:
    auto_retry_limits.admit_retries(MAIL, going("1"), NOW)
    spoil(BREAKER.name)
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, NOW) == 0
    assert auto_retry_limits.admit_retries(MAIL, going("2"), NOW) == ()
    later = NOW + 7 * MINUTE
    assert auto_retry_limits.admit_retries(MAIL, going("2", "3"), later) == ("2",)
    auto_retry_limits.settle_retries(MAIL, ended(AutoRetryOutcome.SUCCEEDED, "2"), later)
    assert auto_retry_limits.breaker_room(MAIL, REFUSED, later) == ENOUGH


def test_beyond_so_many_errors_the_breaker_for_all_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_retry_limits, "BREAKERS", 3)
    for number in range(6):
        auto_retry_limits.admit_retries(MAIL, going(str(number), signature=f"error {'x' * number}"), NOW)
    keys = BrakeState.objects.filter(kind=BREAKER.name).values_list("key", flat=True)
    assert set(keys) == {"", breaker_key("error "), breaker_key("error x")}
    assert len(auto_retry_limits.unsettled_retries(MAIL, NOW)[MAIL]) == 6


# -- the past of a job


def test_the_past_is_counted_outside_the_job_and_in_any_spelling_of_its_id() -> None:
    odd, long = "\udcff/ä\x00 1", "x" * 5_000
    auto_retry_limits.admit_retries(MAIL, going(odd, long), NOW)
    auto_retry_limits.admit_retries(MAIL, going(odd), NOW + SECOND)
    found = auto_retry_limits.retry_histories(MAIL, [odd, long, "never"])
    assert found == {odd: RetryHistory(2, (NOW, NOW + SECOND)), long: RetryHistory(1, (NOW,)), "never": RetryHistory()}


def test_what_surely_did_not_go_is_withdrawn() -> None:
    auto_retry_limits.admit_retries(MAIL, going("1", "2"), NOW)
    auto_retry_limits.withdraw_retries(MAIL, ["2"], NOW)
    assert auto_retry_limits.retry_histories(MAIL, ["1", "2"]) == {"1": RetryHistory(1, (NOW,)), "2": RetryHistory()}
    assert [out.id for out in auto_retry_limits.unsettled_retries(MAIL, NOW)[MAIL]] == ["1"]


def test_a_past_that_cannot_be_read_is_at_its_cap_from_when_it_was_written() -> None:
    auto_retry_limits.admit_retries(MAIL, going("1"), NOW)
    spoil(RETRY_HISTORY.name)
    (past,) = auto_retry_limits.retry_histories(MAIL, ["1"]).values()
    assert past.is_capped(NOW + CAP_WINDOW - 1)
    assert not past.is_capped(NOW + CAP_WINDOW)


def test_all_of_it_is_kept_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The past is written behind the breakers: when it fails, they have to forget too."""
    put = compare_and_set._put

    def failing(here: Mapping[str, str], *rest: Any) -> None:
        if here["kind"] == RETRY_HISTORY.name:
            raise OperationalError
        put(here, *rest)

    monkeypatch.setattr(compare_and_set, "_put", failing)
    with pytest.raises(NotRecorded, match="nothing was changed"):
        auto_retry_limits.admit_retries(MAIL, going("1"), NOW)
    assert not BrakeState.objects.exists()


# -- what says nothing any more


def test_only_idle_rows_are_pruned() -> None:
    auto_retry_limits.take_budget(MAIL, 1, TEN, NOW)
    auto_retry_limits.admit_retries(MAIL, going("1"), NOW)
    tripped(OTHER)
    assert auto_retry_limits.prune(NOW + HOUR) == 0
    auto_retry_limits.settle_retries(MAIL, ended(AutoRetryOutcome.UNKNOWN, "1"), NOW)
    assert auto_retry_limits.prune(NOW + HOUR) == 2  # the two breakers of the first queue
    assert auto_retry_limits.prune(NOW + 2 * DAY) == 1  # its budget
    assert auto_retry_limits.retry_histories(MAIL, ["1"])["1"].made == 1
    assert auto_retry_limits.prune(NOW + 31 * DAY) == 2
    assert auto_retry_limits.prune(NOW + 91 * DAY) == 1 + ENOUGH
    assert not BrakeState.objects.exists()


def test_a_database_that_is_away_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> int:
        raise OperationalError("no route to db.internal")

    monkeypatch.setattr("recovery.stores.sql.database_clock.now", away)
    for ask in (
        lambda: auto_retry_limits.take_budget(MAIL, 1, TEN),
        lambda: auto_retry_limits.breaker_room(MAIL, REFUSED),
        lambda: auto_retry_limits.admit_retries(MAIL, going("1")),
        lambda: auto_retry_limits.budget_free_at(MAIL, TEN),
        auto_retry_limits.unsettled_retries,
        auto_retry_limits.prune,
    ):
        with pytest.raises(NotRecorded, match="OperationalError") as caught:
            ask()
        assert "db.internal" not in str(caught.value)
