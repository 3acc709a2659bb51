"""The monitor: one small hash a server, true numbers, no noise, and it survives a store that goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise

import psutil
import pytest

from recovery.connections import state
from recovery.monitor import agent
from recovery.monitor.agent import POLL, POLLS_KEPT, Agent
from recovery.monitor.publish import publisher
from recovery.monitor.sample import Clock, Sample
from tests.integration.running import ROOT
from tests.processes import end, free_port, spawn
from tests.stores import Store
from tests.waiting import until

SERVER = "worker-1"
SEEN_WITHIN = 15.0  # one on a machine that does nothing else
KEY = state.server_metrics(SERVER)
BLOCKER = """
import sys
class Closed:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('django', 'psycopg', 'sqlite3'):
            raise ImportError(f'{name} is not for the monitor')
sys.meta_path.insert(0, Closed())
import recovery.monitor.agent
print(sorted(name for name in sys.modules if name.startswith('recovery.')))
"""


def _environ(url: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "UNSTALL_STATE_URL": url, "UNSTALL_SERVER_ID": SERVER}


@pytest.fixture
def monitor(state_store: Store) -> Iterator[subprocess.Popen[bytes]]:
    process = spawn(
        [sys.executable, "-m", "recovery.monitor"],
        directory=ROOT,
        environ=_environ(state_store.url),
        stderr=subprocess.PIPE,
    )
    yield process
    end(process)


@pytest.fixture
def carried(state_store: Store) -> Iterator[Agent]:
    """An agent without its loop: the test says when it looks."""
    made = Agent(SERVER, publisher(_environ(state_store.url)), Clock(0.0, 0.0))
    yield made
    made.publisher.close()


def test_a_server_is_seen_at_once(monitor: subprocess.Popen[bytes], state_store: Store) -> None:
    until(lambda: state_store.client.exists(KEY), SEEN_WITHIN)
    found = {name.decode(): value.decode() for name, value in state_store.client.hgetall(KEY).items()}
    assert 0 <= float(found["cpu_raw"]) <= 100
    assert 0 <= float(found["cpu_ema"]) <= 100
    assert float(found["load1"]) >= 0
    assert 0 < int(found["mem_used"]) < int(found["mem_total"]) == psutil.virtual_memory().total
    assert int(found["sampled_at"]) > 1_700_000_000_000


def test_a_server_that_is_gone_disappears_by_itself(monitor: subprocess.Popen[bytes], state_store: Store) -> None:
    until(lambda: state_store.client.exists(KEY), SEEN_WITHIN)
    assert POLL < state_store.client.ttl(KEY) <= POLL * POLLS_KEPT


def test_its_own_key_is_all_that_it_writes(monitor: subprocess.Popen[bytes], state_store: Store) -> None:
    until(lambda: state_store.client.exists(KEY), SEEN_WITHIN)
    assert state_store.client.keys("*") == [KEY]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_without_a_word(
    monitor: subprocess.Popen[bytes], state_store: Store, number: signal.Signals
) -> None:
    until(lambda: state_store.client.exists(KEY), SEEN_WITHIN)
    monitor.send_signal(number)
    assert monitor.wait(POLL) == 0  # in the middle of a pause
    assert monitor.stderr is not None
    assert monitor.stderr.read() == b""


def test_it_costs_little(monitor: subprocess.Popen[bytes], state_store: Store) -> None:
    until(lambda: state_store.client.exists(KEY), SEEN_WITHIN)
    seen = psutil.Process(monitor.pid)
    assert seen.memory_info().rss < 40 * 2**20
    assert seen.num_threads() == 1


def test_without_a_state_store_it_says_what_is_missing() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "recovery.monitor"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
        timeout=10,
    )
    assert run.returncode == 2
    assert b"UNSTALL_STATE_URL" in run.stderr


def test_it_needs_neither_django_nor_a_database() -> None:
    run = subprocess.run([sys.executable, "-c", BLOCKER], cwd=ROOT, capture_output=True, check=False, timeout=10)
    assert run.returncode == 0, run.stderr.decode()


def test_a_store_that_is_away_is_named_once_and_tried_again_with_growing_pauses(
    carried: Agent, state_store: Store
) -> None:
    said: list[str] = []
    state_store.stop()
    now, tries = 0.0, []
    for _ in range(60):
        now += POLL
        _tick(carried)
        before = carried.try_at
        carried.look(now, 1, said.append)
        if carried.try_at != before:
            tries.append(now)
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert len(said) == 1
    assert "sampling goes on" in said[0]
    assert max(pauses) <= agent.LONGEST_PAUSE + POLL
    assert min(pauses[3:]) >= agent.LONGEST_PAUSE / 2


def test_the_newest_sample_arrives_when_the_store_is_back(carried: Agent, state_store: Store) -> None:
    said: list[str] = []
    state_store.stop()
    _tick(carried)
    carried.look(0.0, 1, said.append)
    state_store.start()
    _tick(carried)
    carried.look(1_000.0, 2, said.append)
    assert state_store.client.hget(KEY, "sampled_at") == b"2"
    assert said[1:] == ["the store is back"]


def test_a_hung_store_holds_it_for_half_a_second_and_no_longer(carried: Agent, state_store: Store) -> None:
    said: list[str] = []
    state_store.pause()
    timer = threading.Timer(3.0, state_store.resume)
    timer.start()
    _tick(carried)
    carried.look(0.0, 1, said.append)
    timer.cancel()
    assert "no answer" in said[0]


def test_a_busy_core_is_seen() -> None:
    before = Clock.read()
    burner = spawn([sys.executable, "-c", "while True: pass"])
    until(lambda: (Clock.read().percent_since(before) or 0) > 100 / (os.cpu_count() or 1) / 4, 10)
    end(burner)


def test_counters_that_went_back_are_unknown_and_not_zero() -> None:
    assert Clock(5.0, 10.0).percent_since(Clock(6.0, 9.0)) is None
    assert Clock(5.0, 10.0).percent_since(Clock(5.0, 10.0)) is None


def test_memory_and_load_are_those_of_the_machine() -> None:
    sample = Sample.take()
    assert sample.cores == os.cpu_count()
    assert 0 < sample.mem_used < sample.mem_total


def test_an_address_that_nobody_listens_on_is_no_crash() -> None:
    away = Agent(SERVER, publisher(_environ(f"redis://127.0.0.1:{free_port()}/0")), Clock(0.0, 0.0))
    said: list[str] = []
    _tick(away)
    away.look(0.0, 1, said.append)
    assert "connection refused" in said[0]


def _tick(one: Agent) -> None:
    """As if the counters had moved: in a test no time passes between two looks."""
    one.clock = Clock(0.0, 0.0)
