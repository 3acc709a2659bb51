"""Bulk runs through the product: ordered by the API, done by the scheduler's process, told by the audit; SQLite.

Near the Redis, and over a connection that takes 20 ms for each round trip. A foreign client sends PINGs meanwhile.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from bench import stage
from bench.actions import Feat, measured
from bench.measure import Result
from bench.product import Product, installed
from tests.support.processes.fleet import Fleet, Queue
from tests.support.stores.stores import Store

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
_COUNTERS = ("done", "refused", "missing", "unchanged", "unknown")
_STATE = f"SELECT status, trouble, total, {', '.join(_COUNTERS)} FROM recovery_bulkrun WHERE id = ?"
# Between an intent and its outcome there may be others, so the order is by number and not by pair.
_LISTED = (
    "SELECT count(*), count(DISTINCT job) FROM recovery_auditjob JOIN recovery_auditentry"
    " ON number = entry_id WHERE act = ? AND outcome = 'done'"
)


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
        url = stack.enter_context(stage.away(store.port, away_ms)) if away_ms else store.url
        product = stack.enter_context(installed(url))
        with measured(store) as feat:
            began = time.perf_counter()
            run = product.order(act, "orphan" if act == "requeue" else "failed", queue)
            gathered = _await(product, run, "running", began)
            _await(product, run, "ended", began)
        counters = _check(product, store, run, queue, act=act, count=count)
        return Took(feat, gathered, count, counters)


def _await(product: Product, run: int, wanted: str, began: float) -> float:
    """Seconds since the order. Shows how far it is, for whoever waits."""
    while True:
        ((status, trouble, total, done, *_),) = product.ask(_STATE, run)
        took = time.perf_counter() - began
        if status in (wanted, "ended"):
            return took
        if status in ("failed", "stopped") or took > PATIENCE:
            raise RuntimeError(f"the run is {status} after {took:.0f} s, {done:,} of {total:,}: {trouble}")
        sys.stderr.isatty() and print(
            f"\r  {took:6.1f} s {status} {done:,} of {total:,} {trouble}", end="", file=sys.stderr, flush=True
        )
        time.sleep(LOOK)


def _check(product: Product, store: Store, run: int, queue: Queue, *, act: str, count: int) -> dict[str, int]:
    """What the jobs came to. Each is where it belongs, once, has its result, and is in the audit once."""
    ((status, trouble, total, *counted),) = product.ask(_STATE, run)
    counters = dict(zip(_COUNTERS, counted, strict=True))
    assert (status, total, sum(counted), trouble) == ("ended", count, count, ""), (status, total, counters, trouble)
    client, done = store.client, counters["done"]
    ids = [*client.lrange(queue.key("wait"), 0, -1), *client.zrange(queue.key("prioritized"), 0, -1)]
    assert len(ids) == len(set(ids)) == count
    if act == "requeue":
        asked = client.pipeline(transaction=False)
        for id in ids:
            asked.hget(queue.key(id.decode()), "stc")
        assert set(asked.execute()) == {b"1"}, "a job was recovered twice, or never"
    ((listed, distinct),) = product.ask(_LISTED, act)
    assert (listed, distinct) == (done, done)
    ((settled,),) = product.ask(
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
