from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import BoundedText, Job, JobLock, JobRow, JobState
from recovery.domain.queues.job_timeline import build_timeline, lock_words
from tests.support.stuck.samples import NOW

NOTHING = BoundedText("", 0)


def row(state: JobState, **facts: Any) -> JobRow:
    given: dict[str, Any] = {"added_at": NOW - 60_000} | facts
    return JobRow(QueueRef("main", "bull:mail").job("1"), state, **given)


def told(row: JobRow, *, stack: tuple[str, ...] = (), reason: str = "") -> list[tuple[str, str]]:
    job = Job(row, NOTHING, NOTHING, NOTHING, "", stack, (), 0)
    return [(event.what, event.detail) for event in build_timeline(job, NOW, reason=reason)]


def test_a_waiting_job_was_only_added() -> None:
    assert told(row(JobState.WAITING, priority=5)) == [("Added", "priority 5")]


def test_a_job_that_failed_tells_all_it_went_through() -> None:
    failed = row(
        JobState.FAILED,
        processed_at=NOW - 9000,
        finished_at=NOW - 7200,
        attempts=3,
        attempts_limit=3,
        worker="mail-2",
        stalls=1,
    )
    assert told(failed, stack=("a", "b", "c"), reason="Error: no") == [
        ("Added", ""),
        ("Started, attempt 3", "by mail-2"),
        ("Failed twice, and was retried", ""),
        ("Stalled once", "its lock expired while it was active"),
        ("Failed", "after 1.8 s: Error: no"),
    ]


def test_a_job_that_the_stalled_check_has_failed_has_no_stack_and_failed_once() -> None:
    failed = row(JobState.FAILED, processed_at=NOW - 9000, finished_at=NOW - 7200, attempts_limit=1)
    assert told(failed, reason="job stalled more than allowable limit") == [
        ("Added", ""),
        ("Started", "after 51 s in the queue"),
        ("Failed", "after 1.8 s: job stalled more than allowable limit"),
    ]


def test_a_completed_job_tells_how_long_it_waited_and_ran() -> None:
    done = row(JobState.COMPLETED, processed_at=NOW - 50_000, finished_at=NOW - 49_600, attempts=1)
    assert told(done) == [("Added", ""), ("Started", "after 10 s in the queue"), ("Completed", "after 400 ms")]


def test_an_active_job_tells_of_its_lock() -> None:
    active = row(JobState.ACTIVE, processed_at=NOW - 4000, lock=JobLock("w:1", 26_000))
    assert told(active)[-1] == ("Running for 4 s", "lock expires in 26 s unless it is renewed")


def test_a_job_taken_and_not_started_says_so() -> None:
    assert told(row(JobState.ACTIVE))[-1] == ("Taken from the queue, not started yet", "no lock")


def test_a_delayed_job_says_when_it_is_due() -> None:
    assert told(row(JobState.DELAYED, due_at=NOW + 120_000, delay=180_000))[-1] == ("Due", "in 2 min")
    assert told(row(JobState.DELAYED, due_at=NOW + 5000, attempts=1))[-1] == ("Runs again", "in 5 s")
    assert told(row(JobState.DELAYED, due_at=NOW - 1))[-1] == ("Due", "due, not yet moved to wait")


def test_a_job_back_in_line_says_what_is_left() -> None:
    back = row(JobState.WAITING, processed_at=NOW - 9000, attempts=1, attempts_limit=3)
    assert told(back)[-1] == ("Requeued", "to waiting; 2 of 3 attempts left")


def test_clocks_that_disagree_tell_no_negative_times() -> None:
    odd = row(JobState.COMPLETED, added_at=NOW, processed_at=NOW - 5000, finished_at=NOW - 9000, attempts=1)
    assert [detail for _, detail in told(odd)] == ["", "", ""]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lock_known": False}, "lock unknown: no permission to read it"),
        ({"lock": None}, "no lock"),
        ({"lock": JobLock("t", None)}, "lock that never expires"),
    ],
)
def test_a_lock_that_is_unknown_is_not_none(changes: dict[str, Any], words: str) -> None:
    assert lock_words(replace(row(JobState.ACTIVE), **changes)) == words
