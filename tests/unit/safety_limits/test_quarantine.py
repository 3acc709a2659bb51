"""When a job counts as quarantined, and that it stays it."""

from __future__ import annotations

import pytest

from recovery.domain.safety_limits.quarantine import orphaned_count
from recovery.domain.stuck.context import QUARANTINE_WINDOW
from recovery.domain.time_units import DAY, HOUR

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        ((), 0),
        ((HOUR,), 1),
        ((HOUR, 2 * HOUR), 2),
        ((HOUR, 4 * DAY), 1),
        ((4 * DAY, 5 * DAY), 0),
        ((HOUR, 2 * HOUR, 3 * HOUR), 3),
        ((HOUR, 2 * HOUR, 4 * DAY), 2),
        ((0, QUARANTINE_WINDOW), 2),
        ((0, QUARANTINE_WINDOW + 1), 1),
    ],
)
def test_what_lies_within_three_days_counts(ago: tuple[int, ...], expected: int) -> None:
    assert orphaned_count([NOW - one for one in ago], NOW) == expected


@pytest.mark.parametrize("later", [0, 3 * DAY, 80 * DAY])
def test_a_quarantined_job_stays_quarantine_however_long_it_waits(later: int) -> None:
    assert orphaned_count([NOW - one * HOUR for one in (1, 30, 60)], NOW + later) == 3


def test_three_times_in_three_weeks_are_no_quarantine() -> None:
    assert orphaned_count([NOW - one * DAY for one in (1, 8, 15)], NOW) == 1


def test_what_comes_later_counts_in_any_order() -> None:
    assert orphaned_count([NOW - HOUR, NOW - 60 * DAY, NOW - 2 * HOUR, NOW - 60 * DAY - HOUR], NOW) == 2
