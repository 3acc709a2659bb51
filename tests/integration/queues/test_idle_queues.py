"""A collector that asks for what is there finds what one finds that asks everything; idle queues are asked rarely."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import redis

from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import JobCounts, LibraryVersion, QueueLibrary, QueueSample
from recovery.reads.queues import snapshot_store
from recovery.scanners.collect import collector as collect_collector
from recovery.scanners.collect.collector import Collector
from recovery.scanners.collect.queue_read_plan import CALM, IDLE_MS
from recovery.scanners.discovery.known_queues import KnownQueue
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, WatchBench
from tests.support.stuck.watching import NOW

PATIENT = "timeout = 10\n"  # seconds
STEP = 2_000  # ms between two ticks
QUEUES = {
    QueueRef("main", f"bull:idle-{number}"): LibraryVersion(*kind)
    for number, kind in enumerate([(QueueLibrary.BULLMQ, 5), (QueueLibrary.BULLMQ, 4), (QueueLibrary.BULL, 4)] * 4)
}
BOTH = ("id", "wait", "active", "paused", "delayed", "completed", "failed")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no slow store."""
    monkeypatch.setattr(collect_collector, "SHORTEST_WAIT", 60.0)
    monkeypatch.setattr(collect_collector, "LONGEST_WAIT", 60.0)


def known(one: WatchBench) -> None:
    one.roster.replace("main", [KnownQueue(ref, flavour, NOW, NOW) for ref, flavour in QUEUES.items()])


def plain(sample: QueueSample) -> QueueSample:
    """Without what runs down by itself."""
    return sample._replace(stalled_check_ttl=None, limited_for=None)


def by_ref(collector: Collector, now: int) -> dict[QueueRef, QueueSample]:
    return {sample.ref: sample for sample in collector.look(now).queues}


def change(store: redis.Redis, base: str, random: Random) -> None:
    key, id = f"{base}:{random.choice(BOTH)}", f"job-{random.randrange(6)}"
    match key.rpartition(":")[2]:
        case "id":
            store.incr(key)
        case "wait" | "active" | "paused":
            random.choice([lambda: store.lpush(key, id), lambda: store.rpop(key), lambda: store.lrem(key, 1, id)])()
        case _:
            random.choice([lambda: store.zadd(key, {id: random.randrange(9) << 12}), lambda: store.zrem(key, id)])()
    match random.randrange(8):
        case 0:
            store.hset(f"{base}:meta", "paused", 1)
        case 1:
            store.delete(f"{base}:meta", f"{base}:meta-paused")
        case 2:
            store.set(f"{base}:stalled-check", 1, px=60_000)
        case 3:
            store.delete(f"{base}:stalled-check", f"{base}:limiter", f"{base}:failed")
        case 4:
            store.set(f"{base}:meta-paused", 1)


@pytest.mark.parametrize("seed", range(6))
def test_each_answer_is_what_a_whole_look_found_at_the_time_that_it_names(
    watch_bench: Make, valkey: Store, seed: int
) -> None:
    one, random = watch_bench(valkey, PATIENT), Random(seed)
    known(one)
    found: dict[int, dict[QueueRef, QueueSample]] = {}
    carried = 0
    for step in range(40):
        now = NOW + step * STEP
        for ref in QUEUES:
            if random.random() < (0.02 if step > 10 else 0.3):
                change(valkey.client, ref.base, random)
        fresh = Collector(one.registry, one.roster)
        found[now] = by_ref(fresh, now)
        fresh.close()
        for ref, sample in by_ref(one.collector, now).items():
            assert sample.read_at is not None
            assert now - sample.read_at < IDLE_MS
            assert plain(sample) == plain(found[sample.read_at][ref]), (step, ref)
            carried += sample.read_at < now
    assert carried, "some were idle"


def test_idle_queues_are_asked_every_other_tick_and_a_few_commands(watch_bench: Make, valkey: Store) -> None:
    one = watch_bench(valkey, PATIENT)
    known(one)
    for ref in QUEUES:
        valkey.client.incr(f"{ref.base}:id")
        valkey.client.zadd(f"{ref.base}:completed", {"1": 1})
    costs = [one.collector.look(NOW + step * STEP).deployments[0].commands for step in range(CALM + 6)]
    assert costs[0] > 14 * len(QUEUES)
    assert max(costs[2:]) < 5 * len(QUEUES)
    assert max(costs[-2:]) < 3 * len(QUEUES)


def test_what_begins_to_move_is_seen_within_two_ticks_and_then_at_each(watch_bench: Make, valkey: Store) -> None:
    one, ref = watch_bench(valkey, PATIENT), next(iter(QUEUES))
    known(one)
    for step in range(CALM + 4):
        one.collector.look(NOW + step * STEP)
    valkey.client.lpush(f"{ref.base}:wait", "1")
    seen = [by_ref(one.collector, NOW + (CALM + 4 + step) * STEP)[ref] for step in range(4)]
    assert seen[1].counts.waiting == 1
    assert [NOW + (CALM + 4 + step) * STEP for step in (2, 3)] == [sample.read_at for sample in seen[2:]]


def test_a_user_who_may_not_ask_for_several_keys_at_once_gets_the_same_numbers(
    watch_bench: Make, valkey: Store
) -> None:
    words = ("on", ">secret", "~*", "+@all", "-exists")
    valkey.do("ACL", "SETUSER", "spare", *words)
    try:
        one = watch_bench(valkey.url.replace("redis://", "redis://spare:secret@"), PATIENT)  # type: ignore[arg-type] # a URL will do
        ref = QueueRef("main", "bull:idle-0")
        one.roster.replace("main", [KnownQueue(ref, LibraryVersion(QueueLibrary.BULLMQ, 5), NOW, NOW)])
        looks: list[Any] = []
        for step in range(1, CALM):
            valkey.client.zadd("bull:idle-0:completed", {str(step): 1})
            looks.append(one.collector.look(NOW + step * STEP))
            assert looks[-1].queues[0].counts == JobCounts(0, 0, 0, 0, 0, step, 0, 0)
            assert not looks[-1].queues[0].error
        whole = len(reader(LibraryVersion(QueueLibrary.BULLMQ, 5)).sample_plan(ref)) + 1  # and the list of clients
        assert looks[-1].deployments[0].commands == whole, "it is not tried again and again"
    finally:
        valkey.do("ACL", "DELUSER", "spare")


def test_the_time_of_each_queues_numbers_goes_into_the_snapshot(watch_bench: Make, valkey: Store) -> None:
    one = watch_bench(valkey, PATIENT)
    known(one)
    for step in range(CALM + 4):
        one.collector.look(NOW + step * STEP)
    there = snapshot_store.decode(snapshot_store.encode(one.snapshot))
    assert [sample.read_at for sample in there.queues] == [sample.read_at for sample in one.snapshot.queues]
    assert len({sample.read_at for sample in there.queues}) == 2, "they take turns"
