"""How long to wait before the next try, by the name of the job."""

from __future__ import annotations

import pytest

from recovery.domain.auto_retry.backoff import Backoff, Backoffs
from recovery.domain.time_units import HOUR, SECOND

EVEN = Backoff(jitter=0.0)


def test_by_default_it_is_five_times_from_one_second_doubling() -> None:
    assert EVEN.attempts == 5
    assert [EVEN.pause(made, "") for made in range(4)] == [1_000, 2_000, 4_000, 8_000]


def test_no_pause_is_longer_than_the_longest_however_often() -> None:
    assert Backoff(longest=HOUR).pause(10_000, "a") <= HOUR
    assert Backoff(first=0).pause(10_000, "a") == 0


def test_jitter_is_the_same_for_a_job_whenever_it_is_asked_and_differs_between_jobs() -> None:
    backoff = Backoff(first=60 * SECOND)
    assert len({backoff.pause(2, "queue#7") for _ in range(10)}) == 1
    assert len({backoff.pause(2, f"queue#{id}") for id in range(50)}) > 40


def test_jobs_at_the_longest_pause_do_not_come_back_together() -> None:
    backoff = Backoff(longest=HOUR)
    assert len({backoff.pause(50, f"queue#{id}") for id in range(50)}) > 40


def test_a_name_that_holds_any_bytes_has_a_pause() -> None:
    assert Backoff().pause(0, "\udcff") >= SECOND


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": -1},
        {"first": -1},
        {"first": 2 * HOUR, "longest": HOUR},
        {"factor": 0.5},
        {"jitter": 1.5},
        {"factor": float("nan")},
    ],
)
def test_an_impossible_backoff_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r" (is|are) "):
        Backoff(**wrong)  # type: ignore[arg-type] - numbers of the wrong size


def test_the_exact_name_wins_over_the_longest_beginning_and_that_over_the_default() -> None:
    table = Backoffs(by_name={"mail": Backoff(1), "mail*": Backoff(2), "mail:bulk*": Backoff(3)})
    names = ("mail", "mail:one", "mail:bulk:7", "other")
    assert [table.of(name).attempts for name in names] == [1, 2, 3, 5]
    assert table.entry("other") == "*"


def test_it_says_in_words_what_it_does() -> None:
    table = Backoffs(by_name={"mail": Backoff(3, 5 * SECOND), "sms": Backoff(0), "tick": Backoff(1, factor=1)})
    assert table.words == (
        "mail: 3 auto-retries, the first after 5.0 s, then growing by factor 2, at most 6 h.",
        "sms: Never auto-retried.",
        "tick: 1 auto-retry, 1.0 s after the failure.",
        "All others: 5 auto-retries, the first after 1.0 s, then growing by factor 2, at most 6 h.",
    )
    assert Backoff(2, factor=1.0).words.endswith("at equal intervals, at most 6 h.")
