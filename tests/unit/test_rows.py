from __future__ import annotations

from typing import Any

import pytest

from dashboard import rows
from dashboard.cells import cells
from dashboard.discretion import Discretion
from recovery.domain.counts import QueueSample
from recovery.domain.jobs import JobRow, Lock, State
from recovery.domain.refs import QueueRef
from recovery.reads.overview import Query, view
from tests.samples import NOW, abandoned, queue, snapshot

MAIL = QueueRef("main", "bull:mail")


def row(**facts: Any) -> JobRow:
    return JobRow(MAIL.job("1"), State.ACTIVE, **facts)


def shown(sample: QueueSample) -> dict[str, Any]:
    (only,) = view(snapshot(sample), Query()).rows
    return cells(only, NOW, with_deployment=False)


def test_an_unreadable_queue_shows_no_number_at_all() -> None:
    found = shown(QueueSample(MAIL, error="WRONGTYPE"))
    numbers = [found[name] for name in ("waiting", "active", "delayed", "failed", "oldest", "workers", "watchdog")]
    assert numbers == ["unknown"] * 7
    assert found["unread"] == "WRONGTYPE"
    assert found["bar"] == ()


def test_an_empty_queue_shows_zeros_and_is_calm() -> None:
    found = shown(queue())
    assert (found["waiting"], found["oldest"], found["tone"]) == ("0", "–", "")


def test_a_queue_that_nobody_watches_says_nobody() -> None:
    found = shown(abandoned())
    assert (found["workers"], found["watchdog"], found["tone"]) == ("none", "nobody", "stuck")


def test_a_pause_of_the_watchdog_is_no_alarm_while_workers_live() -> None:
    assert shown(queue(watchdog_ttl=None))["watchdog"] == "not lately"


@pytest.mark.parametrize(
    ("facts", "longest", "state", "words", "percent"),
    [
        ({"lock": Lock("t", 12_000)}, 29_970, "held", "12 s of ≥ 30 s", 40),
        ({"lock": Lock("t", 7_500)}, 9_990, "held", "7 s of ≥ 10 s", 75),
        ({"lock": Lock("t", 59_400)}, 30_000, "held", "59 s of ≥ 59 s", 100),
        ({"lock": Lock("t", 7_500)}, 0, "held", "7 s left", None),
        ({"lock": None}, 30_000, "none", "none", 0),
        ({"lock": Lock("t", None)}, 30_000, "endless", "never ends", 100),
        ({"lock_known": False}, 30_000, "unknown", "unknown", 0),
    ],
)
def test_a_lock_is_drawn_against_the_longest_seen_and_against_nothing_else(
    facts: dict[str, Any], longest: int, state: str, words: str, percent: int | None
) -> None:
    assert rows.lock_bar(row(**facts), longest) == rows.LockBar(state, words, percent)


def test_a_viewer_reads_no_secret_in_a_row() -> None:
    leaky = row(reason="401, Authorization: Bearer abcdef123", result='{"token":"hunter2"}')
    (found,) = rows.cells([leaky], NOW, Discretion(sees_all=False))
    assert "abcdef123" not in found["reason"]
    assert "hunter2" not in found["result"]
    (whole,) = rows.cells([leaky], NOW, Discretion(sees_all=True))
    assert "hunter2" in whole["result"]
