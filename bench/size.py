"""The scheduler beside very many jobs and very many queues: its memory, its CPU, and what it asks of Redis.

The real process watches queues whose locks a thread renews at half of their length, as workers do. Every queue has one
connected worker. `commandstats` of the queues' store are read before and after, less what the renewing does.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil

from bench.measure import Result, median
from recovery.domain.queues.types import DeploymentSample
from recovery.reads.queues import snapshot_store
from recovery.reads.stuck import inbox_store
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT, WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until

HELD_QUEUES, HELD_EACH = 1_000, 1_000
IDLE_QUEUES = 10_000
LOCK_MS = 30_000  # what both libraries use when nobody says otherwise
SECONDS, QUICK_SECONDS = 45.0, 30.0
SETTLE = 30.0  # seconds before it is measured: the first look asks everything
MB = 1 << 20

# A queue of BullMQ 5 whose workers hold all that is active.
_HOLD = """
redis.call('HSET', KEYS[1] .. ':meta', 'version', 'bullmq:5.61.0', 'opts.maxLenEvents', '10000')
for id = ARGV[1], ARGV[2] do
  local key = KEYS[1] .. ':' .. id
  redis.call('HSET', key, 'name', 'mail', 'data', '{}', 'opts', '{}', 'timestamp', ARGV[3], 'atm', '0',
    'ats', '1', 'priority', '0', 'delay', '0', 'processedOn', ARGV[3], 'pb', 'mailer')
  redis.call('LPUSH', KEYS[1] .. ':active', id)
