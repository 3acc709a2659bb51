"""How long a bulk run rests: distance is not slowness, a rising latency is."""

from __future__ import annotations

import pytest

from recovery.actions.bulk.bulk_runs import BASELINE, LONGEST, REST, ChunkDelay


def rests(*latencies: float) -> list[float]:
    known = ChunkDelay()
    return [known.after(latency) for latency in latencies]


@pytest.mark.parametrize("distance", [0.1, 6.0, 20.0, 80.0, 200.0])
def test_a_store_far_away_is_not_a_slow_one(distance: float) -> None:
    assert set(rests(*(distance * factor for factor in (1.0, 1.1, 1.02, 1.2) * 20))) == {REST}


def test_a_rising_latency_is_given_longer_and_longer_rests() -> None:
    told = rests(20.0, *[60.0] * 12)
    assert told[1] == 2 * REST
    assert told == sorted(told)
    assert told[-1] == LONGEST


def test_a_local_store_that_others_wait_for_is_slow() -> None:
    assert rests(0.2, 6.0)[-1] == 2 * REST


def test_the_rests_end_with_the_slowness() -> None:
    assert rests(*[1.0] * 3, *[50.0] * 20, *[1.0] * 20)[-1] == REST


def test_what_stays_slow_through_long_rests_is_the_distance() -> None:
    """After a fail-over to another city nothing is as near as it was."""
    assert rests(1.0, *[40.0] * (BASELINE + 10))[-1] == REST
