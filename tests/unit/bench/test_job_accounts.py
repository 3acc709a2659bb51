"""What the end-to-end benchmark finds in the logs of jobs: else it would find nothing wrong, whatever happened."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from bench.end_to_end import JobAccount, Side, _parsed

FIRST = 11  # the number of a process


@pytest.fixture
def side() -> Side:
    """Its first process was killed at 1,000 ms."""
    nothing: Any = None
    return Side(nothing, nothing, nothing, [], killed=defaultdict(list, {FIRST: [1_000]}))


def account(side: Side, *lines: str, places: tuple[str, ...] = ("completed",), removed: bool = False) -> JobAccount:
    made = JobAccount()
    made._add("mail:1", _parsed([line.encode() for line in lines]), set(places), side, is_removed=removed)
    return made


def test_a_job_whose_worker_was_killed_ran_again_so_much_later(side: Side) -> None:
    made = account(side, "11 400 began", "12 4500 began", "12 4900 ended")
    assert (made.interrupted, made.again, made.never, made.overlapping) == (1, [3.5], [], [])


def test_one_that_never_ran_again_is_told(side: Side) -> None:
    assert account(side, "11 400 began", places=("failed",)).never == ["mail:1"]


def test_one_that_the_operator_removed_need_not_run_again(side: Side) -> None:
    made = account(side, "11 400 began", places=(), removed=True)
    assert (made.never, made.lost) == ([], [])


def test_one_in_no_list_is_lost(side: Side) -> None:
    assert account(side, places=()).lost == ["mail:1"]


def test_one_that_has_not_finished_is_stuck(side: Side) -> None:
    assert account(side, places=("active",)).stuck == ["mail:1"]


def test_two_runs_at_once_are_told_also_when_the_first_process_dies_later(side: Side) -> None:
    assert account(side, "11 400 began", "12 900 began", "12 950 ended").overlapping == ["mail:1"]


def test_a_run_that_begins_while_an_earlier_one_goes_on_is_told(side: Side) -> None:
    lines = ("12 400 began", "11 500 began", "11 700 ended", "12 900 ended")
    assert account(side, *lines).overlapping == ["mail:1"]


def test_a_process_of_the_same_number_that_died_before_is_another_one(side: Side) -> None:
    assert account(side, "11 1500 began", places=("active",)).interrupted == 0


def test_an_end_in_the_moment_of_the_kill_excuses_a_second_one(side: Side) -> None:
    made = account(side, "11 400 began", "11 700 ended", "12 4500 began", "12 4900 ended")
    assert (made.ended_twice, made.ended_twice_otherwise) == (1, [])


def test_an_end_long_before_the_kill_does_not(side: Side) -> None:
    made = account(side, "11 100 began", "11 500 ended", "12 4500 began", "12 4900 ended")
    assert (made.ended_twice, made.ended_twice_otherwise) == (0, ["mail:1"])
