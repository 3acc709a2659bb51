"""A scrape of a thousand queues on a Redis with a million other keys: from our memory, and by SCAN each time."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from bench import stage
from bench.actions import measured
from bench.load import Load, load
from bench.measure import Result, median, percentile
from bench.viewers import connections
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store

QUEUES = 1000
KEYS = 1_000_000
AT_ONCE = 1_000  # keys written by one command
SECONDS = 60.0
PEER_SECONDS = 20.0
P99_MS = 50.0
LIMITS = {"dashboard.metrics.asgi.KEPT_SECONDS": 0.0}  # each scrape is written anew
# As Prometheus asks.
ASKED = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
_TOKEN = "unstall_" + "b" * 43
_MAKE = (
    "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
    " VALUES ('bench', ?, 'unstall_bench', 'metrics', '2026-01-01', '2126-01-01')"
)


def run(*, quick: bool) -> Result:
    keys = KEYS // 10 if quick else KEYS
    result = Result("metrics", f"A scrape of {QUEUES:,} queues, {keys:,} other keys in the same Redis")
    result.setting = {"queues": QUEUES, "keys": keys}
    with ExitStack() as stack:
        store = stack.enter_context(stage.queues(QUEUES, full=QUEUES // 10, jobs=200))
        _fill(store, keys)
        with stage.house(store, QUEUES, limits=LIMITS) as web:
            ours = _ours(web, store, result, seconds=SECONDS / 6 if quick else SECONDS)
        _theirs(store, result, stack)
    result.goal(f"{QUEUES:,} queues, p99 ≤ {P99_MS:g} ms", percentile(ours.times_ms, 0.99), most=P99_MS)
    return result


def _ours(web: WebProcess, store: Store, result: Result, *, seconds: float) -> Load:
    """One after the other, each written anew, while the scheduler goes on taking snapshots."""
    web.change(_MAKE, hashlib.sha256(_TOKEN.encode()).hexdigest())
    headers = {**ASKED, "Authorization": f"Bearer {_TOKEN}"}
    url = f"http://127.0.0.1:{web.port}/metrics"
    asyncio.run(load(url, concurrency=1, seconds=2.0, headers=headers))
    used = _processor(web)
    with measured(store) as feat:
        done = asyncio.run(load(url, concurrency=1, seconds=seconds, headers=headers))
    used = (_processor(web) - used) / len(done.times_ms)
    direct = connections(web, store)
    times = done.times_ms
    note = f"best {min(times):.1f} ms, p99 {percentile(times, 0.99):.1f} ms, {len(times):,} scrapes"
    result.row("Unstall: a scrape", median(times), "ms", note)
    result.row("Unstall: processor time for each", used * 1000, "ms", "of the whole web process")
    result.row("Unstall: an answer, compressed", done.bytes / 1024, "KB")
    result.row("Unstall: connections of the web process to the Redis", direct, "", "so it sends no command")
    result.row("Unstall: a foreign PING", feat.felt.at(0.99), "ms p99", f"{feat.felt.note}; snapshots go on meanwhile")
    result.goal("connections to the Redis", direct, most=0)
    return done


def _processor(web: WebProcess) -> float:
    """Seconds that it has used."""
    spent = psutil.Process(web.pid).cpu_times()
    return float(spent.user + spent.system)


def _theirs(store: Store, result: Result, stack: ExitStack) -> None:
    url = stack.enter_context(_exporter(store))
    with measured(store) as feat:
        done = asyncio.run(load(url, concurrency=1, seconds=PEER_SECONDS))
    commands = sum(
        int(value["calls"]) for name, value in store.client.info("commandstats").items() if "ping" not in name
    )
    each = commands / len(done.times_ms)
    note = f"best {min(done.times_ms):,.0f} ms, worst {max(done.times_ms):,.0f} ms, {len(done.times_ms):,} scrapes"
    result.row("SCAN each time: a scrape", median(done.times_ms), "ms", note)
    result.row("SCAN each time: commands of a scrape", each, "", "SCAN with its COUNT of 10, and seven for each queue")
    result.row("SCAN each time: a foreign PING", feat.felt.at(0.99), "ms p99", feat.felt.note)


def _fill(store: Store, keys: int) -> None:
    """What else an application keeps in its Redis."""
    for start in range(0, keys, AT_ONCE):
        store.client.mset({f"app:cache:{number}": b"x" * 16 for number in range(start, start + AT_ONCE)})


@contextmanager
def _exporter(store: Store) -> Iterator[str]:
    process = spawn(
        [stage.node_program(), "exporter.mjs", store.url], directory=stage.NODE_HOME, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/metrics"
    finally:
        end(process)
