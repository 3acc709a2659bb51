"""The time of a process, and what is planned by it, when the clocks around it jump by an hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dashboard.live.cached_state import CachedState
from recovery import shared_clock
from recovery.domain.queues.types import Snapshot
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners import scheduler_status
from recovery.reads.scanners.queries import is_late
from recovery.scheduler import plan_runner
from recovery.scheduler.plan import PlanEntry
from recovery.shared_clock import SLEW, SharedClock

HOUR = 3_600_000  # ms
START = 1_800_000_000_000


class Machine:
    """Its wall clock may be set; its steady one is not."""

    def __init__(self) -> None:
        self.wall = START / 1000
        self.up = 5_000.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def keeper(machine: Machine) -> SharedClock:
    return SharedClock(lambda: machine.wall, lambda: machine.up)


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_jump_of_the_wall_clock_is_not_seen(keeper: SharedClock, machine: Machine, jump: float) -> None:
    machine.wall += jump
    machine.passes(10)
    assert keeper.now() == START + 10_000


def test_the_first_time_that_is_heard_is_taken_whatever_the_wall_clock_said(keeper: SharedClock) -> None:
    keeper.follow(START - HOUR)
    assert keeper.now() == START - HOUR


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_jump_of_the_shared_clock_is_followed_slowly(keeper: SharedClock, machine: Machine, jump: int) -> None:
    keeper.follow(START)
    for _ in range(12):
        machine.passes(5)
        keeper.follow(keeper.now() + jump)
    assert abs(keeper.now() - START) == pytest.approx(60_000 * (1 + (SLEW if jump > 0 else -SLEW)))


def test_an_answer_that_took_its_time_is_no_other_clock(keeper: SharedClock, machine: Machine) -> None:
    keeper.follow(START)
    machine.passes(5)
    keeper.follow(START + 4_700)
    assert keeper.now() == START + 5_000


def test_what_the_leader_is_ahead_of_the_store_counts_for_all() -> None:
    assert scheduler_status.time_of((START // 1000, 250_000), None) == START + 250
    assert scheduler_status.time_of((START // 1000, 0), scheduler_status.offset(-HOUR)) == START - HOUR
    for planted in (b"tomorrow", b"-3600000", scheduler_status.offset(-HOUR)[:-1]):
        assert scheduler_status.time_of((START // 1000, 0), planted) == START


NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("entry", "in_seconds", "is_put_off"),
    [
        (PlanEntry("collect", 2.0, lambda _now: None), 2.0, False),
        (PlanEntry("collect", 2.0, lambda _now: None), 3600.0, True),
        (PlanEntry("collect", 2.0, lambda _now: None), -3600.0, False),  # overdue: APScheduler runs it at once
        (PlanEntry("tallies", 5.0, lambda _now: None, first=30.0), 30.0, False),
        (PlanEntry("record", 60.0, lambda _now: None, second=4), 59.9, False),
        (PlanEntry("record", 60.0, lambda _now: None, second=4), 61.0, True),
        (PlanEntry("record at start", 0, lambda _now: None, first=6.0), 3606.0, True),
    ],
)
def test_nothing_is_planned_further_ahead_than_its_interval(
    entry: PlanEntry, in_seconds: float, *, is_put_off: bool
) -> None:
    planned = NOW + timedelta(seconds=in_seconds)
    assert plan_runner.is_put_off(planned, NOW, plan_runner.longest_delay(entry)) is is_put_off


def test_a_snapshot_from_the_future_grows_old_all_the_same(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr(shared_clock, "steady", lambda: machine.up)
    image = CachedState(2.0)
    taken = Snapshot(number=1, taken_at=START + HOUR, deployments=(), queues=())
    image.take(snapshot_store.encode(taken), b"{}")
    assert not image.health(START).stale
    machine.passes(7)
    image.take(snapshot_store.encode(taken), b"{}")  # the same one
    assert image.health(START).stale
    assert image.health(START).snapshot_age_ms == 7_000


def test_a_success_that_is_still_to_come_is_none() -> None:
    assert is_late(2.0, START + HOUR, START)
    assert not is_late(2.0, START + 1_000, START)
