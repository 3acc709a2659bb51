"""Many jobs put right at once, while somebody else uses the same store: ours beside BullMQ's own way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import stage
from bench.foreign import Felt, foreign
from bench.measure import Result
from recovery.backends import detection
from recovery.backends.base import LIST_LIMIT, Target
from recovery.backends.registry import operator, reader
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.stores.redis.client import StoreClient
from tests.support.hands import Hand
from tests.support.processes.fleet import Fleet, Queue
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired

LIBRARY = "bullmq6"
ORPHANS = 50_000
FAILED = 100_000
URGENT_EVERY = 10  # one failed job in ten has a priority
LONGEST_MS = 5.0
PING_MS = 5.0
IDLE_SECONDS = 3.0
PATIENT_SECONDS = 10.0  # a machine that is too busy makes a bad number, not an error
LOGGED_US = 100  # shorter commands are not asked about


@dataclass(slots=True)
class Feat:
    """What one way of doing it took."""

    felt: Felt
    seconds: float = 0.0
    longest_ms: float = 0.0  # the longest single command, by the store's own clock
    scripts: int = 0


def run_orphans(*, quick: bool) -> Result:
    """Orphans back to wait: chunk by chunk in the list's order, and the library's own check in one script."""
    count = ORPHANS // 10 if quick else ORPHANS
    result = Result("orphans", f"{count:,} orphans of one queue back to work")
    with _stores() as (store, fleet, wire):
        ours, theirs = (fleet[LIBRARY].queue(store, name) for name in ("ours", "theirs"))
        result.setting = {"orphans": count, "library": fleet[LIBRARY].version}
        for queue in (ours, theirs):
            stage.orphans(store, queue, count)
        quiet = _idle(store)
        looking, requeue = _in_chunks(wire, ours, Action.REQUEUE, JobState.ACTIVE, count)
        hand = Hand.of(theirs)
        with measured(store) as looked:
            chunks = looking()
        with measured(store) as mine:
            requeue(chunks)
        with measured(store) as its:
            hand.sweep()
        assert store.client.llen(ours.key("wait")) == store.client.llen(theirs.key("wait")) == count
    result.row("nobody acts: a foreign PING", quiet.at(0.99), "ms p99", quiet.note)
    _rows(result, "Unstall, looking at each", looked, count)
    _rows(result, "Unstall, requeuing", mine, count)
    _rows(result, "BullMQ's own check", its, count)
    result.goal(f"longest single call ≤ {LONGEST_MS:g} ms", max(looked.longest_ms, mine.longest_ms), most=LONGEST_MS)
    result.goal(f"a foreign PING meanwhile, p99 ≤ {PING_MS:g} ms", _worst(looked, mine), most=PING_MS)
    return result


def run_failed(*, quick: bool) -> Result:
    """Failed jobs run again: ours keeps each one's priority."""
    count = FAILED // 10 if quick else FAILED
    urgent = count // URGENT_EVERY
    result = Result("failed_retried", f"{count:,} failed jobs run again")
    with _stores() as (store, fleet, wire):
        ours, theirs = (fleet[LIBRARY].queue(store, name) for name in ("ours", "theirs"))
        result.setting = {"failed": count, "urgent": urgent, "library": fleet[LIBRARY].version}
        for queue in (ours, theirs):
            stage.failed(store, queue, count, urgent_every=URGENT_EVERY)
        looking, retry = _in_chunks(wire, ours, Action.RETRY, JobState.FAILED, count)
        with measured(store) as looked:
            chunks = looking()
        with measured(store) as mine:
            retry(chunks)
        with measured(store) as its:
            theirs.call("retryJobs", {"state": "failed"})
        kept = {queue.name: _urgent(store, queue) for queue in (ours, theirs)}
        assert all(store.client.zcard(queue.key("failed")) == 0 for queue in (ours, theirs))
    _rows(result, "Unstall, looking at each", looked, count)
    _rows(result, "Unstall, retrying", mine, count)
    _rows(result, "BullMQ's retryJobs", its, count)
    result.row("Unstall: priorities kept", kept["ours"], f"of {urgent:,}")
    result.row("BullMQ: priorities kept", kept["theirs"], f"of {urgent:,}")
    result.goal("priorities lost", urgent - kept["ours"], most=0)
    result.goal(f"longest single call ≤ {LONGEST_MS:g} ms", max(looked.longest_ms, mine.longest_ms), most=LONGEST_MS)
    result.goal(f"a foreign PING meanwhile, p99 ≤ {PING_MS:g} ms", _worst(looked, mine), most=PING_MS)
    return result