end
redis.call('SET', KEYS[1] .. ':id', ARGV[2])
"""
_RENEW = """
for id = ARGV[1], ARGV[2] do redis.call('SET', KEYS[1] .. ':' .. id .. ':lock', 'w:1', 'PX', ARGV[3]) end
"""
_PART = 500  # jobs a script
_OURS = frozenset({"cmdstat_set", "cmdstat_evalsha", "cmdstat_eval", "cmdstat_script|load", "cmdstat_info"})


def run(*, quick: bool) -> Result:
    share = 10 if quick else 1
    queues, idle = HELD_QUEUES // share, IDLE_QUEUES
    seconds = QUICK_SECONDS if quick else SECONDS
    result = Result("size", f"The scheduler beside {queues * HELD_EACH:,} held jobs, and beside {idle:,} idle queues")
    result.setting = {"queues": queues, "held": queues * HELD_EACH, "lock_ms": LOCK_MS, "idle_queues": idle}
    with ExitStack() as stack:
        store = stack.enter_context(Store("valkey"))
        bases = [f"bull:held-{number}" for number in range(queues)]
        stack.enter_context(_held(store, bases))
        found = _measure(store, queues, queues * HELD_EACH, seconds)
        _report(result, f"{queues * HELD_EACH:,} held jobs", found)
        result.goal("held jobs: memory ≤ 300 MB", found["rss"], most=300)
        result.goal("held jobs: ≤ 30 % of a core", found["cpu"], most=30)
        result.goal("held jobs: ≤ 30,000 commands/s", found["rate"], most=30_000)
    with Store("valkey") as store:
        pipeline = store.client.pipeline(transaction=False)
        for number in range(idle):
            pipeline.hset(f"bull:idle-{number}:meta", "version", "bullmq:5.61.0")
            pipeline.set(f"bull:idle-{number}:id", 1)
        pipeline.execute()
        found = _measure(store, idle, 0, seconds)
        _report(result, f"{idle:,} idle queues", found)
        result.goal("idle queues: ≤ 20,000 commands/s", found["rate"], most=20_000)
    return result


def _report(result: Result, what: str, found: dict[str, Any]) -> None:
    result.row(f"{what}: scheduler memory, highest", found["rss"], "MB")
    result.row(f"{what}: scheduler CPU", found["cpu"], "% of a core", f"load of the machine {os.getloadavg()[0]:.1f}")
    often = ", ".join(f"{name} {rate:,.0f}" for name, rate in found["often"])
    result.row(f"{what}: commands", found["rate"], "/s", often)
    result.row(f"{what}: CPU of the queues' store", found["store_cpu"], "% of a core", "with what renews the locks")
    result.row(f"{what}: tick p50", found["tick"], "ms", f"{found['ticks']} snapshots, {found['looks']} looks")


def _measure(store: Store, queues: int, active: int, seconds: float) -> dict[str, Any]:
    with Store("valkey") as state, ExitStack() as stack:
        environ = {"UNSTALL_REDIS_URL": store.url, "UNSTALL_STATE_URL": state.url}
        web = stack.enter_context(WebProcess(environ))  # makes the database
        scheduler = spawn(
            [sys.executable, "manage.py", "scheduler"], environ=environ_of(web.directory, environ), directory=ROOT
        )
        stack.callback(end, scheduler)
        until(lambda: _shown(state) == queues, 180, "all queues are found")
        until(lambda: _looked(state) == active, 300, "all active jobs are looked at")
        time.sleep(SETTLE)  # bench only: what is measured is the steady state
        return _watched(store, state, psutil.Process(scheduler.pid), seconds)


def _watched(store: Store, state: Store, process: psutil.Process, seconds: float) -> dict[str, Any]:
    server = psutil.Process(store.pid)
    ticks: dict[int, DeploymentSample] = {}
    looks: set[int] = set()
    before, cpu, store_cpu, began = _calls(store), _cpu(process), _cpu(server), time.monotonic()
    highest = 0
    while time.monotonic() - began < seconds:
        time.sleep(1)
        highest = max(highest, process.memory_info().rss)
        snapshot = snapshot_store.fetch(state.client)
        ticks |= {snapshot.number: snapshot.deployments[0]} if snapshot else {}
        inbox = inbox_store.fetch(state.client)
        looks |= {inbox.checked_at} if inbox else set()
    took = time.monotonic() - began
    rates = {name: (count - before.get(name, 0)) / took for name, count in _calls(store).items()}
    often = sorted(rates.items(), key=lambda pair: -pair[1])[:6]
    return {
        "rss": highest / MB,
        "cpu": 100 * (_cpu(process) - cpu) / took,
        "store_cpu": 100 * (_cpu(server) - store_cpu) / took,
        "rate": sum(rates.values()),
        "often": [(name.removeprefix("cmdstat_"), rate) for name, rate in often],
        "tick": median(one.took_ms for one in ticks.values()),
        "ticks": len(ticks),
        "looks": len(looks),
    }


@contextmanager
def _held(store: Store, bases: list[str]) -> Iterator[None]:
    client = store.connect(socket_timeout=60, socket_connect_timeout=60)  # a busy machine must not end the renewing
    hold, renew = client.register_script(_HOLD), client.register_script(_RENEW)
    parts = [(base, first) for base in bases for first in range(1, HELD_EACH + 1, _PART)]
    for base, first in parts:
        hold(keys=[base], args=[first, first + _PART - 1, int(time.time() * 1000)])
    over, all_held = threading.Event(), threading.Event()

    def work() -> None:
        due = time.monotonic()
        while not over.is_set():
            for base, first in parts:
                if over.wait(max(0.0, due - time.monotonic())):
                    return
                renew(keys=[base], args=[first, first + _PART - 1, LOCK_MS])
                due += LOCK_MS / 2000 / len(parts) if all_held.is_set() else 0.0
            if not all_held.is_set():
                due = time.monotonic()
                all_held.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        all_held.wait()
        with _workers(store, bases):
            yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _workers(store: Store, bases: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for base in bases:
            prefix, _, queue = base.partition(":")
            client = stack.enter_context(socket.create_connection(("127.0.0.1", store.port)))
            name = f"{prefix}:{base64.b64encode(queue.encode()).decode()}:w:mailer"
            client.sendall(f"CLIENT SETNAME {name}\r\n".encode())
            assert client.recv(64) == b"+OK\r\n"
        yield


def _calls(store: Store) -> dict[str, int]:
    stats = store.client.info("commandstats")
    return {name: int(value["calls"]) for name, value in stats.items() if name not in _OURS}


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _shown(state: Store) -> int:
    snapshot = snapshot_store.fetch(state.client)
    return len(snapshot.queues) if snapshot else 0


def _looked(state: Store) -> int:
    inbox = inbox_store.fetch(state.client)
    return sum(tally.looked for tally in inbox.queues) if inbox else -1
