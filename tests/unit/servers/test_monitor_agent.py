"""When the monitor looks, and when it starts anew: time is an argument, the counters are those of this machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.servers.metric_history import FINE
from recovery.monitor.agent import FIRST_LOOK, POLL, RESET_AFTER, Agent, make_publisher
from recovery.monitor.cpu_counters import CpuCounters
from recovery.monitor.process_table import ProcessTable
from recovery.monitor.settings import MonitorSettings
from recovery.monitor.store_clock import StoreClock
from tests.support.processes.processes import free_port

WALL = 1_700_000_000_000
pytestmark = pytest.mark.usefixtures("processes")  # nobody is at its store


@pytest.fixture
def carried() -> Agent:
    return make("eu-1")


def make(server: str) -> Agent:
    """Of a machine whose two cores are busy for 60 %; nobody is at its store."""
    times = StoreClock(WALL, 0.0)
    brings = make_publisher({"UNSTALL_STATE_URL": f"redis://127.0.0.1:{free_port()}/0"}, times, lambda _: None)
    return Agent(MonitorSettings(server, "/", ()), brings, times, busy, ProcessTable((), times), busy(0.0))


def busy(at: float) -> CpuCounters:
    core = {"user": 0.6 * at, "idle": 0.4 * at}
    return CpuCounters(at, {"cpu0": core, "cpu1": core})


def test_every_look_but_the_first_after_a_long_sleep_gives_a_sample(carried: Agent) -> None:
    assert carried.look(FIRST_LOOK) > POLL / 2
    assert carried.average is not None
    assert round(carried.average.value) == 60
    assert carried.look(FIRST_LOOK + POLL + RESET_AFTER) == FIRST_LOOK  # what was, was long ago
    assert carried.average is None
    assert carried.look(2 * FIRST_LOOK + POLL + RESET_AFTER) > POLL / 2
    pieces = [piece for ring, _, piece in carried.courier.backlog.pieces() if ring is FINE]
    assert [len(piece) for piece in pieces] == [FINE.circle.layout.size] * 2  # two samples, and a hole between them


def test_looks_at_once_after_each_other_wait_for_counters_that_say_something(carried: Agent) -> None:
    assert carried.look(0.1) == FIRST_LOOK


@given(st.text(max_size=20), st.integers(0, 10**7), st.integers(0, 900))
def test_each_period_of_five_seconds_has_one_look_although_looks_are_late(server: str, now: int, late: int) -> None:
    one = make(server)
    pause: Callable[[int], float] = one.pause
    looked = WALL + now + round(pause(WALL + now) * 1000)
    for _ in range(5):
        following = looked + late + round(pause(looked + late) * 1000)
        assert following // 5000 == looked // 5000 + 1
        assert (following + late) // 5000 == following // 5000
        looked = following
