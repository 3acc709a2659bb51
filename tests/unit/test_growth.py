"""How many rows of a job table ended in a minute, told by nothing but their numbers."""

from __future__ import annotations

import pytest

from recovery.domain.counts import Counts, DeploymentSample, Flavour, Library, QueueSample, Snapshot
from recovery.domain.refs import QueueRef
from recovery.domain.series import MINUTE, Tally
from recovery.scanners.snapshot.growth import Growth

REF = QueueRef("app", "jobs")
TABLE = Flavour(Library.TABLE)


def taken(
    minute: int, completed: int | None, failed: int | None, *, error: str = "", flavour: Flavour = TABLE
) -> Snapshot:
    at = (minute + 1) * MINUTE + 1_000
    sample = QueueSample(REF, flavour, Counts(completed=completed, failed=failed), error=error)
    return Snapshot(1, at, (DeploymentSample("app", "sqlite://", at),), (sample,))


def test_the_first_minute_tells_nothing_and_the_next_ones_their_difference() -> None:
    growth = Growth()
    assert growth.since(taken(1, 10, 2), 1) == {}
    assert growth.since(taken(2, 14, 2), 2) == {REF: Tally(4, 0, None)}
    assert growth.since(taken(3, 14, 5), 3) == {REF: Tally(0, 3, None)}


def test_rows_that_went_away_leave_it_unknown() -> None:
    growth = Growth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(taken(2, 3, 2), 2) == {REF: Tally(None, 0, None)}
    assert growth.since(taken(3, 5, 2), 3) == {REF: Tally(2, 0, None)}


def test_the_same_minute_asked_twice_is_one_minute() -> None:
    growth = Growth()
    growth.since(taken(1, 10, 2), 1)
    growth.since(taken(1, 11, 2), 1)
    assert growth.since(taken(2, 14, 2), 2) == {REF: Tally(4, 0, None)}


@pytest.mark.parametrize(
    "between", [taken(2, 14, 2, error="away"), taken(2, None, None), taken(2, 14, 2, flavour=Flavour(Library.BULLMQ))]
)
def test_over_a_gap_nothing_is_told(between: Snapshot) -> None:
    growth = Growth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(between, 2) in ({}, {REF: Tally(None, None, None)})
    found = growth.since(taken(3, 20, 2), 3)
    assert found in ({}, {REF: Tally(None, None, None)})


def test_a_minute_that_nobody_recorded_is_a_gap() -> None:
    growth = Growth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(taken(3, 20, 2), 3) == {}


def test_a_snapshot_of_before_the_minute_closed_counts_for_nothing() -> None:
    growth = Growth()
    growth.since(taken(1, 10, 2), 1)
    assert growth.since(taken(1, 14, 2), 2) == {}
