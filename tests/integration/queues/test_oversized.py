"""A queue with a key that is far too long: it is skipped and named, and costs the others nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from recovery.backends import detection
from recovery.backends.base import Command
from recovery.backends.redis_common import reader as redis_reader
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample
from recovery.errors import OversizedAnswer, TimedOut
from recovery.scanners.collect.collector import Collector
from recovery.scanners.collect.deployment_sampler import DeploymentSampler
from recovery.scanners.collect.queue_read_plan import SKIPPED_MS
from recovery.scanners.discovery import search
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.orphan_watch.active_job_reader import ActiveJobReader
from recovery.scanners.orphan_watch.queue_state import QueueState
from recovery.stores.redis import connection
from recovery.stores.redis.client import SingleServerClient, StoreClient
from recovery.stores.redis.connection import RedisConnection
from recovery.stores.redis.pipeline import EncodedBatch
from recovery.stores.redis.reply_limits import OversizedReply, UnreadReply
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.cluster import Cluster
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.stuck import hostile_sizes
from tests.support.stuck.hostile_sizes import MIB, Planting, plant
from tests.support.stuck.watching import NOW, add, bullmq, config_of
from tests.support.waiting import until

BULLMQ = LibraryVersion(QueueLibrary.BULLMQ, 5)
EVIL, MAIL = QueueRef("main", "bull:evil"), QueueRef("main", "bull:mail")
SIZE = 6 * MIB  # more than a window of a list may have


@pytest.fixture
def wire(valkey: Store) -> Iterator[StoreClient]:
    with wired(valkey.url, timeout=5) as wire:
        yield wire


# -- one batch


def test_replies_around_one_that_is_too_long_come_as_ever(wire: StoreClient, valkey: Store) -> None:
    hostile_sizes.id_in_active(valkey.client, "bull:evil", SIZE)
    hostile_sizes.paused(valkey.client, "bull:evil", SIZE)
    valkey.client.set("fine", "1")
    asked = [("GET", "fine"), ("LRANGE", "bull:evil:active", 0, -1), ("HMGET", "bull:evil:meta", "paused", "x")]
    replies = wire.call([*asked, *[("GET", "fine")] * 2000, ("LINDEX", "bull:evil:active", 0), ("LLEN", "none")])
    kinds = {at: type(reply) for at, reply in enumerate(replies) if reply != b"1"}
    assert kinds == {1: OversizedReply, 2: OversizedReply, 2003: OversizedReply, 2004: int}
    assert wire.call([("GET", "fine")]) == [b"1"]


def test_a_script_behind_one_that_is_too_long_is_not_sent_twice(wire: StoreClient, valkey: Store) -> None:
    hostile_sizes.id_in_active(valkey.client, "bull:evil", SIZE)
    with pytest.raises(OversizedAnswer, match="LINDEX bull:evil:active is longer than 1 MiB"):
        wire.call([("LINDEX", "bull:evil:active", 0), ("EVAL", "return redis.call('INCR', KEYS[1])", 1, "counted")])
    assert valkey.client.get("counted") == b"1"


def test_a_batch_does_not_begin_anew_for_ever(
    wire: StoreClient, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile_sizes.id_in_active(valkey.client, "bull:evil", SIZE)
    valkey.client.set("fine", "1")
    monkeypatch.setattr(connection, "REOPENING", -1.0)
    replies = wire.call([("GET", "fine"), *[("LINDEX", "bull:evil:active", 0)] * 3, ("GET", "fine")])
    assert [type(reply) for reply in replies] == [bytes, OversizedReply, UnreadReply, UnreadReply, UnreadReply]
    assert wire.call([("GET", "fine")]) == [b"1"]


def test_connections_are_not_left_open(wire: StoreClient, valkey: Store) -> None:
    hostile_sizes.id_in_active(valkey.client, "bull:evil", SIZE)
    before = open_connections(valkey)  # the test's own, and those of a test before it in the same process
    for _ in range(5):
        wire.call([("LINDEX", "bull:evil:active", 0), ("PING",)])
    # The server notices a closed connection some time later.
    until(lambda: len(open_connections(valkey) - before) <= 2, what="closed connections are gone")


def open_connections(store: Store) -> set[str]:
    return {client["id"] for client in store.client.client_list()}


def test_in_a_cluster_the_other_nodes_answer(cluster: Cluster) -> None:
    with wired(cluster.url, timeout=5) as wire:
        wire.call([("EVAL", "return redis.call('SET', KEYS[1], string.rep('x', 6000000)) and 1", 1, "{a}:long")])
        replies = wire.call([("GET", "{a}:long"), ("EXISTS", "{b}:x"), ("EXISTS", "{a}:x"), ("EXISTS", "{c}:x")])
    assert [type(reply) for reply in replies] == [OversizedReply, int, int, int]


def test_nothing_that_is_too_long_is_held_in_memory(valkey: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    receive = RedisConnection._receive

    def measured(self: RedisConnection, incoming: object) -> int:
        held.append(incoming.received)  # type: ignore[attr-defined]
        return receive(self, incoming)  # type: ignore[arg-type]

    monkeypatch.setattr(RedisConnection, "_receive", measured)
    hostile_sizes.id_in_active(valkey.client, "bull:evil", 40 * MIB)
    with wired(valkey.url, timeout=5) as wire:
        wire.call([("LRANGE", "bull:evil:active", 0, -1)])
    assert max(held) < 2 * MIB


# -- the snapshot


class Bench:
    def __init__(self, registry: ConnectionRegistry) -> None:
        self.registry = registry
        self.roster = KnownQueues()
        self.collector = Collector(registry, self.roster)
        self.discoverer = Discoverer(registry, self.roster)

    def know(self, *refs: QueueRef) -> None:
        self.roster.replace("main", [KnownQueue(ref, BULLMQ, NOW, NOW) for ref in refs])

    def samples(self, now: int = NOW) -> dict[str, QueueSample]:
        snapshot = self.collector.look(now)
        deployment = snapshot.deployment("main")
        assert deployment is not None
        assert deployment.error == ""
        return {sample.ref.base: sample for sample in snapshot.queues}

    def flavours(self) -> dict[str, LibraryVersion]:
        return {known.ref.base: known.flavour for known in self.roster.listing("main").queues}


@pytest.fixture
def bench(tmp_path: Path, valkey: Store, state_store: Store) -> Iterator[Bench]:
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": valkey}, timeout=5))
    one = Bench(registry)
    yield one
    one.collector.close()
    registry.close()


@pytest.mark.parametrize("planting", hostile_sizes.SNAPSHOT, ids=lambda planting: planting.__name__)
def test_its_queue_is_skipped_and_named_and_the_others_are_counted(
    bench: Bench, valkey: Store, planting: Planting
) -> None:
    for ref in (EVIL, MAIL):
        bullmq(valkey.client, ref.base)
    add(valkey.client, MAIL.base, "1", "2")
    planting(valkey.client, EVIL.base, SIZE)
    bench.know(EVIL, MAIL)
    samples = bench.samples()
    assert (samples[MAIL.base].counts.waiting, samples[MAIL.base].error) == (2, "")
    assert samples[EVIL.base].error.startswith("skipped: the answer to ")
    assert "bull:evil" in samples[EVIL.base].error


def test_what_is_too_long_is_asked_again_after_a_minute_only(bench: Bench, valkey: Store) -> None:
    """The server copies all of it for each question."""
    bullmq(valkey.client, EVIL.base)
    hostile_sizes.id_in_active(valkey.client, EVIL.base, SIZE)
    bench.know(EVIL)
    bench.samples()
    valkey.do("CONFIG", "RESETSTAT")
    for tick in range(1, 30):
        assert bench.samples(NOW + tick * 2000)[EVIL.base].error.startswith("skipped: ")
    assert "cmdstat_lindex" not in valkey.client.info("commandstats")
    valkey.client.delete(f"{EVIL.base}:active")
    assert bench.samples(NOW + SKIPPED_MS + 2000)[EVIL.base].error == ""


def test_a_queue_that_was_well_keeps_its_last_numbers(bench: Bench, valkey: Store) -> None:
    bullmq(valkey.client, EVIL.base)
    add(valkey.client, EVIL.base, "1")
    bench.know(EVIL)
    bench.samples()
    hostile_sizes.paused(valkey.client, EVIL.base, SIZE)
    sample = bench.samples(NOW + 2000)[EVIL.base]
    assert (sample.counts.waiting, sample.is_old, sample.error[:8]) == (1, True, "skipped:")


def test_a_queue_that_makes_the_server_too_slow_is_found_and_skipped(
    bench: Bench, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a gigabyte may take longer to be copied than a look waits."""
    for ref in (EVIL, MAIL):
        bullmq(valkey.client, ref.base)
    add(valkey.client, MAIL.base, "1")
    bench.know(EVIL, MAIL)
    parts = SingleServerClient.parts

    def slow(self: SingleServerClient, batch: EncodedBatch) -> Iterator[list[object]]:
        if any(b"bull:evil:active" in command for command in batch.commands):
            raise TimedOut(self.target, "no answer within 0.5 s")
        return parts(self, batch)

    monkeypatch.setattr(SingleServerClient, "parts", slow)
    for tick in (0, 2_000):
        found = bench.collector.look(NOW + tick).deployment("main")
        assert found is not None
        assert found.error == "no answer within 0.5 s"
    for tick in (4_000, 6_000):
        samples = bench.samples(NOW + tick)
        assert (samples[MAIL.base].counts.waiting, samples[MAIL.base].error) == (1, "")
        assert samples[EVIL.base].error.startswith("skipped: no answer within 0.5 s")
    monkeypatch.setattr(SingleServerClient, "parts", parts)
    assert bench.samples(NOW + SKIPPED_MS + 6_000)[EVIL.base].error == ""