@contextmanager
def _stores() -> Iterator[tuple[Store, Fleet, StoreClient]]:
    with Store("valkey") as store, ExitStack() as stack:
        fleet = Fleet()
        stack.callback(fleet.stop)
        yield store, fleet, stack.enter_context(wired(store.url, timeout=PATIENT_SECONDS))


Chunks = list[tuple[ExpectedJob, ...]]


def _in_chunks(
    wire: StoreClient, queue: Queue, act: Action, state: JobState, count: int
) -> tuple[Callable[[], Chunks], Callable[[Chunks], None]]:
    """First every job is looked at, then they are acted on in that order, as many a script as the operator takes."""
    ref = QueueRef("main", queue.base)
    (flavour,) = detection.identify(wire, [ref.base], {})
    assert flavour is not None
    eyes, hands, target = reader(flavour), operator(flavour), Target(wire, ref, flavour)

    def look() -> Chunks:
        seen: list[ExpectedJob] = []
        cursor = ""
        while len(seen) < count:
            page = eyes.page(wire, ref, state, cursor=cursor, size=LIST_LIMIT, oldest_first=True)
            seen += map(ExpectedJob.of, page.rows)
            cursor = page.next
        size = hands.chunk(act)
        return [tuple(seen[start : start + size]) for start in range(0, count, size)]

    def do(chunks: Chunks) -> None:
        for chunk in chunks:
            done = hands.on_jobs(act, target, chunk, ActionOptions(is_late=True), int(time.time() * 1000))
            assert all(one.outcome is Outcome.DONE for one in done), done[0]

    return look, do


@contextmanager
def measured(store: Store) -> Iterator[Feat]:
    """The time it takes, what a foreign client feels, and the longest command as the store itself counts it."""
    store.client.config_set("slowlog-log-slower-than", LOGGED_US)
    store.client.config_set("slowlog-max-len", 10_000)
    store.client.slowlog_reset()
    store.client.config_resetstat()
    with foreign(store) as felt:
        feat = Feat(felt)
        started = time.perf_counter()
        yield feat
        feat.seconds = time.perf_counter() - started
    stats = store.client.info("commandstats")
    feat.scripts = sum(int(value["calls"]) for name, value in stats.items() if name.startswith("cmdstat_eval"))
    feat.longest_ms = max((entry["duration"] for entry in store.client.slowlog_get(10_000)), default=LOGGED_US) / 1000


def _idle(store: Store) -> Felt:
    """What the foreign client feels of the machine itself."""
    with foreign(store) as felt:
        time.sleep(IDLE_SECONDS)
    return felt


def _urgent(store: Store, queue: Queue) -> int:
    """Jobs that wait with the priority they were given: it is the upper half of their score."""
    return int(store.client.zcount(queue.key("prioritized"), stage.URGENT << 32, ((stage.URGENT + 1) << 32) - 1))


def _worst(*feats: Feat) -> float:
    return max(feat.felt.at(0.99) for feat in feats)


def _rows(result: Result, name: str, feat: Feat, count: int) -> None:
    rate = f"{count / feat.seconds:,.0f} jobs/s"
    result.row(f"{name}: in all", feat.seconds, "s", f"{rate}, {feat.scripts:,} scripts" if feat.scripts else rate)
    result.row(f"{name}: longest single call", feat.longest_ms, "ms", "in the store")
    result.row(f"{name}: a foreign PING", feat.felt.at(0.99), "ms p99", feat.felt.note)
