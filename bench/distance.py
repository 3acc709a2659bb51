"""A Redis far away, behind a proxy that delays each round trip: what the product makes of it, as it says so itself.

First 1,000 queues, all with something in them, at 80 ms. How long a tick took and whether it called the Redis down is
read from the snapshots that the scheduler publishes and every page shows. Meanwhile workers of the real BullMQ, which
are near, are killed one process after the other, and the armed orphan-watch puts their jobs back; when, the library's
own event stream says. One act at a time is timed over the API. Then 100 queues at 20 ms, with one answer in a hundred
2 s late: that has to be said as slow, in the snapshots and above the pages, and not as down.

    python -m bench distance           # 500 snapshots and 150: some 25 minutes
    python -m bench distance --quick   # 20 and 30, 100 queues: to see that it works

The Redis is alive all the while, so every snapshot that calls it down is wrong. Proxy and product share the machine:
nobody else should use it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from bench import recovery as killed
from bench import stage
from bench.measure import Result, median, percentile
from bench.product import Product, installed
from recovery.domain.queues.types import DeploymentSample
from recovery.reads.queues import snapshot_store
from recovery.stores.state import state_keys
from tests.support.processes.fleet import PREFIX, Fleet
from tests.support.stores.stores import Store

LIBRARY = "bullmq6"
QUEUES, QUICK_QUEUES = 1_000, 100
RTT_MS = 80.0
SNAPSHOTS, QUICK_SNAPSHOTS = 500, 20
PROCESSES, QUICK_PROCESSES = 12, 2  # of workers, each with killed.TOGETHER jobs that are lost with it
LOCK = 10.0  # seconds
ACTS, QUICK_ACTS = 20, 3
STALLING_QUEUES = 100
STALLING_RTT_MS = 20.0
STALL_SHARE, STALL_SECONDS = 0.01, 2.0
STALLING_SNAPSHOTS, QUICK_STALLING = 150, 30
SEED = 14
TICK_S = 0.5
RESCUE_S = 6.0  # behind the end of the lock
ROUND_TRIPS = 4  # of one act
OWN_MS = 150.0  # what one act may take without any distance
SILENCE_S = 60.0  # without a snapshot the run is given up
SLOW = "answers slowly"  # what is said of a deployment that is late and not down
DOWN = "does not answer"
_POLICY = '[policy.orphan_watch]\nmode = "enabled"\n'
# A queue of BullMQ in which something waits, runs out of its delay far from now, and has failed.
_FURNISH = """
redis.call('HSET', KEYS[1] .. ':meta', 'version', 'bullmq:6.7.0', 'opts.maxLenEvents', '10000')
for id = 1, 5 do
  redis.call('HSET', KEYS[1] .. ':' .. id, 'name', 'mail', 'data', '{}', 'opts', '{}', 'timestamp', ARGV[1],
    'delay', '0', 'priority', '0')
