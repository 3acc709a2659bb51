"""Run and waiting times of finished jobs."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.job_durations import DurationPercentiles, durations

QUEUE = QueueRef("main", "bull:jobs")


def run(took: int, waited: int = 10, **more: int) -> JobRow:
    delay = more.get("delay", 0)
    started = 1_000 + delay + waited
    return JobRow(
        QUEUE.job("1"),
        JobState.COMPLETED,
        added_at=1_000,
        processed_at=started,
        finished_at=started + took,
        **more,
    )


def test_the_middle_and_the_slow_end_by_nearest_rank() -> None:
    assert durations(run(took) for took in range(1, 101)).ran == DurationPercentiles(50, 95)


def test_one_job_is_its_own_middle_and_end() -> None:
    assert durations([run(7)]).ran == DurationPercentiles(7, 7)


def test_without_finished_jobs_nothing_is_claimed() -> None:
    found = durations([])
    assert (found.jobs, found.ran, found.waited) == (0, None, None)


def test_a_delay_that_was_asked_for_is_not_waiting() -> None:
    assert durations([run(5, waited=20, delay=60_000)]).waited == DurationPercentiles(20, 20)


@pytest.mark.parametrize("again", [{"attempts": 2}, {"starts": 2}, {"stalls": 1}])
def test_a_job_started_again_says_nothing_of_its_waiting(again: dict[str, int]) -> None:
    found = durations([run(5, **again)])
    assert (found.ran, found.waited) == (DurationPercentiles(5, 5), None)


def test_clocks_that_differ_make_no_negative_times() -> None:
    found = durations([run(-1, waited=-3)])
    assert (found.ran, found.waited) == (None, None)
