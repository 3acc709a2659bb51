"""One pass of the scanners over a large house: what it costs us, and what whoever uses the same store feels of it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import django
from django.core.management import call_command

from bench.actions import Feat, measured
from bench.measure import Result
from recovery.stores import registry
from tests.support.stores.stores import Store

QUEUES = 1_000
ACTIVE = 100  # in each queue
ORPHAN_EVERY = 100  # one active job in so many has no lock
LONGEST_MS = 5.0
LATER = 1_200_000  # ms between two snapshots: what is stuck has been so for long enough, for the stale check too
LOCK_MS = 3_600_000
# A queue of BullMQ 5 or later whose workers hold what is active, but for one in ARGV[2].
_FILL = """
redis.call('HSET', KEYS[1] .. ':meta', 'version', 'bullmq:5.61.0', 'opts.maxLenEvents', '10000')
redis.call('SET', KEYS[1] .. ':stalled-check', '1', 'PX', ARGV[3])
for id = 1, ARGV[1] do
  local key = KEYS[1] .. ':' .. id
  redis.call('HSET', key, 'name', 'mail', 'data', '{}', 'opts', '{}', 'timestamp', '1760000000000', 'atm', '0',
    'ats', '1', 'priority', '0', 'delay', '0', 'processedOn', '1760000001000')
  redis.call('LPUSH', KEYS[1] .. ':active', id)
  if id % ARGV[2] ~= 0 then redis.call('SET', key .. ':lock', 'w:1', 'PX', ARGV[3]) end
end
"""


def run(*, quick: bool) -> Result:
    queues = QUEUES // 10 if quick else QUEUES
    result = Result(
        "passes", f"One pass over {queues:,} queues with {queues * ACTIVE:,} active jobs, 1 % of them orphans"
    )
    result.setting = {"queues": queues, "active": queues * ACTIVE}
    with _database(), Store("valkey") as store, Store("valkey") as state:
        fill = store.client.register_script(_FILL)
        for number in range(queues):
            fill(keys=[f"bull:pass-{number}"], args=[ACTIVE, ORPHAN_EVERY, LOCK_MS])
        with _watching(store, state) as (collect, watch, check):
            _row(result, store, "snapshot", collect)
            _row(result, store, "orphan-watch, the first time: every orphan becomes an incident", watch)
            collect()
            _row(result, store, "orphan-watch, once a minute: every job is asked what it says of itself", watch)
            _row(result, store, "orphan-watch, every other look", watch)
            _row(result, store, "stale-check", check)
    return result


def _row(result: Result, store: Store, name: str, act: Callable[[], int]) -> None:
    with measured(store) as feat:
        found = act()
    commands = _commands(store)
    result.row(f"{name}: in all", feat.seconds, "s", f"{found:,} stuck" if found else "")
    result.row(f"{name}: commands", commands, "", f"{feat.scripts:,} scripts")
    result.row(f"{name}: longest single call", feat.longest_ms, "ms", "in the store")
    result.row(f"{name}: a foreign PING", feat.felt.at(0.99), "ms p99", feat.felt.note)
    _goal(result, name, feat)


def _goal(result: Result, name: str, feat: Feat) -> None:
    result.goal(f"{name}: longest single call ≤ {LONGEST_MS:g} ms", feat.longest_ms, most=LONGEST_MS)


def _commands(store: Store) -> int:
    stats = store.client.info("commandstats")
    return sum(int(value["calls"]) for name, value in stats.items() if name != "cmdstat_ping")


@contextmanager
def _database() -> Iterator[None]:
    """An empty one of our own: incidents are written as in life."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "UNSTALL_DATA_DIR": folder,
            "DATABASE_URL": f"sqlite:///{Path(folder) / 'bench.sqlite3'}",
        }
        django.setup()
        call_command("migrate", verbosity=0)
        yield


@contextmanager
def _watching(store: Store, state: Store) -> Iterator[tuple[Callable[[], int], Callable[[], int], Callable[[], int]]]:
    """A snapshot, a look of the watch, and a stale check that only observes."""
    from recovery.scanners.stale_check.scanner import StaleCheck  # noqa: PLC0415 -- needs Django to be set up
    from tests.support.stuck.watch_bench import WatchBench, config_for  # noqa: PLC0415 -- as above

    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNSTALL_CONFIG"] = str(Path(folder) / "unstall.toml")  # for what has no registry of its own
        bench = WatchBench(config_for(Path(folder), state, store))
        bench.discover()
        check = StaleCheck(bench.registry, lambda: bench.collector.newest, None, lambda _: ())
        began, passes = int(time.time() * 1000), count()

        def collect() -> int:
            bench.collector.look(began + next(passes) * LATER)
            return 0

        def watch() -> int:
            return bench.watch.run(bench.snapshot.taken_at + 1).stuck

        def stale() -> int:
            report = check.run(bench.snapshot.taken_at + 1, dry_run=True)
            assert not report.faults, report.faults
            return report.found

        try:
            yield collect, watch, stale
        finally:
            registry.reset()
            bench.close()
