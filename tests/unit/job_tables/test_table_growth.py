"""How many rows of a job table ended in a minute, told by nothing but their numbers."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import MINUTE, FinishedTally
from recovery.domain.queues.types import (
    DeploymentSample,
    JobCounts,
    LibraryVersion,
    QueueLibrary,
    QueueSample,
    Snapshot,
)
from recovery.scanners.collect.recorder import TableGrowth

REF = QueueRef("app", "jobs")
TABLE = LibraryVersion(QueueLibrary.TABLE)


def taken(
    minute: int, completed: int | None, failed: int | None, *, error: str = "", flavour: LibraryVersion = TABLE
) -> Snapshot:
    at = (minute + 1) * MINUTE + 1_000
    sample = QueueSample(REF, flavour, JobCounts(completed=completed, failed=failed), error=error)
    return Snapshot(1, at, (DeploymentSample("app", "sqlite://", at),), (sample,))


def test_the_first_minute_tells_nothing_and_the_next_ones_their_difference() -> None:
    growth = TableGrowth()
    assert growth.since(taken(1, 10, 2), 1) == {}
    assert growth.since(taken(2, 14, 2), 2) == {REF: FinishedTally(4, 0, None)}
    assert growth.since(taken(3, 14, 5), 3) == {REF: FinishedTally(0, 3, None)}


def test_rows_that_went_away_leave_it_unknown() -> None:
    growth = TableGrowth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(taken(2, 3, 2), 2) == {REF: FinishedTally(None, 0, None)}
    assert growth.since(taken(3, 5, 2), 3) == {REF: FinishedTally(2, 0, None)}


def test_the_same_minute_asked_twice_is_one_minute() -> None:
    growth = TableGrowth()
    growth.since(taken(1, 10, 2), 1)
    growth.since(taken(1, 11, 2), 1)
    assert growth.since(taken(2, 14, 2), 2) == {REF: FinishedTally(4, 0, None)}


@pytest.mark.parametrize(
    "between",
    [taken(2, 14, 2, error="away"), taken(2, None, None), taken(2, 14, 2, flavour=LibraryVersion(QueueLibrary.BULLMQ))],
)
def test_over_a_gap_nothing_is_told(between: Snapshot) -> None:
    growth = TableGrowth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(between, 2) in ({}, {REF: FinishedTally(None, None, None)})
    found = growth.since(taken(3, 20, 2), 3)
    assert found in ({}, {REF: FinishedTally(None, None, None)})


def test_a_minute_that_nobody_recorded_is_a_gap() -> None:
    growth = TableGrowth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(taken(3, 20, 2), 3) == {}


def test_a_snapshot_of_before_the_minute_closed_counts_for_nothing() -> None:
    growth = TableGrowth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(taken(1, 14, 2), 2) == {}
