"""The wall clock of a scheduler's host jumps while it leads: snapshots go on, and the lease stays where it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from recovery.domain.scanners.types import ScannerKind
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners import last_runs, scheduler_status
from tests.support.processes import schedulers
from tests.support.processes.schedulers import Process, WallClock
from tests.support.stores.stores import Store
from tests.support.waiting import until

PAUSE = 5.0  # seconds that a jump may stop anything for
pytestmark = [pytest.mark.timeout(120)]


@pytest.fixture
def leader(tmp_path: Path, valkey: Store, state_store: Store) -> Iterator[tuple[Process, Callable[[int], None]]]:
    """It leads, with a clock that may be set: in seconds from the right time."""
    schedulers.furnish(tmp_path)
    clock = WallClock(tmp_path)
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url, **clock.environ}
    with ExitStack() as stack:
        process = Process(tmp_path, "scheduler", clock.script(), environ)
        stack.callback(process.end)
        process.says("It is the leader")
        yield process, clock.jump


def test_a_wall_clock_that_jumps_by_an_hour_stops_nothing(
    leader: tuple[Process, Callable[[int], None]], state_store: Store
) -> None:
    process, jump = leader
    until(lambda: snapshot_store.fetch(state_store.client), 20, "the first snapshot")
    until(lambda: ScannerKind.ORPHAN_WATCH in last_runs.read(state_store.client), 20, "the first look")
    epoch = _sign(state_store).epoch
    for seconds in (-3600, 3600, 0):
        jump(seconds)
        before, watched = _number(state_store), _watched(state_store)
        until(lambda before=before: _number(state_store) > before, PAUSE, f"a snapshot at {seconds:+} s")  # type: ignore[misc]
        until(lambda watched=watched: _watched(state_store) > watched, 3 * PAUSE, "a look")  # type: ignore[misc]
        taken = snapshot_store.fetch(state_store.client)
        assert taken is not None
        assert abs(taken.taken_at - time.time() * 1000) < 20_000
    assert _sign(state_store).epoch == epoch
    assert "is lost" not in process.log
    assert process.log.count("It is the leader") == 1


def _number(store: Store) -> int:
    found = snapshot_store.fetch(store.client)
    return found.number if found else 0


def _watched(store: Store) -> int:
    return last_runs.read(store.client)[ScannerKind.ORPHAN_WATCH].ended_at


def _sign(store: Store) -> scheduler_status.SchedulerStatus:
    return until(lambda: scheduler_status.fetch(store.client), 10, "its sign of life")
