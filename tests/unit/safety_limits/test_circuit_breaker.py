"""Stops auto-retrying what fails again."""

from __future__ import annotations

import json

import pytest

from recovery.domain.safety_limits.circuit_breaker import (
    COUNTED_FOR,
    ENOUGH,
    OUT_FOR,
    OUT_LIMIT,
    PAUSE,
    AutoRetryOutcome,
    BreakerStage,
    CircuitBreaker,
)
from recovery.domain.time_units import HOUR, MINUTE

NOW = 1_800_000_000_000
FAILED, SUCCEEDED, UNKNOWN = AutoRetryOutcome.FAILED, AutoRetryOutcome.SUCCEEDED, AutoRetryOutcome.UNKNOWN
REFUSED = "connect ECONNREFUSED 10.0.0.7:5432\n    at TCP"


def tried(breaker: CircuitBreaker, ended: list[AutoRetryOutcome], at: int = NOW) -> CircuitBreaker:
    for number, how in enumerate(ended):
        breaker = breaker.retried(f"{at}:{number}", at).settled(f"{at}:{number}", how, at, REFUSED)
    return breaker


def opened() -> CircuitBreaker:
    return tried(CircuitBreaker("connect ECONNREFUSED"), [FAILED] * ENOUGH)


def probing() -> tuple[CircuitBreaker, int]:
    breaker = opened()
    return breaker.retried("probe", breaker.retry_at), breaker.retry_at


def test_it_opens_when_more_than_half_of_twenty_fail_again() -> None:
    assert tried(CircuitBreaker(), [SUCCEEDED] * 9 + [FAILED] * 11).stage(NOW) is BreakerStage.OPEN
    assert tried(CircuitBreaker(), [SUCCEEDED] * 10 + [FAILED] * 10).stage(NOW) is BreakerStage.CLOSED


def test_nineteen_failures_are_not_enough_to_say_anything() -> None:
    assert tried(CircuitBreaker(), [FAILED] * 19).stage(NOW) is BreakerStage.CLOSED
    assert tried(CircuitBreaker(), [FAILED] * 19 + [UNKNOWN] * 9).stage(NOW) is BreakerStage.CLOSED


def test_an_upstream_that_dies_after_a_thousand_successes_opens_it_as_soon() -> None:
    healthy = tried(CircuitBreaker(), [SUCCEEDED] * 1_000)
    assert tried(healthy, [FAILED] * 10, NOW + 1).stage(NOW + 1) is BreakerStage.CLOSED
    assert tried(healthy, [FAILED] * 11, NOW + 1).stage(NOW + 1) is BreakerStage.OPEN


def test_what_ended_days_ago_does_not_count() -> None:
    old = tried(CircuitBreaker(), [FAILED] * 19)
    later = NOW + COUNTED_FOR
    assert tried(old, [FAILED], later).stage(later) is BreakerStage.CLOSED


def test_nothing_goes_while_it_is_open_and_one_probe_after_the_pause() -> None:
    breaker = opened()
    assert (breaker.room(NOW), breaker.room(breaker.retry_at - 1)) == (0, 0)
    assert breaker.stage(breaker.retry_at) is BreakerStage.HALF_OPEN
    assert breaker.room(breaker.retry_at) == 1
    assert 5 * MINUTE <= breaker.retry_at - NOW <= 6 * MINUTE


def test_a_second_probe_does_not_go_while_the_first_is_out() -> None:
    breaker, at = probing()
    assert (breaker.room(at), breaker.room(at + 3 * HOUR)) == (0, 0)
    assert breaker.stage(at + 3 * HOUR) is BreakerStage.HALF_OPEN


def test_a_probe_that_succeeds_closes_it_and_it_counts_anew() -> None:
    breaker, at = probing()
    closed = breaker.settled("probe", SUCCEEDED, at + 1)
    assert (closed.stage(at + 1), closed.tally(at + 1), closed.trips) == (BreakerStage.CLOSED, (0, 0), 0)
    assert tried(closed, [FAILED] * 19, at + 2).stage(at + 2) is BreakerStage.CLOSED


def test_a_probe_that_fails_makes_the_next_pause_longer_up_to_the_longest() -> None:
    breaker, pauses = opened(), []
    for number in range(12):
        at = breaker.retry_at
        breaker = breaker.retried(f"p{number}", at).settled(f"p{number}", FAILED, at, "still down")
        pauses.append(breaker.retry_at - at)
    assert pauses[0] < pauses[1] < pauses[2]
    assert max(pauses) <= PAUSE.longest
    assert breaker.opened_at == NOW


