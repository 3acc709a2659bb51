"""A page of 100 failed jobs out of a million: what it costs the store, command by command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.measure import Result, median, timed
from recovery.backends.registry import reader
from recovery.config import load
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRowPage, JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.stores import Store

JOBS = 1_000_000
SIZE = 100
STORE_MS = 20.0
ROUNDS = 20
PAGES_IN = 40  # how many pages a person may have turned
FLAVOUR = LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5")
BASE = "bull:heap"

# Names whose cost is bounded by the key's depth and what is returned; everything else would have to be explained.
_RANGES = ("zrange", "zrevrange", "zrangebyscore", "zrevrangebyscore", "zcard", "zscore", "zrank", "zrevrank", "zcount")
_FIELDS = ("hmget", "hget", "hstrlen", "lrange", "lindex", "llen", "get", "mget", "pttl", "exists", "type")
BOUNDED = frozenset((*_RANGES, *_FIELDS))

# What BullMQ 5 leaves of a failed job. One call makes 10,000 of them; a million one by one would take minutes.
_FILL = """
for n = ARGV[1], ARGV[2] do
  local at = 1760000000000 + n
  redis.call('HSET', KEYS[1] .. ':' .. n, 'name', 'mail', 'data', '{"to":"person-' .. n .. '@example.com"}',
    'opts', '{"attempts":3}', 'timestamp', at, 'delay', 0, 'priority', 0, 'processedOn', at + 5, 'finishedOn', at + 9,
    'atm', 3, 'ats', 3, 'failedReason', 'ECONNREFUSED 10.0.0.7:25', 'stacktrace', '["Error: ECONNREFUSED\\\\n  at x"]')
  redis.call('ZADD', KEYS[1] .. ':failed', at + 9, n)
end
"""


@dataclass(frozen=True, slots=True)
class _Cost:
    """Milliseconds in the store, in the median and at worst, and how often each command ran."""

    usual: float
    worst: float
    commands: Counter[str]


def run(*, quick: bool) -> Result:
    jobs = JOBS // 10 if quick else JOBS
    result = Result("failed_page", f"A page of {SIZE} failed jobs out of {jobs:,}")
    result.setting = {"jobs": jobs, "page": SIZE, "rounds": ROUNDS}
    with Store("valkey") as store, _filled(store, jobs) as registry:
        wire = registry.wire("main")
        ref = QueueRef("main", BASE)
        by = reader(FLAVOUR)

        def page(cursor: str = "", *, oldest_first: bool = False) -> JobRowPage:
            return by.page(wire, ref, JobState.FAILED, cursor=cursor, size=SIZE, oldest_first=oldest_first)

        deep = _deep(page)
        asked: dict[str, Callable[[], JobRowPage]] = {
            "first page": page,
            f"page {PAGES_IN + 1}": lambda: page(deep),
            "oldest first": lambda: page(oldest_first=True),
        }
        assert all(len(ask().rows) == SIZE for ask in asked.values())
        costs = {name: _cost(store, ask) for name, ask in asked.items()}
        took = {name: median(timed(ask, ROUNDS)) for name, ask in asked.items()}
    for name, cost in costs.items():
        result.row(f"{name}: in the store", cost.usual, "ms", f"worst {cost.worst:.1f} ms; {_listed(cost.commands)}")
        result.row(f"{name}: whole read", took[name], "ms", "with the network and our decoding")
    unbounded = {name for cost in costs.values() for name in cost.commands} - BOUNDED
    result.setting["unbounded"] = sorted(unbounded)
    result.goal("time in the store ≤ 20 ms", max(cost.usual for cost in costs.values()), most=STORE_MS)
    result.goal("commands above O(log n + page)", len(unbounded), most=0)
    return result


@contextmanager
def _filled(store: Store, jobs: int) -> Iterator[ConnectionRegistry]:
    fill = store.client.register_script(_FILL)
    for first in range(1, jobs, 10_000):
        fill(keys=[BASE], args=[first, first + 9_999])
    store.client.hset(f"{BASE}:meta", mapping={"version": "bullmq:5.81.5"})
    registry = ConnectionRegistry(load({"UNSTALL_REDIS_URL": store.url}))
    try:
        yield registry
    finally:
        registry.close()


def _deep(page: Callable[[str], JobRowPage]) -> str:
    """The cursor after many turned pages."""
    cursor = ""
    for _ in range(PAGES_IN):
        cursor = page(cursor).next
    return cursor


def _cost(store: Store, ask: Callable[[], JobRowPage]) -> _Cost:
    """By the store's own count."""
    ask()
    spent: list[float] = []
    commands: Counter[str] = Counter()
    for _ in range(ROUNDS):
        store.client.config_resetstat()
        ask()
        stats = store.client.info("commandstats")
        ran = {_name(key): value for key, value in stats.items() if "config" not in key and "info" not in key}
        commands = Counter({name: int(value["calls"]) for name, value in ran.items()})
        spent.append(sum(value["usec"] for value in ran.values()) / 1000)
    return _Cost(median(spent), max(spent), commands)


def _name(key: str) -> str:
    return key.removeprefix("cmdstat_").partition("|")[0]


def _listed(commands: Counter[str]) -> str:
    return ", ".join(f"{count} {name.upper()}" for name, count in commands.most_common())