def test_no_queue_is_skipped_for_a_server_that_comes_back_while_it_is_asked(
    tmp_path: Path, valkey: Store, state_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not answer the queue, and then it did answer whether it is there."""
    bullmq(valkey.client, MAIL.base)
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": valkey}, timeout=0.5))
    roster = KnownQueues()
    roster.replace("main", [KnownQueue(MAIL, BULLMQ, NOW, NOW)])
    (deployment,) = registry.config.deployments
    watch = DeploymentSampler(deployment, lambda: registry.wire("main"), roster, lambda refs, now: {})
    call = SingleServerClient.call

    def back(self: SingleServerClient, commands: Sequence[Command]) -> list[Any]:
        if list(commands) == [(b"PING",)]:
            valkey.resume()
        return call(self, commands)

    monkeypatch.setattr(SingleServerClient, "call", back)
    valkey.pause()
    looks = [watch.look(NOW + tick) for tick in (0, 2_000, 4_000)]
    assert [look.deployment.error for look in looks] == ["no answer within 0.5 s", "no answer within 0.5 s", ""]
    assert looks[-1].queues[0].error == ""
    registry.close()


# -- discovery


@pytest.mark.parametrize("planting", [hostile_sizes.version, hostile_sizes.id_in_active, hostile_sizes.time_of_head])
def test_it_is_listed_as_one_that_cannot_be_read(bench: Bench, valkey: Store, planting: Planting) -> None:
    valkey.client.set("bull:evil:id", 1)
    planting(valkey.client, EVIL.base, SIZE)
    bullmq(valkey.client, MAIL.base)
    bench.discoverer.run(NOW)
    found = bench.flavours()
    assert found[MAIL.base].library is QueueLibrary.BULLMQ
    if planting is not hostile_sizes.time_of_head:  # that one is not asked here
        assert "is longer than" in found[EVIL.base].read_only


def test_one_that_was_not_asked_is_neither_listed_nor_forgotten() -> None:
    replies = [UnreadReply("not asked")] * len(detection.detect_plan("bull:x"))
    assert detection.detect(replies, ()) is detection.UNREAD


def test_keys_with_endless_names_hide_no_queue(bench: Bench, valkey: Store) -> None:
    for number in range(30):
        bullmq(valkey.client, f"bull:q{number}")
    plant(valkey.client, 1, "SET", "bull:evil:" + "x" * (5 * MIB) + ":id", "1")
    bench.discoverer.run(NOW)
    assert sorted(bench.flavours()) == sorted(f"bull:q{number}" for number in range(30))
    assert bench.roster.listing("main").trouble == ""


def test_planted_keys_do_not_crowd_out_new_queues(bench: Bench, valkey: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LIMIT", 20)
    for number in range(100):
        valkey.client.set(f"bull:evil:{number}:id", 1)
    bench.discoverer.run(NOW)
    assert len(bench.flavours()) == 20
    for number in range(5):
        bullmq(valkey.client, f"bull:new{number}")
    bench.discoverer.run(NOW + 600_000)
    assert {f"bull:new{number}" for number in range(5)} < set(bench.flavours())
    assert len(bench.flavours()) == 20


def test_a_queue_with_a_worker_is_never_left_out_for_others(
    bench: Bench, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted names may have a namespace each; a connection for each of them is another matter."""
    monkeypatch.setattr(search, "LIMIT", 10)
    mine = [f"app:eu:{number}" for number in range(8)]
    for base in mine:
        bullmq(valkey.client, base)
    bench.discoverer.run(NOW)
    for number in range(20):
        bullmq(valkey.client, f"bull:evil{number}")
    bullmq(valkey.client, "app:eu:late")
    bench.roster.hint("main", [*mine, "app:eu:late"])
    bench.discoverer.run(NOW + 600_000)
    assert {*mine, "app:eu:late"} < set(bench.flavours())
    assert len(bench.flavours()) == 10


# -- active jobs


def test_the_orphan_watch_skips_its_list_and_looks_at_the_others(wire: StoreClient, valkey: Store) -> None:
    for ref in (EVIL, MAIL):
        valkey.client.lpush(f"{ref.base}:active", "1")
    hostile_sizes.id_between_others(valkey.client, EVIL.base, SIZE)
    posts = {ref: QueueState(ref, QueueSample(ref, BULLMQ)) for ref in (EVIL, MAIL)}
    ActiveJobReader(wire, posts).find(NOW)
    assert posts[MAIL].jobs.ids == [b"1"]
    assert "is longer than 4 MiB" in posts[EVIL].found_error
    valkey.do("CONFIG", "RESETSTAT")
    for post in posts.values():
        post.begin(post.sample)
    ActiveJobReader(wire, posts).find(NOW + 5000)
    assert "is longer than 4 MiB" in posts[EVIL].found_error
    assert valkey.client.info("commandstats")["cmdstat_lrange"]["calls"] == 1, "of the other queue"


def test_long_ids_do_not_fill_the_memory_of_the_orphan_watch(
    wire: StoreClient, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "for i = 1, 6000 do redis.call('LPUSH', KEYS[1], i .. string.rep('x', 2000)) end"
    valkey.client.eval(script, 1, f"{EVIL.base}:active")
    post = QueueState(EVIL, QueueSample(EVIL, BULLMQ))
    ActiveJobReader(wire, {EVIL: post}).find(NOW)
    assert "take more than 8 MiB" in post.found_error
    assert len(post.jobs) == 0


def test_the_orphan_watch_skips_a_queue_whose_job_holds_an_endless_number(wire: StoreClient, valkey: Store) -> None:
    for ref in (EVIL, MAIL):
        valkey.client.hset(f"{ref.base}:1", mapping={"name": "mail", "data": "{}", "timestamp": NOW})
        valkey.client.lpush(f"{ref.base}:active", "1")
    plant(valkey.client, SIZE, "HSET", f"{EVIL.base}:1", "processedOn", "…")
    posts = {ref: QueueState(ref, QueueSample(ref, BULLMQ)) for ref in (EVIL, MAIL)}
    job_reader = ActiveJobReader(wire, posts)
    job_reader.find(NOW)
    job_reader.inquire(NOW)
    assert (posts[MAIL].found_error, list(posts[MAIL].jobs.there)) == ("", [1])
    assert "the answer to HMGET bull:evil:1 is longer than 1 MiB" in posts[EVIL].found_error
    for post in posts.values():
        post.begin(post.sample)
    ActiveJobReader(wire, posts).find(NOW + 5000)
    assert "HMGET bull:evil:1" in posts[EVIL].found_error


# -- one queue


OURS = reader(BULLMQ)


@pytest.mark.parametrize("planting", [hostile_sizes.id_in_active, hostile_sizes.id_in_failed])
def test_a_page_of_it_says_which_key_it_is(wire: StoreClient, valkey: Store, planting: Planting) -> None:
    planting(valkey.client, EVIL.base, SIZE)
    state = JobState.ACTIVE if planting is hostile_sizes.id_in_active else JobState.FAILED
    with pytest.raises(OversizedAnswer, match=f"bull:evil:{state}"):
        OURS.page(wire, EVIL, state)


def test_an_id_that_no_address_can_hold_is_not_shown(wire: StoreClient, valkey: Store) -> None:
    valkey.client.lpush(f"{EVIL.base}:active", "x" * 20_000)
    with pytest.raises(OversizedAnswer, match="bull:evil:active holds an id of 20,000 bytes"):
        OURS.page(wire, EVIL, JobState.ACTIVE)


@pytest.mark.parametrize("by_script", [False, True])
def test_a_row_is_read_without_the_number_that_is_too_long(wire: StoreClient, valkey: Store, by_script: bool) -> None:
    valkey.client.hset(f"{EVIL.base}:1", mapping={"name": "mail", "data": "{}", "processedOn": NOW})
    valkey.client.zadd(f"{EVIL.base}:failed", {"1": NOW})
    plant(valkey.client, SIZE, "HSET", f"{EVIL.base}:1", "timestamp", "…")
    (row,) = OURS.rows(wire, EVIL, [("1", JobState.FAILED)], by_script=by_script)
    assert row is not None
    assert (row.name, row.added_at) == ("mail", None)


def test_log_lines_around_one_that_is_too_long_are_shown(wire: StoreClient, valkey: Store) -> None:
    key = f"{EVIL.base}:1:logs"
    valkey.client.rpush(key, "first")
    plant(valkey.client, SIZE, "RPUSH", key, "…")
    valkey.client.rpush(key, *["last"] * 20)
    page = OURS.logs(wire, EVIL, "1", size=50)
    assert page.lines[0] == "first"
    assert "is longer than 1 MiB" in page.lines[1]
    assert page.lines[2:] == ("last",) * (redis_reader._SINGLE - 2)
    assert page.total == 22
