from __future__ import annotations

from typing import Any

import pytest

from dashboard.base import job_rows
from dashboard.base.redaction import MASKED, PayloadPart, PayloadRedactor
from dashboard.queues.overview.presenters import cells
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.queues.types import QueueSample
from recovery.reads.queues.overview import OverviewQuery, view
from tests.support.stuck.samples import NOW, abandoned, queue, snapshot

MAIL = QueueRef("main", "bull:mail")


def row(**facts: Any) -> JobRow:
    return JobRow(MAIL.job("1"), JobState.ACTIVE, **facts)


def shown(sample: QueueSample) -> dict[str, Any]:
    (only,) = view(snapshot(sample), OverviewQuery()).rows
    return cells(only, NOW, with_deployment=False)


def test_an_unreadable_queue_shows_no_number_at_all() -> None:
    found = shown(QueueSample(MAIL, error="WRONGTYPE"))
    numbers = [found[name] for name in ("waiting", "active", "delayed", "failed", "oldest", "workers", "stalled_check")]
    assert numbers == ["unknown"] * 7
    assert found["unread"] == "WRONGTYPE"
    assert found["bar"] == ()


def test_an_empty_queue_shows_zeros_and_is_calm() -> None:
    found = shown(queue())
    assert (found["waiting"], found["oldest"], found["tone"]) == ("0", "–", "")


def test_a_queue_that_nobody_watches_says_nobody() -> None:
    found = shown(abandoned())
    assert (found["workers"], found["stalled_check"], found["tone"]) == ("none", "not running", "stuck")


def test_a_pause_of_the_watchdog_is_no_alarm_while_workers_live() -> None:
    assert shown(queue(stalled_check_ttl=None))["stalled_check"] == "not recently"


@pytest.mark.parametrize(
    ("facts", "longest", "state", "words", "percent"),
    [
        ({"lock": JobLock("t", 12_000)}, 29_970, "held", "12 s of ≥ 30 s", 40),
        ({"lock": JobLock("t", 7_500)}, 9_990, "held", "7 s of ≥ 10 s", 75),
        ({"lock": JobLock("t", 59_400)}, 30_000, "held", "59 s of ≥ 59 s", 100),
        ({"lock": JobLock("t", 7_500)}, 0, "held", "7 s left", None),
        ({"lock": None}, 30_000, "none", "none", 0),
        ({"lock": JobLock("t", None)}, 30_000, "endless", "never ends", 100),
        ({"lock_known": False}, 30_000, "unknown", "unknown", 0),
    ],
)
def test_a_lock_is_drawn_against_the_longest_seen_and_against_nothing_else(
    facts: dict[str, Any], longest: int, state: str, words: str, percent: int | None
) -> None:
    assert job_rows.lock_bar(row(**facts), longest) == job_rows.LockBar(state, words, percent)


def test_a_row_shows_the_shape_of_its_result_and_no_secret_of_its_error() -> None:
    leaky = row(reason="401, Authorization: Bearer abcdef123", result='{"to":"ada"}', progress="40")
    (found,) = job_rows.cells([leaky], NOW, MASKED)
    assert "abcdef123" not in found["reason"]
    assert (found["result"], found["progress"]) == ('{"to":"<text of 3 characters>"}', "40")
    (whole,) = job_rows.cells([leaky], NOW, PayloadRedactor(frozenset({PayloadPart.RESULT, PayloadPart.ERROR})))
    assert (whole["result"], whole["reason"]) == ('{"to":"ada"}', "401, Authorization: Bearer abcdef123")
    assert whole["progress"] == "40"


@pytest.mark.parametrize("progress", ["0", "7", "99.5", "33.333333333333336", "100", "100.0"])
def test_a_progress_that_is_a_percentage_is_shown(progress: str) -> None:
    (found,) = job_rows.cells([row(progress=progress, result=progress)], NOW, MASKED)
    assert (found["progress"], found["result"]) == (progress[:6], "<number>")
    assert MASKED.field(row().ref.queue, "progress", progress) == progress[:6]


@pytest.mark.parametrize("progress", ["101", "100.5", "4711", "-1", "1e2", "100.01", "000", "7.", "\u0661", "7\n"])
def test_any_other_number_under_progress_is_none_that_is_shown(progress: str) -> None:
    (found,) = job_rows.cells([row(progress=progress)], NOW, MASKED)
    assert progress.strip() not in found["progress"]
