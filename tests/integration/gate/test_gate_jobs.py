"""Two real jobs that each want a server for themselves: they fail together, and with the gate one follows the other.

The monitor is a real one, and so are the jobs' hours of CPU. What is made up is the size of their server: a cgroup with
a small quota, whose account this test keeps by what the kernel says of the jobs. So nothing else that the machine does
at the same time moves the gate.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from recovery.gate import queries as gate_queries
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
SERVER = "worker-1"
SECONDS = 120.0
CORES = 0.02  # of the quota: a job takes some ten times as much, so it is seen to use it up however busy the machine is
TOGETHER = 3  # exit status of a job that met another one
LIMITS = {"dashboard.live.state_cache.POLL_SECONDS": 0.2}

# Asks as docs/gate.md says, then works until it is told that it is enough. It fails when it is not alone.
JOB = """
import sys, threading, urllib.error, urllib.request
from pathlib import Path
place, name, gate = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def seconds_to_wait():
    try:
        with urllib.request.urlopen(f'{gate}&caller={name}', timeout=10):
            return 0
    except urllib.error.HTTPError as error:
        assert error.code == 503, error.code
        return int(error.headers['Retry-After'])
    except OSError:
        return 1

while gate and (wait := seconds_to_wait()):
    threading.Event().wait(wait)
(place / f'{name}.running').touch()
met, pause = False, threading.Event()
while not (place / f'{name}.enough').exists():
    sum(number * number for number in range(10_000))
    pause.wait(0.005)
    if len(list(place.glob('*.running'))) > 1:
        met = True
        (place / f'{name}.met').touch()
(place / f'{name}.running').unlink()
sys.exit(3 if met else 0)
"""
MONITOR = """
import os, sys
from pathlib import Path
from recovery.monitor import cgroups
find = cgroups.Cgroups.find
cgroups.Cgroups.find = lambda: find(Path(sys.argv[1]))
from recovery.monitor.agent import run
sys.exit(run(os.environ))
"""


class Account:
    """A cgroup of version 2 as the kernel shows one, with these processes in it."""

    def __init__(self, place: Path) -> None:
        self.own, self._group = place / "self", place / "cgroup" / "jobs"
        self.own.mkdir(parents=True)
        self._group.mkdir(parents=True)
        (self.own / "mountinfo").write_text(f"30 23 0:26 / {self._group.parent} rw - cgroup2 cgroup2 rw\n")
        (self.own / "cgroup").write_text("0::/jobs\n")
        (self._group / "cpu.max").write_text(f"{int(CORES * 100_000)} 100000\n")
        self._used: dict[int, float] = {}
        self._ended = threading.Event()
        self._pids: list[int] = [1]
        self._write()

    def add(self, pid: int) -> None:
        self._pids.append(pid)

    def keep(self) -> None:
        while not self._ended.wait(0.2):
            for pid in self._pids[1:]:
                with suppress(psutil.Error):
                    self._used[pid] = sum(psutil.Process(pid).cpu_times()[:2])
            self._write()

    def close(self) -> None:
        self._ended.set()

    def _write(self) -> None:
        for name, told in (
            ("cgroup.procs", "".join(f"{pid}\n" for pid in self._pids)),
            ("cpu.stat", f"usage_usec {int(sum(self._used.values()) * 1_000_000)}\n"),
        ):
            fresh = self._group / f".{name}"
            fresh.write_text(told)
            fresh.rename(self._group / name)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    account = Account(tmp_path / "kernel")
    keeper = threading.Thread(target=account.keep, daemon=True)
    keeper.start()
    yield account
    account.close()
    keeper.join()


@pytest.fixture
def gate(state_store: Store, account: Account, tmp_path: Path) -> Iterator[str]:
    """Where jobs ask: a real web process, fed by a real monitor."""
    (tmp_path / "unstall.toml").write_text("[gate]\nclose_at = 99\nopen_at = 89\nopen_on_loopback = true\n")
    url = {"UNSTALL_STATE_URL": state_store.url}
    monitor = spawn(
        [sys.executable, "-c", MONITOR, account.own],
        environ={"PATH": os.environ["PATH"], "UNSTALL_SERVER_ID": SERVER, **url},
        directory=ROOT,
    )
    web = {**url, "UNSTALL_REDIS_URL": state_store.url.replace("/0", "/1")}
    try:
        with WebProcess({**web, "UNSTALL_CONFIG": str(tmp_path / "unstall.toml")}, LIMITS) as process:
            yield f"http://127.0.0.1:{process.port}/cpu-gate?server={SERVER}"
    finally:
        end(monitor)


class Jobs:
    def __init__(self, place: Path, account: Account) -> None:
        self.place = place
        self._account = account
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, gate: str = "") -> None:
        self.running[name] = spawn([sys.executable, "-c", JOB, self.place, name, gate])
        self._account.add(self.running[name].pid)

    def at_work(self) -> list[str]:
        return sorted(path.stem for path in self.place.glob("*.running"))

    def has(self, name: str, mark: str) -> bool:
        return (self.place / f"{name}.{mark}").exists()

    def finish(self, name: str) -> int:
        (self.place / f"{name}.enough").touch()
        return self.running[name].wait(SECONDS)


@contextmanager
def jobs_in(place: Path, account: Account) -> Iterator[Jobs]:
    place.mkdir()
    jobs = Jobs(place, account)
    try:
        yield jobs
    finally:
        for process in jobs.running.values():
            end(process)


def test_without_the_gate_they_fail_together(account: Account, tmp_path: Path) -> None:
    with jobs_in(tmp_path / "jobs", account) as jobs:
        for name in ("a", "b"):
            jobs.start(name)
        until(lambda: jobs.has("a", "met") and jobs.has("b", "met"), SECONDS, "they meet")
        assert [jobs.finish(name) for name in ("a", "b")] == [TOGETHER, TOGETHER]


def test_with_the_gate_the_second_starts_only_after_the_first(
    gate: str, account: Account, state_store: Store, tmp_path: Path
) -> None:
    with jobs_in(tmp_path / "jobs", account) as jobs:
        for name in ("a", "b"):
            jobs.start(name, gate)
        (first,) = until(jobs.at_work, SECONDS, "one is let in")
        (second,) = {"a", "b"} - {first}
        until(lambda: "closed" in _reasons(state_store, second), SECONDS, "the other one is held")
        assert jobs.at_work() == [first]
        assert jobs.finish(first) == 0
        until(lambda: jobs.at_work() == [second], SECONDS, "the other one is let in")
        assert jobs.finish(second) == 0
    until(lambda: _let_in(state_store) == [second, first], SECONDS, "both are noted, the newest first")


def _let_in(store: Store) -> list[str]:
    return [one.caller for one in gate_queries.decisions(store.client, SERVER, 0) if one.ready]


def _reasons(store: Store, caller: str) -> set[str]:
    return {one.reason for one in gate_queries.decisions(store.client, SERVER, 0) if one.caller == caller}