end
redis.call('LPUSH', KEYS[1] .. ':wait', 1, 2, 3)
redis.call('ZADD', KEYS[1] .. ':delayed', (ARGV[1] + 86400000) * 4096, 4)
redis.call('HSET', KEYS[1] .. ':5', 'finishedOn', ARGV[1], 'failedReason', 'no route to host')
redis.call('ZADD', KEYS[1] .. ':failed', ARGV[1], 5)
redis.call('SET', KEYS[1] .. ':id', 5)
"""


@dataclass(slots=True)
class PublishedSnapshots:
    """What the scheduler published: of each snapshot its only deployment, and when it was taken, in ms."""

    samples: list[DeploymentSample] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    @property
    def down(self) -> list[str]:
        return [one.error for one in self.samples if one.error]

    @property
    def slow(self) -> int:
        return sum(not one.error and any(SLOW in said for said in one.warnings) for one in self.samples)

    @property
    def ticks(self) -> list[float]:
        """Milliseconds of those that are new; a slow one repeats the last."""
        return [one.took_ms for one in self.samples if not one.error and not any(SLOW in said for said in one.warnings)]

    @property
    def gaps(self) -> list[float]:
        return [(after - before) / 1000 for before, after in pairwise(self.taken)]


def run(*, quick: bool) -> Result:
    queues = QUICK_QUEUES if quick else QUEUES
    result = Result("distance", f"{queues:,} queues at {RTT_MS:g} ms, and an unsteady way of {STALLING_RTT_MS:g} ms")
    result.setting = {"queues": queues, "rtt_ms": RTT_MS, "lock": LOCK, "database": "SQLite"}
    with ExitStack() as stack:
        _measure_far(stack, result, queues, quick=quick)
    with ExitStack() as stack:
        _measure_stalls(stack, result, quick=quick)
    return result


# -- far away


def _measure_far(stack: ExitStack, result: Result, queues: int, *, quick: bool) -> None:
    store, scene = _workers(stack, QUICK_PROCESSES if quick else PROCESSES)
    _furnish(store, queues - len(scene.queues))
    url = stack.enter_context(stage.away(store.port, RTT_MS))
    product = stack.enter_context(installed(url, queues=queues, settings=_POLICY))
    # A store that has just started holds every scanner until each worker had the time to renew.
    product.until(lambda: scene.uptime() > killed.PAUSE * LOCK + 2, 120, "the store is old enough")
    product.until(lambda: not product.state.client.exists(state_keys.SCANNER_HOLDS), 120, "nothing is paused")
    wanted = QUICK_SNAPSHOTS if quick else SNAPSHOTS
    every = max(2, wanted // len(scene.holders))  # snapshots between two deaths
    acts = _Acts(product, QUICK_ACTS if quick else ACTS)

    def meanwhile(number: int) -> None:
        if number % every == 0 and number // every < len(scene.holders):
            scene.kill(number // every)
        if number % 2:
            acts.next()

    found = _listen(product, wanted, meanwhile)
    last = time.monotonic() + LOCK + killed.SLACK
    while time.monotonic() < last and any(scene.back(death) is None for death in scene.deaths):
        time.sleep(0.5)
    _tell_ticks(result, f"{RTT_MS:g} ms", found)
    tick = percentile(found.ticks, 0.99) / 1000
    result.goal(f"{queues:,} queues at {RTT_MS:g} ms: tick p99 ≤ {TICK_S:g} s", tick, most=TICK_S)
    result.goal(f"of {wanted} snapshots call the living Redis down", len(found.down), most=0)
    _tell_rescues(result, scene)
    _tell_acts(result, acts.took)


def _workers(stack: ExitStack, processes: int) -> tuple[Store, killed.Scene]:
    """Jobs of the real library, whose workers are near and will be killed."""
    store, fleet = stack.enter_context(Store("valkey")), Fleet()
    stack.callback(fleet.stop)
    library = fleet[LIBRARY]
    stack.callback(library.reset)  # first: a job that is let go must not be taken for one that came back
    way = killed.Way("far away", _POLICY, named=False, second=False)
    queues = [library.queue(store, f"near-{number}") for number in range(processes * killed.TOGETHER)]
    scene = killed.Scene(way, store, library, queues)
    scene.begin(LOCK)
    return store, scene


def _furnish(store: Store, count: int) -> None:
    furnish = store.client.register_script(_FURNISH)
    for number in range(count):
        furnish(keys=[f"{PREFIX}:far-{number}"], args=[int(time.time() * 1000)])


class _Acts:
    """One job is retried at a time, over the API, each in a queue of its own."""

    def __init__(self, product: Product, count: int) -> None:
        self._product, self._left = product, list(range(count))
        self.took: list[float] = []

    def next(self) -> None:
        if not self._left:
            return
        queue = f"main/{PREFIX}:far-{self._left.pop()}"
        order = {"act": "retry", "queue": queue, "jobs": [{"id": "5"}], "reason": "the mail host is back"}
        began = time.perf_counter()
        status, told = self._product.call("POST", "/actions", order)
        self.took.append((time.perf_counter() - began) * 1000)
        if status != 200 or told["results"][0]["outcome"] != "done":
            raise RuntimeError(f"the act came to {status}: {told}")


def _listen(product: Product, wanted: int, meanwhile: Callable[[int], None]) -> PublishedSnapshots:
    """So many snapshots as they are published; after each, something may be done."""
    found, last = PublishedSnapshots(), -1
    with _published(product) as numbers:
        while len(found.samples) < wanted:
            next(numbers)
            product.supervise()
            snapshot = snapshot_store.fetch(product.state.client)
            if snapshot is None or snapshot.number == last:
                continue
            last = snapshot.number
            found.samples.append(snapshot.deployments[0])
            found.taken.append(snapshot.taken_at)
            meanwhile(len(found.samples) - 1)
    return found


@contextmanager
def _published(product: Product) -> Iterator[Iterator[int]]:
    """The number of each snapshot when it is published."""
    with product.state.client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(state_keys.SNAPSHOT_CHANNEL)

        def numbers() -> Iterator[int]:
            heard = time.monotonic()
            while time.monotonic() - heard < SILENCE_S:
                if message := channel.get_message(timeout=1.0):
                    heard = time.monotonic()
                    yield int(message["data"])
            raise RuntimeError(f"no snapshot within {SILENCE_S:g} s")

        yield numbers()


def _tell_ticks(result: Result, name: str, found: PublishedSnapshots) -> None:
    ticks, gaps = found.ticks, found.gaps
    result.row(f"{name}: a tick, as its snapshot says", median(ticks), "ms p50", _spread(ticks, "ms"))
    result.row(f"{name}: from one snapshot to the next", median(gaps), "s p50", _spread(gaps, "s"))
    result.row(f"{name}: said as slow", found.slow, f"of {len(found.samples)} snapshots")
    down = ", ".join(found.down[:2])
    result.row(f"{name}: said as down", len(found.down), f"of {len(found.samples)} snapshots", down)


def _tell_rescues(result: Result, scene: killed.Scene) -> None:
    back = [(death, at) for death in scene.deaths if (at := scene.back(death)) is not None]
    name = f"{RTT_MS:g} ms: armed rescue"
    result.row(f"{name}: put back", len(back), f"of {len(scene.deaths)} jobs of {len(scene.holders)} killed processes")
    result.goal(f"{name}: left behind", len(scene.deaths) - len(back), most=0)
    if back:
        late = [at - death.expiry for death, at in back]
        result.row(f"{name}: after the lock's end", median(late), "s p50", _spread(late, "s"))
        result.goal(f"{name}: worst ≤ lock + {RESCUE_S:g} s", max(late), most=RESCUE_S)


def _tell_acts(result: Result, took: list[float]) -> None:
    result.row(f"{RTT_MS:g} ms: one act over the API", median(took), "ms p50", _spread(took, "ms"))
    most = ROUND_TRIPS * RTT_MS + OWN_MS
    text = f"one act, p50 ≤ {ROUND_TRIPS} round trips and {OWN_MS:g} ms of its own"
    result.goal(text, median(took), most=most)


def _spread(values: list[float], unit: str) -> str:
    return f"p99 {percentile(values, 0.99):.2f} {unit}, worst {max(values):.2f} {unit}"


# -- an unsteady way


def _measure_stalls(stack: ExitStack, result: Result, *, quick: bool) -> None:
    store = stack.enter_context(Store("valkey"))
    _furnish(store, STALLING_QUEUES)
    stalls = stage.Stalls(0.0, STALL_SECONDS, random.Random(SEED))
    url = stack.enter_context(stage.away(store.port, STALLING_RTT_MS, stalls))
    product = stack.enter_context(installed(url, queues=STALLING_QUEUES))
    stalls.share = STALL_SHARE  # not before all queues are found
    wanted = QUICK_STALLING if quick else STALLING_SNAPSHOTS
    said: list[str] = []
    found = _listen(product, wanted, lambda _: said.extend(product.notices()))
    name = f"{STALLING_RTT_MS:g} ms, {STALL_SHARE:.0%} stalls of {STALL_SECONDS:g} s"
    _tell_ticks(result, name, found)
    result.row(f"{name}: stalls", stalls.count, "answers that came late")
    pages = [sum(words in one for one in said) for words in (SLOW, DOWN)]
    result.row(f"{name}: pages", pages[0], f"of {wanted} said slow", f"{pages[1]} said down")
    result.goal(f"{name}: said as down, by a snapshot or a page", len(found.down) + pages[1], most=0)
    result.goal(f"{name}: said as slow (else nothing was tried)", found.slow, least=1)
