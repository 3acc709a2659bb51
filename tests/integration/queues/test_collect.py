"""The collector against real servers: true numbers, and what a sick deployment costs."""

from __future__ import annotations

import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recovery.backends.bullmq.reader import BullMQReader
from recovery.config import Config
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, Snapshot
from recovery.reads.queues import snapshot_store
from recovery.scanners.collect.collector import SLOW_MS, Collector
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.stores.registry import ConnectionRegistry
from tests.support.patience import patience
from tests.support.stores.cluster import Cluster
from tests.support.stores.stores import Store
from tests.support.stuck.watching import NOW, add, bullmq, config_of, finish
from tests.support.waiting import until

BULLMQ = LibraryVersion(QueueLibrary.BULLMQ, 5)
JOBS = QueueRef("main", "bull:jobs")


class Bench:
    """A collector with its roster, closed at the end."""

    def __init__(self, config: Config) -> None:
        self.roster = KnownQueues()
        self.registry = ConnectionRegistry(config)
        self.collector = Collector(self.registry, self.roster)

    def know(self, *refs: QueueRef) -> None:
        for name in {ref.deployment for ref in refs}:
            self.roster.replace(name, [KnownQueue(ref, BULLMQ, NOW, NOW) for ref in refs if ref.deployment == name])

    def look(self, now: int = NOW) -> Snapshot:
        return self.collector.look(now)

    def close(self) -> None:
        self.collector.close()
        self.registry.close()