def test_a_probe_of_which_nothing_is_known_is_followed_by_another() -> None:
    breaker, at = probing()
    assert breaker.settled("probe", UNKNOWN, at).room(at) == 1
    assert breaker.room(at + OUT_FOR) == 1


def test_only_the_probe_closes_it_not_a_job_that_went_before_it_opened() -> None:
    early = tried(CircuitBreaker().retried("early", NOW), [FAILED] * ENOUGH)
    assert early.settled("early", SUCCEEDED, NOW).stage(NOW) is BreakerStage.OPEN


def test_what_is_told_twice_counts_once() -> None:
    once = CircuitBreaker().retried("1", NOW).settled("1", FAILED, NOW)
    assert once.settled("1", FAILED, NOW) == once
    assert once.settled("2", FAILED, NOW) == once


def test_no_more_than_twenty_are_out_before_anything_is_known() -> None:
    breaker = CircuitBreaker()
    for number in range(ENOUGH):
        assert breaker.room(NOW) == ENOUGH - number
        breaker = breaker.retried(str(number), NOW)
    assert breaker.room(NOW) == 0
    assert tried(breaker, [SUCCEEDED] * ENOUGH).room(NOW) == OUT_LIMIT - ENOUGH


def test_a_probe_is_followed_even_when_as_many_as_can_be_are_out() -> None:
    breaker = tried(CircuitBreaker(), [SUCCEEDED] * ENOUGH)
    for number in range(OUT_LIMIT + 5):
        breaker = breaker.retried(str(number), NOW)
    for number in range(11):
        breaker = breaker.settled(str(number), FAILED, NOW).retried(f"more {number}", NOW)
    assert len(breaker.out) == OUT_LIMIT
    at = breaker.retry_at
    breaker = breaker.retried("probe", at)
    assert (breaker.room(at), len(breaker.out)) == (0, OUT_LIMIT)
    assert breaker.settled("probe", SUCCEEDED, at).stage(at) is BreakerStage.CLOSED


def test_a_person_may_release_it() -> None:
    released = opened().released()
    assert (released.stage(NOW), released.room(NOW)) == (BreakerStage.CLOSED, ENOUGH)
    assert tried(released, [FAILED] * ENOUGH, NOW + 1).stage(NOW + 1) is BreakerStage.OPEN


def test_it_says_what_it_knows() -> None:
    breaker = opened()
    assert CircuitBreaker().words(NOW) == (
        "Closed: 0 auto-retries have ended so far, 0 failed again, 0 are running. It decides from 20 on."
    )
    assert tried(CircuitBreaker(), [SUCCEEDED] * 20).words(NOW) == "Closed: 0 of the last 20 auto-retries failed again."
    assert breaker.words(breaker.retry_at - 2 * MINUTE).startswith("Open for ")
    assert breaker.words(NOW + MINUTE).endswith(
        "20 of 20 auto-retries failed again, the last with “connect ECONNREFUSED 10.0.0.7:5432”. "
        f"One probe job runs in {(breaker.retry_at - NOW - MINUTE) // MINUTE} min."
    )
    probe, at = probing()
    assert probe.words(at).endswith(" Job probe runs as a probe; its result is awaited.")
    again = probe.settled("probe", FAILED, at, "still down")
    assert again.words(again.retry_at).endswith("“still down”. A probe failed too. One job may run as a probe.")


def test_what_says_nothing_need_not_be_kept() -> None:
    assert CircuitBreaker("x").is_idle(NOW)
    assert not opened().is_idle(NOW + 2 * COUNTED_FOR)
    assert not CircuitBreaker().retried("1", NOW).is_idle(NOW)
    assert CircuitBreaker().retried("1", NOW).is_idle(NOW + OUT_FOR)


def test_it_survives_the_store_and_junk_is_refused() -> None:
    for breaker in (CircuitBreaker(), opened(), probing()[0], CircuitBreaker("\udcff").retried("\udcfe", NOW)):
        assert CircuitBreaker.from_json(json.loads(json.dumps(breaker.as_json()))) == breaker
    written = opened().as_json()
    for key, junk in {"results": [[1, 1]], "out": [[1, 1]], "opened_at": "x", "trips": -1, "probe": 1}.items():
        with pytest.raises(ValueError, match=r"not |negative"):
            CircuitBreaker.from_json(written | {key: junk})
    with pytest.raises(ValueError, match="not a table"):
        CircuitBreaker.from_json({"signature": "x"})
