"""The monitor as a process: seen at once, true, quiet, cheap, and ended at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recovery.domain.servers.metric_history import COARSE, FINE
from recovery.domain.servers.samples import SampleOrigin, Server
from recovery.monitor import agent, cpu_counters
from recovery.monitor.agent import POLL
from recovery.monitor.cgroups import Cgroups
from recovery.monitor.store_clock import StoreClock
from recovery.servers import queries as servers_queries
from recovery.shared_clock import steady
from recovery.stores.state import state_keys
from tests.integration.running import ROOT
from tests.support.processes.processes import end, spawn
from tests.support.processes.workers import Worker, working
from tests.support.stores.stores import Store
from tests.support.waiting import until

SERVER = "worker-1"
PATIENCE = 30.0  # seconds; 15 on a machine that does nothing else
KEY = state_keys.server_metrics(SERVER)
BLOCKER = """
import sys
allowed = {'recovery', 'redis', 'hiredis', 'psutil'}
if sys.version_info < (3, 11, 3):
    allowed.add('async_timeout')  # redis brings it along
class Closed:
    def find_spec(self, name, path=None, target=None):
        root = name.partition('.')[0]
        ours = root in sys.stdlib_module_names | allowed or root[0] == '_'
        if not ours or root == 'sqlite3':
            raise ImportError(f'{name} is not for the monitor')
sys.meta_path.insert(0, Closed())
from recovery.monitor import agent, settings
from recovery.monitor.agent import make_publisher
from recovery.monitor.store_clock import StoreClock
environ = {'UNSTALL_STATE_URL': 'redis://127.0.0.1:1/0', 'UNSTALL_SERVER_ID': 'a'}
times = StoreClock(0, 0.0)
agent.Agent.make(settings.read(environ), make_publisher(environ, times, print), times)
parts = [name for name in sys.modules if name.startswith('recovery.monitor.shipping.')]
assert parts == ['recovery.monitor.shipping.settings'], parts
from recovery.monitor.shipping.shipping_thread import make_shipper
environ |= {'UNSTALL_LOG_FILES': '/none/*.log', 'UNSTALL_LOG_JOURNAL': 'none.service'}
make_shipper(settings.read(environ).shipping, 'a', environ, times, print).turn(0.0)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with working(tmp_path) as made:
        yield made


@pytest.fixture
def monitor(state_store: Store, worker: Worker) -> Iterator[subprocess.Popen[bytes]]:
    environ = {
        "PATH": os.environ["PATH"],
        "UNSTALL_STATE_URL": state_store.url,
        "UNSTALL_SERVER_ID": SERVER,
        "UNSTALL_WORKER_PATTERNS": worker.pattern,
    }
    command = [sys.executable, "-m", "recovery.monitor"]
    process = spawn(command, directory=ROOT, environ=environ, stderr=subprocess.PIPE)
    yield process
    end(process)


def test_it_tells_of_the_server_and_its_workers_and_of_what_a_killed_one_left(
    monitor: subprocess.Popen[bytes], state_store: Store, worker: Worker
) -> None:
    first = _seen(state_store)
    assert (first.origin, first.poll) == (SampleOrigin.MONITOR, POLL * 1000)
    assert abs(first.sampled_at - time.time() * 1000) < PATIENCE * 1000
    assert (first.mem_total, first.cores) == (psutil.virtual_memory().total, os.cpu_count())
    assert 0 <= first.cpu_raw <= 100
    assert 0 <= first.cpu_ema <= 100
    assert [process.pid for process in first.processes] == [worker.pid]
    assert state_store.client.pttl(KEY) <= POLL * 10_000

    rss, threads = psutil.Process(monitor.pid).memory_info().rss, psutil.Process(monitor.pid).num_threads()
    assert (rss < 40 * 2**20, threads) == (True, 1)

    child = worker.bear()  # between two looks, and its worker does not see the next one
    worker.kill()
    found = until(lambda: _seen(state_store).strays, PATIENCE)
    assert child in [stray.pid for stray in found]
    assert not _seen(state_store).processes

    history = servers_queries.history(state_store.client, SERVER, 0.25, _seen(state_store).sampled_at + FINE.unit)
    assert any(point.cpu_raw is not None for point in history.points)
    own = {KEY, state_keys.SERVERS, *(state_keys.server_history(SERVER, ring.name) for ring in (FINE, COARSE))}
    assert set(state_store.client.keys("*")) == own

    monitor.send_signal(signal.SIGTERM)  # in the middle of a pause
    assert monitor.wait(PATIENCE) == 0
    assert monitor.stderr is not None
    assert monitor.stderr.read() == b""


def test_what_it_says_is_one_line_with_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    agent._say("a file is gone\nand forges no line")
    said = capsys.readouterr().err
    assert re.fullmatch(r"\S+Z warn  recovery\.monitor  a file is gone \| and forges no line\n", said)


def test_without_a_state_store_it_says_what_is_missing() -> None:
    run = _run("-m", "recovery.monitor")
    assert run.returncode == 2
    assert b"UNSTALL_STATE_URL" in run.stderr


def test_it_needs_redis_and_psutil_and_nothing_else_and_loads_no_shipping_unasked() -> None:
    run = _run("-c", BLOCKER)
    assert run.returncode == 0, run.stderr.decode()


def test_a_busy_core_is_seen() -> None:
    cgroups = Cgroups(0)  # this test may itself run under a quota
    before = cpu_counters.read(cgroups, steady())
    burner = spawn([sys.executable, "-c", "while True: pass"])

    def load() -> float:
        shares = cpu_counters.read(cgroups, steady()).since(before)
        return shares.raw if shares else 0.0

    until(lambda: load() > 100 / (os.cpu_count() or 1) / 4, PATIENCE)
    end(burner)


def test_the_store_s_clock_is_the_one_that_counts_and_small_delays_are_no_other_clock() -> None:
    times = StoreClock(1_000_000, 50.0)
    assert times.at(51.5) == 1_001_500
    times.heard(1_002_400, 52.0)  # 0.4 s late
    assert times.at(52.0) == 1_002_000
    times.heard(9_000_000, 53.0)
    assert times.at(54.0) == 9_001_000


def _seen(store: Store) -> Server:
    (server,) = until(lambda: servers_queries.fetch(store.client), PATIENCE)
    return server


def _run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    environ = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environ, capture_output=True, check=False, timeout=PATIENCE * 2
    )