@pytest.fixture
def bench(tmp_path: Path, state_store: Store) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**deployments: Store | str) -> Bench:
        made.append(Bench(config_of(tmp_path, state_store, deployments)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_snapshot_holds_true_counts(bench: Callable[..., Bench], store: Store) -> None:
    bullmq(store.client, "bull:jobs")
    add(store.client, "bull:jobs", "1", "2", "3", timestamp=NOW - 60_000)
    finish(store.client, "bull:jobs", NOW - 1000, NOW - 2000)
    finish(store.client, "bull:jobs", NOW - 3000, outcome="failed")
    one = bench(main=store)
    one.know(JOBS)
    sample = one.look().queue(JOBS)
    assert sample is not None
    assert (sample.counts.waiting, sample.counts.active, sample.counts.completed, sample.counts.failed) == (3, 0, 2, 1)
    assert sample.oldest_waiting_at == NOW - 60_000
    assert sample.added == 6
    assert sample.error == ""


def test_a_published_snapshot_can_be_fetched(bench: Callable[..., Bench], valkey: Store, state_store: Store) -> None:
    one = bench(main=valkey)
    one.know(JOBS)
    published = one.collector.run(NOW)
    assert snapshot_store.fetch(state_store.client) == published


def test_numbers_of_snapshots_only_grow(bench: Callable[..., Bench], valkey: Store) -> None:
    one = bench(main=valkey)
    numbers = [one.look(now).number for now in (NOW, NOW, NOW - 50_000, NOW + 60_000)]
    assert numbers == sorted(set(numbers))


def test_a_deployment_says_what_it_is_and_what_the_look_cost(bench: Callable[..., Bench], store: Store) -> None:
    one = bench(main=store)
    one.know(JOBS)
    deployment = one.look().deployments[0]
    assert deployment.server.startswith(("Valkey 9", "Redis 7"))
    assert len(deployment.run_id) == 40
    assert deployment.commands > 10
    assert deployment.took_ms > 0
    assert deployment.warnings == ()


def test_an_evicting_server_is_warned_of(bench: Callable[..., Bench], valkey: Store) -> None:
    valkey.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        deployment = bench(main=valkey).look().deployments[0]
    finally:
        valkey.client.config_set("maxmemory-policy", "noeviction")
    assert "allkeys-lru" in deployment.warnings[0]


def test_a_key_of_the_wrong_type_is_unknown_and_never_zero(bench: Callable[..., Bench], store: Store) -> None:
    bullmq(store.client, "bull:jobs")
    store.client.set("bull:jobs:wait", "not a list")
    add(store.client, "bull:other", "1")
    one = bench(main=store)
    one.know(JOBS, QueueRef("main", "bull:other"))
    snapshot = one.look()
    broken, other = snapshot.queue(JOBS), snapshot.queue(QueueRef("main", "bull:other"))
    assert broken is not None
    assert other is not None
    assert broken.counts.waiting is None
    assert broken.error
    assert other.counts.waiting == 1
    assert other.error == ""


def test_what_the_acl_refuses_is_unknown(bench: Callable[..., Bench], serve: Callable[..., Store]) -> None:
    server = serve()
    add(server.client, "bull:jobs", "1")
    server.do("ACL", "SETUSER", "observer", "on", ">pw", "~bull:jobs:wait", "+@read", "+info", "+ping", "+select")
    one = bench(main=f"redis://observer:pw@127.0.0.1:{server.port}/0")
    one.know(JOBS)
    snapshot = one.look()
    sample = snapshot.queue(JOBS)
    assert sample is not None
    assert sample.counts.failed is None
    assert sample.error
    assert sample.workers is None
    assert not snapshot.deployments[0].workers_known


def test_workers_are_counted_by_their_connections(bench: Callable[..., Bench], store: Store) -> None:
    bullmq(store.client, "bull:jobs")
    one = bench(main=store)
    one.know(JOBS, QueueRef("main", "bull:idle"))
    worker = store.connect(client_name=f"bull:{b64encode(b'jobs').decode()}:w:mail-3")
    worker.ping()
    snapshot = one.look()
    worker.close()
    assert [sample.workers for sample in snapshot.queues] == [0, 1]
    assert [hand.name for hand in snapshot.workers] == ["mail-3"]


def test_the_oldest_is_asked_again_only_when_another_job_is_the_oldest(
    bench: Callable[..., Bench], valkey: Store
) -> None:
    add(valkey.client, "bull:jobs", "1", timestamp=NOW - 9000)
    add(valkey.client, "bull:jobs", "2", timestamp=NOW - 5000)
    one = bench(main=valkey)
    one.know(JOBS)
    first, second = one.look(NOW), one.look(NOW + 2000)
    valkey.client.rpop("bull:jobs:wait")
    third = one.look(NOW + 4000)
    assert [snap.queues[0].oldest_waiting_at for snap in (first, second, third)] == [NOW - 9000, NOW - 9000, NOW - 5000]
    costs = [snap.deployments[0].commands for snap in (first, second, third)]
    assert costs[2] == costs[1] + 1


def test_the_workers_own_metrics_make_the_sparkline(bench: Callable[..., Bench], valkey: Store) -> None:
    valkey.client.hset("bull:jobs:metrics:completed", mapping={"count": 9, "prevTS": NOW - 60_000, "prevCount": 6})
    valkey.client.rpush("bull:jobs:metrics:completed:data", 4, 2)
    one = bench(main=valkey)
    one.know(JOBS)
    rates = one.look().queues[0].rates
    assert rates.source == "library"
    assert rates.completed == (3, 4, 2)
    assert rates.failed == (0, 0, 0)


def test_a_queue_without_metrics_has_unknown_minutes(bench: Callable[..., Bench], valkey: Store) -> None:
    add(valkey.client, "bull:jobs", "1")
    one = bench(main=valkey)
    one.know(JOBS)
    assert one.look().queues[0].rates == ((), (), "", ())


def test_a_dead_deployment_keeps_its_last_numbers_and_says_why(
    bench: Callable[..., Bench], valkey: Store, serve: Callable[..., Store]
) -> None:
    mortal = serve()
    add(mortal.client, "bull:jobs", "1", "2")
    one = bench(main=valkey, frail=mortal)
    frail = QueueRef("frail", "bull:jobs")
    one.know(JOBS, frail)
    one.look()
    mortal.stop()
    snapshot = one.look(NOW + 2000)
    sample, dead, alive = snapshot.queue(frail), snapshot.deployment("frail"), snapshot.deployment("main")
    assert sample is not None
    assert dead is not None
    assert alive is not None
    assert sample.counts.waiting == 2
    assert dead.error
    assert dead.advice
    assert dead.taken_at == NOW
    assert alive.error == ""
    assert alive.taken_at == NOW + 2000


def test_a_dead_deployment_recovers_by_itself(bench: Callable[..., Bench], serve: Callable[..., Store]) -> None:
    mortal = serve()
    one = bench(main=mortal)
    one.know(JOBS)
    one.look()
    mortal.stop()
    until(lambda: one.look().deployments[0].error, what="the error")
    mortal.start()
    until(lambda: not one.look().deployments[0].error, seconds=5, what="the recovery")


def test_queues_of_a_deployment_that_never_answered_are_unknown(bench: Callable[..., Bench]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        one = bench(main=f"redis://127.0.0.1:{closed.getsockname()[1]}/0")
        one.know(JOBS)
        snapshot = one.look()
    assert snapshot.deployments[0].error
    assert snapshot.deployments[0].taken_at == 0
    assert [(sample.ref, sample.counts.waiting) for sample in snapshot.queues] == [(JOBS, None)]
    assert snapshot.queues[0].error


def test_a_hung_deployment_delays_nobody(
    bench: Callable[..., Bench], valkey: Store, serve: Callable[..., Store]
) -> None:
    hanging = serve()
    add(valkey.client, "bull:jobs", "1")
    one = bench(main=valkey, frail=hanging)
    one.know(JOBS, QueueRef("frail", "bull:jobs"))
    one.look()
    hanging.pause()
    try:
        one.look()
        took = [_timed(partial(one.look, NOW + tick)) for tick in range(1, 4)]
        snapshot = one.look(NOW + SLOW_MS + 9)
    finally:
        hanging.resume()
    assert max(took) < patience(0.5)
    dead, alive = snapshot.deployment("frail"), snapshot.deployment("main")
    assert dead is not None
    assert alive is not None
    assert dead.error
    assert alive.taken_at == NOW + SLOW_MS + 9
    until(lambda: not one.look().deployments[1].error, seconds=5, what="the recovery")


def test_one_that_stalls_for_a_moment_is_called_slow_and_not_down(
    bench: Callable[..., Bench], serve: Callable[..., Store]
) -> None:
    stalling = serve()
    add(stalling.client, "bull:jobs", "1", "2")
    one = bench(main=stalling)
    one.know(JOBS)
    one.look()
    stalling.pause()
    try:
        snapshot = one.look(NOW + 2_000)
        again = one.look(NOW + 2_001)  # barely waited for
    finally:
        stalling.resume()
    (deployment,), (sample,) = snapshot.deployments, snapshot.queues
    assert "(no answer for 0.1 s)" in again.deployments[0].warnings[-1]
    assert deployment.error == ""
    assert deployment.taken_at == NOW
    assert deployment.warnings[-1].startswith("It answers slowly (no answer ")
    assert sample.counts.waiting == 2
    until(lambda: one.look(NOW + 4_000).deployments[0].taken_at == NOW + 4_000, what="the next answer")
    assert not one.look(NOW + 4_001).deployments[0].warnings


def _timed(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def test_a_new_queue_is_in_the_next_snapshot(bench: Callable[..., Bench], valkey: Store) -> None:
    one = bench(main=valkey)
    one.know(JOBS)
    before = one.look()
    one.know(JOBS, QueueRef("main", "bull:new"))
    assert [len(before.queues), len(one.look().queues)] == [1, 2]


def test_without_a_roster_the_remembered_queues_are_read(tmp_path: Path, state_store: Store, valkey: Store) -> None:
    roster = KnownQueues()
    roster.replace("main", [KnownQueue(JOBS, BULLMQ, NOW, NOW)])
    roster.save(state_store.client, "main")
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": valkey}))
    collector = Collector(registry)
    assert [sample.ref for sample in collector.look(NOW).queues] == [JOBS]
    collector.close()
    registry.close()


def test_all_masters_of_a_cluster_are_read_together(bench: Callable[..., Bench], cluster: Cluster) -> None:
    refs = [QueueRef("main", f"{{{name}}}:jobs") for name in "abc"]
    for ref in refs:
        cluster.client.rpush(f"{ref.base}:wait", "1", "2")
    names = [f"{{{name}}}:{b64encode(b'jobs').decode()}" for name in "abc"]
    workers = [node.connect(client_name=name) for node, name in zip(cluster.nodes, names, strict=True)]
    for worker in workers:
        worker.ping()
    one = bench(main=cluster.url)
    one.know(*refs)
    snapshot = one.look()
    for worker in workers:
        worker.close()
    assert [(sample.counts.waiting, sample.workers) for sample in snapshot.queues] == [(2, 1)] * 3
    assert snapshot.deployments[0].server


def test_a_fault_of_ours_costs_one_deployment_and_one_line(
    bench: Callable[..., Bench], valkey: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(valkey.client, "bull:jobs", "1")
    one = bench(main=valkey, frail=f"redis://127.0.0.1:{valkey.port}/1")
    one.know(JOBS, QueueRef("frail", "bull:jobs"))
    read = BullMQReader.sample_plan

    def plan(self: BullMQReader, ref: QueueRef) -> Any:
        if ref.deployment == "frail":
            raise ZeroDivisionError
        return read(self, ref)

    monkeypatch.setattr(BullMQReader, "sample_plan", plan)
    for _ in range(3):
        snapshot = one.look()
    assert [bool(deployment.error) for deployment in snapshot.deployments] == [False, True]
    assert [sample.counts.waiting for sample in snapshot.queues] == [1, None]
    assert len(caplog.records) == 1


def test_reading_writes_nothing_into_the_queues_store(bench: Callable[..., Bench], store: Store) -> None:
    bullmq(store.client, "bull:jobs")
    add(store.client, "bull:jobs", "1")
    before = sorted(store.client.keys())
    one = bench(main=store)
    one.know(JOBS)
    one.look()
    assert sorted(store.client.keys()) == before
