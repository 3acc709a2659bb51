"""What the real monitor costs its server: CPU and memory over minutes, beside workers with connections and others."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from bench.measure import Result
from recovery.servers import queries as servers_queries
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT
from tests.support.processes.workers import working
from tests.support.stores.stores import Store
from tests.support.waiting import until

WORKERS = 16  # processes, each with CONNECTIONS to a store and a child that has a child
CONNECTIONS = 20
OTHERS = 200  # processes that are nobody's concern
SECONDS = 240
QUICK_SECONDS = 20
WARM_SECONDS = 20  # until it has met all of them
CPU_GOAL = 0.5  # percent of a core
MEMORY_GOAL = 40  # MiB
MIB = 1 << 20


def run(*, quick: bool) -> Result:
    result = Result("monitor", f"The monitor of a server with {WORKERS} workers among {OTHERS} other processes")
    result.setting = {"workers": WORKERS, "connections": CONNECTIONS, "others": OTHERS}
    with Store("valkey") as state, _crowd(state) as pattern, _monitor(state, pattern) as process:
        until(lambda: _listed(state) == WORKERS, 60, "all workers are listed")
        _watch(process, WARM_SECONDS)
        seconds = QUICK_SECONDS if quick else SECONDS
        (cpu, memory), commands = _watch(process, seconds), _commands(state)
        result.row("CPU", cpu, "% of a core", f"over {seconds} s")
        result.row("memory, the most", memory / MIB, "MiB", "resident")
        result.row("threads", process.num_threads(), "")
        result.row("commands to the state store", commands, "a sample", "in one round trip")
        result.row("kept in the state store", _kept(state) / 1024, "KiB", "sample and history so far")
        result.goal(f"CPU ≤ {CPU_GOAL} % of a core", cpu, most=CPU_GOAL)
        result.goal(f"memory ≤ {MEMORY_GOAL} MiB", memory / MIB, most=MEMORY_GOAL)
    return result


@contextmanager
def _crowd(state: Store) -> Iterator[str]:
    """Processes of all kinds; what is common to the workers' commands."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="unstall-jobs-"))
        for _ in range(OTHERS):
            stack.callback(end, spawn(["sleep", "3600"]))
        for _ in range(WORKERS):
            worker = stack.enter_context(working(Path(folder)))
            worker.bear()
            for _ in range(CONNECTIONS):
                worker.call(state.port)
        yield f"{folder}/jobs-"


@contextmanager
def _monitor(state: Store, pattern: str) -> Iterator[psutil.Process]:
    environ = {
        "PATH": os.environ["PATH"],
        "UNSTALL_STATE_URL": state.url,
        "UNSTALL_SERVER_ID": "bench",
        "UNSTALL_WORKER_PATTERNS": pattern,
    }
    process = spawn([sys.executable, "-m", "recovery.monitor"], directory=ROOT, environ=environ)
    try:
        yield psutil.Process(process.pid)
    finally:
        end(process)


def _watch(process: psutil.Process, seconds: float) -> tuple[float, int]:
    """Percent of a core and the most bytes, over so long."""
    started, before, most = time.monotonic(), _used(process), 0
    while (elapsed := time.monotonic() - started) < seconds:
        most = max(most, process.memory_info().rss)
        time.sleep(1)
    return 100 * (_used(process) - before) / elapsed, most


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _listed(state: Store) -> int:
    found = servers_queries.fetch(state.client)
    return len(found[0].processes) if found else 0


def _commands(state: Store) -> float:
    """Of one sample, as the store itself counts them."""
    calls = state.client.info("commandstats")
    ours = ("time", "hmget", "del", "hset", "pexpire", "zadd", "setrange", "expire", "multi", "exec")
    samples = calls["cmdstat_zadd"]["calls"]
    return sum(calls[f"cmdstat_{name}"]["calls"] for name in ours if f"cmdstat_{name}" in calls) / samples


def _kept(state: Store) -> int:
    return sum(state.client.memory_usage(key) for key in state.client.keys("*"))
