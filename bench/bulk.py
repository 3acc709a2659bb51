"""Bulk runs through the product: ordered by the API, done by the scheduler's process, told by the audit; SQLite.

Near the Redis, and over a connection that takes 20 ms for each round trip. A foreign client sends PINGs meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import stage
from bench.actions import Feat, measured
from bench.measure import Result
from tests.fleet import Fleet, Queue
from tests.processes import end, spawn
from tests.stores import Store
from tests.waiting import until
from tests.web_process import ROOT, WebProcess, environ_of

LIBRARY = "bullmq6"
JOBS = 30_000
FAR_JOBS = 10_000
MANY_ORPHANS = 500_000
AWAY_MS = 20.0  # of a round trip
LOCAL_RATE, FAR_RATE = 10_000, 1_000  # jobs a second
MANY_SECONDS = 120.0
LONGEST_MS = 5.0
PING_MS = 5.0
PATIENCE = 900.0  # seconds for one run: a busy machine makes a bad number, not an error
LOOK = 0.1
_TOKEN = "unstall_" + "c" * 43
_MAKE = (
    "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
    " VALUES ('bench', ?, 'unstall_bench', 'read bulk', '2026-01-01', '2126-01-01')"
)
_COUNTERS = ("done", "refused", "missing", "unchanged", "unknown")
_STATE = f"SELECT status, trouble, total, {', '.join(_COUNTERS)} FROM recovery_bulkrun WHERE id = ?"
# Between an intent and its outcome there may be others, so the order is by number and not by pair.
_LISTED = (
    "SELECT count(*), count(DISTINCT job) FROM recovery_auditjob JOIN recovery_auditentry"
    " ON number = entry_id WHERE act = ? AND outcome = 'done'"
)


@dataclass(slots=True)
class Product:
    """The web process and the scheduler over one Redis; `away_ms` is what a round trip to it takes more."""

    web: WebProcess
    store: Store

    def order(self, act: str, chosen: str, queue: Queue) -> int:
        body = {"act": act, "queue": f"main/{queue.base}", "reason": "the host is back", "all": chosen}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.web.port}/api/v1/bulk",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.loads(answer.read())["id"])


@dataclass(frozen=True, slots=True)
class Took:
    """One run from its order to its end."""

    feat: Feat
    gathered: float  # seconds until its jobs were known; with `feat.seconds` from the order on
    count: int
    counters: dict[str, int]

    @property
    def rate(self) -> float:
        return self.count / self.feat.seconds


def run(*, quick: bool) -> Result:
    """Requeue and retry, near and far."""
    near, far = (JOBS // 10, FAR_JOBS // 10) if quick else (JOBS, FAR_JOBS)
    result = Result("bulk", f"{near:,} jobs in bulk through API, scheduler and audit, and {far:,} over {AWAY_MS:g} ms")
    result.setting = {"jobs": near, "far": far, "rtt_ms": AWAY_MS, "database": "SQLite"}
    for away_ms, count, goal in ((0.0, near, LOCAL_RATE), (AWAY_MS, far, FAR_RATE)):
        for act in ("requeue", "retry"):
            took = _measure(act, count, away_ms)
            _rows(result, f"{act}, {away_ms:g} ms away" if away_ms else act, took)
            result.goal(f"{act} {f'at {away_ms:g} ms ' if away_ms else ''}≥ {goal:,}/s", took.rate, least=goal)
    return result


def run_many(*, quick: bool) -> Result:
    """Half a million orphans of one queue."""
    count = MANY_ORPHANS // 10 if quick else MANY_ORPHANS
    result = Result("bulk-many", f"{count:,} orphans of one queue in bulk, through API, scheduler and audit")
    result.setting = {"orphans": count, "database": "SQLite"}
    took = _measure("requeue", count, 0.0)
    _rows(result, "requeue", took)
    result.goal(f"{count:,} in ≤ {MANY_SECONDS:g} s", took.feat.seconds, most=MANY_SECONDS)
    return result


def _measure(act: str, count: int, away_ms: float) -> Took:
    with Store("valkey") as store, ExitStack() as stack:
        fleet = Fleet()
        stack.callback(fleet.stop)
        queue = fleet[LIBRARY].queue(store, "mail")
        if act == "requeue":
            stage.orphans(store, queue, count)
        else:
            stage.failed(store, queue, count, urgent_every=10)
        product = stack.enter_context(_product(store, away_ms))
        with measured(store) as feat:
            began = time.perf_counter()
            run = product.order(act, "orphan" if act == "requeue" else "failed", queue)
            gathered = _await(product, run, "running", began)
            _await(product, run, "ended", began)
        counters = _check(product, run, queue, act, count)
        return Took(feat, gathered, count, counters)


def _await(product: Product, run: int, wanted: str, began: float) -> float:
    """Seconds since the order. Shows how far it is, for whoever waits."""
    while True:
        ((status, trouble, total, done, *_),) = product.web.ask(_STATE, run)
        took = time.perf_counter() - began
        if status in (wanted, "ended"):
            return took
        if status in ("failed", "stopped") or took > PATIENCE:
            raise RuntimeError(f"the run is {status} after {took:.0f} s, {done:,} of {total:,}: {trouble}")
        sys.stderr.isatty() and print(
            f"\r  {took:6.1f} s {status} {done:,} of {total:,} {trouble}", end="", file=sys.stderr, flush=True
        )
        time.sleep(LOOK)


def _check(product: Product, run: int, queue: Queue, act: str, count: int) -> dict[str, int]:
    """What the jobs came to. Each is where it belongs, once, has its result, and is in the audit once."""
    ((status, trouble, total, *counted),) = product.web.ask(_STATE, run)
    counters = dict(zip(_COUNTERS, counted, strict=True))
    assert (status, total, sum(counted), trouble) == ("ended", count, count, ""), (status, total, counters, trouble)
    client, done = product.store.client, counters["done"]
    ids = [*client.lrange(queue.key("wait"), 0, -1), *client.zrange(queue.key("prioritized"), 0, -1)]
    assert len(ids) == len(set(ids)) == count
    if act == "requeue":
        asked = client.pipeline(transaction=False)
        for id in ids:
            asked.hget(queue.key(id.decode()), "stc")
        assert set(asked.execute()) == {b"1"}, "a job was recovered twice, or never"
    ((listed, distinct),) = product.web.ask(_LISTED, act)
    assert (listed, distinct) == (done, done)
    ((settled,),) = product.web.ask(
        "SELECT count(*) FROM recovery_bulkitem WHERE run_id = ? AND outcome = 'done' AND audit IS NOT NULL", run
    )
    assert settled == done
    return counters


def _rows(result: Result, name: str, took: Took) -> None:
    feat = took.feat
    result.row(f"{name}: in all", feat.seconds, "s", f"{took.rate:,.0f} jobs/s; {took.gathered:.1f} s of it gathering")
    result.row(
        f"{name}: done", took.counters["done"], "jobs", ", ".join(f"{n:,} {o}" for o, n in took.counters.items())
    )
    result.row(f"{name}: longest single call", feat.longest_ms, "ms", "in the store")
    result.row(f"{name}: a foreign PING", feat.felt.at(0.99), "ms p99", feat.felt.note)
    result.goal(f"{name}: jobs whose outcome is unknown", took.counters["unknown"], most=0)
    result.goal(f"{name}: longest single call ≤ {LONGEST_MS:g} ms", feat.longest_ms, most=LONGEST_MS)
    result.goal(f"{name}: a foreign PING, p99 ≤ {PING_MS:g} ms", feat.felt.at(0.99), most=PING_MS)


@contextmanager
def _product(store: Store, away_ms: float) -> Iterator[Product]:
    """Both processes as they are installed, with a state store and a database of their own."""
    with Store("valkey") as state, ExitStack() as stack:
        url = stack.enter_context(away(store.port, away_ms)) if away_ms else store.url
        environ = {"UNSTALL_REDIS_URL": url, "UNSTALL_STATE_URL": state.url}
        web = stack.enter_context(WebProcess(environ))
        web.change(_MAKE, hashlib.sha256(_TOKEN.encode()).hexdigest())
        command = [sys.executable, "manage.py", "scheduler"]
        with (web.directory / "scheduler.log").open("wb") as log:
            scheduler = spawn(
                command, environ=environ_of(web.directory, environ), directory=ROOT, stdout=log, stderr=log
            )
        stack.callback(end, scheduler)
        until(lambda: stage.shown(state) == 1, 120, "the queue is found")
        until(lambda: _has_looked(web), 120, "the orphan-watch has looked")
        yield Product(web, store)


def _has_looked(web: WebProcess) -> bool:
    return b'"orphan-watch"' in web.get("/healthz").body


# -- distance


@contextmanager
def away(port: int, rtt_ms: float) -> Iterator[str]:
    """The URL of a proxy on loopback that hands everything on half a round trip later, both ways."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(
        asyncio.start_server(lambda reader, writer: _hand_on(reader, writer, port, rtt_ms / 2000), "127.0.0.1", 0)
    )
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, late: float) -> None:
    theirs, ours = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_late(reader, ours, late), _late(theirs, writer, late), return_exceptions=True)


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late: float) -> None:
    """Bytes leave in the order in which they came, each so many seconds later."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 18):
        loop.call_later(late, writer.write, data)
    loop.call_later(late, writer.close)
