"""The real monitor ships one file that grows at a fixed rate and is rotated: what arrives once, and what that costs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import psutil

from bench.measure import Result, percentile
from recovery.domain.logs import line_batches
from recovery.stores.state import state_keys
from tests.support.logs.shipping import ROOT, SERVER, monitor, offsets
from tests.support.processes.processes import end, spawn
from tests.support.stores.stores import Store
from tests.support.waiting import until

RATE = 20_000  # lines a second
SECONDS = 60
QUICK_SECONDS = 10
ROTATED_EVERY = 5  # seconds
IDLE_SECONDS = 60
QUICK_IDLE_SECONDS = 10
IDLE_FILES = 100
BACKLOG = 500_000  # lines that wait when the monitor starts
MEMORY_GOAL = 64  # MiB, under full load
MIB = 1 << 20

# Lines as a worker writes them, 120 bytes with a time of their own, in steps of 10 ms.
_WRITER = """
import os, sys, time
from datetime import datetime, timezone
path, rate, seconds, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
file, number, rotated = open(path, 'ab', 0), 0, 0
started = time.monotonic()
while number < rate * seconds:
    due = min(rate * seconds, int((time.monotonic() - started) * rate))
    now = datetime.now(timezone.utc).isoformat().replace('+00:00', 'Z')
    if due > number:
        line = now.encode() + b' INFO job %010d of queue mail sent to somebody@example.com after 3 attempts in %d ms\\n'
        file.write(b''.join(line % (n, n % 900) for n in range(number, due)))
        number = due
    if every and (time.monotonic() - started) // every > rotated:
        rotated += 1
        os.rename(path, f'{path}.{rotated}')
        file = open(path, 'ab', 0)
    time.sleep(0.01)
"""


def run(*, quick: bool) -> Result:
    result = Result("shipping", f"The monitor ships a file of {RATE:,} lines a second")
    seconds = QUICK_SECONDS if quick else SECONDS
    result.setting = {"rate": RATE, "seconds": seconds, "rotated_every": ROTATED_EVERY}
    with Store("valkey") as store, tempfile.TemporaryDirectory(prefix="unstall-logs-") as folder:
        _steady(result, store, Path(folder), seconds)
    with Store("valkey") as store, tempfile.TemporaryDirectory(prefix="unstall-logs-") as folder:
        _backlog(result, store, Path(folder))
    with Store("valkey") as store, tempfile.TemporaryDirectory(prefix="unstall-logs-") as folder:
        _idle(result, store, Path(folder), QUICK_IDLE_SECONDS if quick else IDLE_SECONDS)
    return result


def _steady(result: Result, store: Store, folder: Path, seconds: int) -> None:
    log = folder / "worker.log"
    log.touch()
    with monitor(store, folder / "worker.log*", keep_mb="1024") as process:
        until(lambda: offsets(store), 60)
        count, watched = Count(store), psutil.Process(process.pid)
        before, most, started = _used(watched), 0, time.monotonic()
        writer = _writer(log, RATE, seconds, ROTATED_EVERY)
        while writer.poll() is None:
            count()
            most = max(most, watched.memory_info().rss)
            time.sleep(0.2)
        end(writer)
        total = RATE * seconds
        until(lambda: count() >= total, 60, "all lines are there")
        took = time.monotonic() - started
        cpu = 100 * (_used(watched) - before) / took
        numbers, delays = _arrived(store)
    lost, doubled = total - len(set(numbers)), len(numbers) - len(set(numbers))
    result.row("lines", len(numbers), "", f"{seconds} s, rotated every {ROTATED_EVERY} s")
    result.row("sustained", len(numbers) / took, "lines/s")
    result.row("lost", lost, "")
    result.row("doubled", doubled, "")
    result.row("from the file into the store, p50", percentile(delays, 0.5), "ms")
    result.row("from the file into the store, p99", percentile(delays, 0.99), "ms")
    result.row("CPU", cpu, "% of a core", "sampling and shipping")
    result.row("memory, the most", most / MIB, "MiB", "resident")
    result.goal("lost or doubled", lost + doubled, most=0)
    result.goal(f"≥ {RATE * 0.95:,.0f} lines/s", len(numbers) / took, least=RATE * 0.95)
    result.goal("CPU ≤ 100 % of a core", cpu, most=100)
    result.goal(f"memory ≤ {MEMORY_GOAL} MiB", most / MIB, most=MEMORY_GOAL)


def _backlog(result: Result, store: Store, folder: Path) -> None:
    """What waited is read as fast as it goes."""
    log = folder / "worker.log"
    log.touch()
    with monitor(store, folder / "*.log", keep_mb="1024"):
        until(lambda: offsets(store), 60)
    writer = _writer(log, BACKLOG, 1, 0)
    writer.wait()
    end(writer)
    with monitor(store, folder / "*.log", keep_mb="1024") as process:
        count = Count(store)
        first = until(count, 60)
        started, watched = time.monotonic(), psutil.Process(process.pid)
        until(lambda: count() >= BACKLOG, 120)
        took = time.monotonic() - started
        result.row("a backlog", (BACKLOG - first) / took, "lines/s", f"{BACKLOG:,} lines, as fast as it goes")
        result.row("memory meanwhile, the most", watched.memory_info().rss / MIB, "MiB", "resident")


def _idle(result: Result, store: Store, folder: Path, seconds: int) -> None:
    for number in range(IDLE_FILES):
        (folder / f"{number}.log").write_text("old\n")
    with monitor(store, folder / "*.log") as process:
        until(lambda: offsets(store), 60)
        watched = psutil.Process(process.pid)
        time.sleep(12)
        before, started = _used(watched), time.monotonic()
        time.sleep(seconds)
        cpu = 100 * (_used(watched) - before) / (time.monotonic() - started)
        memory = watched.memory_info().rss / MIB
    result.row(f"CPU, {IDLE_FILES} files in which nothing happens", cpu, "% of a core", f"over {seconds} s")
    result.row("memory", memory, "MiB", "resident")
    result.goal("idle: memory ≤ 40 MiB", memory, most=40)


def _writer(log: Path, rate: int, seconds: int, every: int) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", _WRITER, str(log), str(rate), str(seconds), str(every)]
    return spawn(arguments, directory=ROOT)


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class Count:
    """Of lines that arrived; each look reads what came since the one before."""

    def __init__(self, store: Store) -> None:
        self._store, self._last, self._lines = store, b"-", 0

    def __call__(self) -> int:
        for id, fields in cast("Any", self._store.client.xrange(state_keys.logs(SERVER), min=self._last, count=200)):
            self._last, self._lines = b"(" + id, self._lines + int(fields[b"count"])
        return self._lines


def _arrived(store: Store) -> tuple[list[int], list[float]]:
    """The numbers of the lines, and how many ms each entry's newest line was on its way."""
    numbers, delays = [], []
    for id, fields in cast("Any", store.client.xrange(state_keys.logs(SERVER))):
        delays.append(int(id.partition(b"-")[0]) - int(fields[b"last"]) / 1e6)
        numbers += [int(line.split(b" ", 4)[3]) for _, line in line_batches.unpack_lines(fields[b"body"])]
    return numbers, delays
