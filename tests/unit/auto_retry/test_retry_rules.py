"""Whether a failed job may be auto-retried, when, and why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.auto_retry.backoff import Backoff, Backoffs
from recovery.domain.auto_retry.job_failure import JobFailure
from recovery.domain.auto_retry.rules import (
    CAP_WINDOW,
    NeverRetry,
    RetryCase,
    RetryDecision,
    RetryHistory,
    RetryRule,
    decide_retry,
)
from recovery.domain.identifiers import QueueRef
from recovery.domain.time_units import HOUR, SECOND

NOW = 1_800_000_000_000
REF = QueueRef("main", "bull:q").job("1")
FAILED = JobFailure("mail", "connect ECONNREFUSED 10.0.0.7:5432", failed_at=NOW - HOUR, attempts=1)
CASE = RetryCase(REF, FAILED)
TABLE = Backoffs(Backoff(jitter=0.0), {"mail": Backoff(3, 5 * SECOND, jitter=0.0)})


def judged(case: RetryCase = CASE, never: NeverRetry | None = None, now: int = NOW) -> RetryDecision:
    return decide_retry(case, TABLE, never or NeverRetry(), now)


def failing(**values: object) -> RetryCase:
    return replace(CASE, failure=replace(FAILED, **values))  # type: ignore[arg-type] - values by name


def test_a_job_whose_pause_is_over_is_due() -> None:
    assert judged() == RetryDecision(RetryRule.DUE, "It is due now: auto-retry 1 of 3.", NOW - HOUR + 5 * SECOND)


def test_each_auto_retry_waits_longer_than_the_one_before() -> None:
    just_now = replace(failing(failed_at=NOW), past=RetryHistory(1, (NOW - HOUR,)))
    assert judged(just_now) == RetryDecision(RetryRule.WAITS, "Auto-retry 2 of 3 is due in 10 s.", NOW + 10 * SECOND)
    assert judged(just_now, now=NOW + 10 * SECOND).is_due


def test_after_as_many_auto_retries_as_its_policy_allows_a_person_decides() -> None:
    used_up = judged(replace(CASE, past=RetryHistory(3)))
    assert (used_up.rule, used_up.at) == (RetryRule.EXHAUSTED, None)
    assert used_up.why == "It was auto-retried 3 times, as often as its policy allows."


def test_three_auto_retries_in_72_hours_are_the_cap_whatever_the_policy_says() -> None:
    other = replace(failing(name="other"), past=RetryHistory(3, (NOW - 9 * HOUR, NOW - 6 * HOUR, NOW - 3 * HOUR)))
    capped = judged(other)
    assert (capped.rule, capped.at, capped.rule.is_final) == (RetryRule.CAPPED, NOW - 9 * HOUR + CAP_WINDOW, False)
    assert capped.why == "It was auto-retried 3 times within 3 d: the next one is possible in 2 d 15 h."
    assert judged(other, now=NOW - 9 * HOUR + CAP_WINDOW).is_due


def test_a_job_that_was_auto_retried_too_often_waits_until_fewer_than_three_lie_in_the_window() -> None:
    times = tuple(NOW - hours * HOUR for hours in (5, 4, 3, 2))
    assert judged(replace(failing(name="other"), past=RetryHistory(4, times))).at == NOW - 4 * HOUR + CAP_WINDOW


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        (replace(CASE, is_quarantined=True), RetryRule.QUARANTINE),
        (replace(CASE, is_malformed=True), RetryRule.MALFORMED),
        (replace(CASE, was_cancelled=True), RetryRule.CANCELLED),
        (failing(reason="cancelled by an operator"), RetryRule.CANCELLED),
        (failing(error="UnrecoverableError: no\n at x"), RetryRule.UNRECOVERABLE),
        (failing(attempts=1, attempts_limit=3), RetryRule.UNRECOVERABLE),
        (failing(name="charge:card"), RetryRule.NAME),
        (failing(reason="Insufficient FUNDS on account 77"), RetryRule.SIGNATURE),
        (failing(failed_at=None), RetryRule.UNKNOWN),
    ],
)
def test_what_never_comes_back_by_itself(case: RetryCase, rule: RetryRule) -> None:
    found = judged(case, NeverRetry(frozenset({"charge*"}), frozenset({"insufficient funds on account 12"})))
    assert (found.rule, found.at, found.is_due, found.rule.is_final) == (rule, None, False, True)
    assert found.why.endswith((".", "”."))


def test_an_empty_never_entry_forbids_nothing() -> None:
    assert judged(never=NeverRetry(frozenset(), frozenset({"", "  "}))).is_due


def test_a_auto_retry_counts_when_the_job_itself_has_forgotten_it() -> None:
    past = RetryHistory()
    for hour in range(3):
        past = past.retried(NOW - hour * HOUR)
    assert judged(replace(failing(name="other", attempts=0, attempts_limit=0), past=past)).rule is RetryRule.CAPPED


def test_only_the_last_times_are_kept() -> None:
    past = RetryHistory()
    for at in range(100):
        past = past.retried(at)
    assert (past.made, len(past.at), past.at[-1]) == (100, 10, 99)


def test_the_past_survives_the_store_and_junk_is_refused() -> None:
    past = RetryHistory(2, (1, 2))
    assert RetryHistory.from_json(past.as_json()) == past
    for junk in (None, [], {}, {"made": 1}, {"made": -1, "at": []}, {"made": 1, "at": ["x"]}, {"made": 1, "at": 1}):
        with pytest.raises(ValueError, match=r"not a|negative"):
            RetryHistory.from_json(junk)


def test_an_id_that_is_used_again_has_its_own_auto_retries_and_the_same_cap() -> None:
    past = RetryHistory()
    for hour in (3, 2, 1):
        past = past.retried(NOW - hour * HOUR)
    assert past.of_life(NOW - 2 * HOUR) == past, "it was added before the last of them"
    assert past.of_life(0) == past
    again = past.of_life(NOW)
    assert (again.made, again.is_capped(NOW)) == (0, True)
