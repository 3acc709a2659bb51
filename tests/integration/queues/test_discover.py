"""Discovery against real servers: what is found, what is left alone, what is remembered."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import QueueLibrary
from recovery.scanners.discovery import search
from recovery.scanners.discovery.keyspace_scan import KeyspaceScan
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.stores.redis.client import Command, StoreClient
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.cluster import Cluster
from tests.support.stores.stores import Store
from tests.support.stuck.watching import NOW, add, bullmq, config_of

HOUR = 3_600_000


class Bench:
    def __init__(self, registry: ConnectionRegistry) -> None:
        self.registry = registry
        self.roster = KnownQueues()
        self.discoverer = Discoverer(registry, self.roster)

    def run(self, now: int = NOW) -> None:
        self.discoverer.run(now)

    def bases(self, deployment: str = "main") -> list[str]:
        return [queue.ref.base for queue in self.roster.listing(deployment).queues]


@pytest.fixture
def bench(tmp_path: Path, state_store: Store) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(store: Store | str, **settings: object) -> Bench:
        made.append(Bench(ConnectionRegistry(config_of(tmp_path, state_store, {"main": store}, **settings))))
        return made[-1]

    yield make
    for one in made:
        one.registry.close()


def test_queues_are_found_by_their_keys(bench: Callable[..., Bench], store: Store) -> None:
    bullmq(store.client, "bull:mails")
    add(store.client, "bull:jobs", "1")
    add(store.client, "my:own:prefix:queue", "1")
    one = bench(store)
    one.run()
    assert one.bases() == ["bull:jobs", "bull:mails", "my:own:prefix:queue"]


def test_the_flavour_is_kept_with_its_evidence(bench: Callable[..., Bench], store: Store) -> None:
    bullmq(store.client, "bull:mails")
    one = bench(store)
    one.run()
    flavour = one.roster.listing("main").queues[0].flavour
    assert flavour.library is QueueLibrary.BULLMQ
    assert any("5.81.5" in line for line in flavour.evidence)


def test_a_large_keyspace_is_gone_through(bench: Callable[..., Bench], valkey: Store) -> None:
    pipeline = valkey.client.pipeline(transaction=False)
    for number in range(20_000):
        pipeline.set(f"session:{number}", "x")
    for number in range(300):
        pipeline.hset(f"bull:q{number}:meta", "version", "bullmq:5.81.5")
    pipeline.execute()
    one = bench(valkey)
    one.run()
    assert len(one.bases()) == 300


def test_keys_that_only_look_like_a_queue_are_none(bench: Callable[..., Bench], store: Store) -> None:
    store.client.set("user:7:id", "7")
    store.client.set("session:id", "no number")
    store.client.hset("page:meta", "title", "hello")
    store.client.lpush("list:id", "1")
    store.client.hset("bull::relay:{ns}:meta", "version", "bullmq:6.4.0")
    one = bench(store)
    one.run()
    assert one.bases() == []


def test_the_queue_of_a_fire_drill_is_nobodys(bench: Callable[..., Bench], valkey: Store) -> None:
    """Neither by its keys, nor by its workers' names, while a queue whose name only begins like it is one."""
    bullmq(valkey.client, "unstall-drill:0a1b2c")
    add(valkey.client, "unstall-drill:0a1b2c", "1")
    bullmq(valkey.client, "unstall-drills:mine")
    name = b64encode(b"0a1b2c").decode()
    worker = valkey.connect(client_name=f"unstall-drill:{name}:w:work-1")
    worker.ping()
    one = bench(valkey)
    one.run()
    worker.close()
    assert one.bases() == ["unstall-drills:mine"]


def test_glob_characters_in_a_prefix_are_taken_literally(bench: Callable[..., Bench], store: Store) -> None:
    bullmq(store.client, "{a}[b]*?:jobs")
    bullmq(store.client, "{a}bxy:jobs")
    one = bench(store, prefixes=["{a}[b]*?"])
    one.run()
    assert one.bases() == ["{a}[b]*?:jobs"]


def test_several_prefixes_limit_what_is_found(bench: Callable[..., Bench], store: Store) -> None:
    for base in ("one:jobs", "two:jobs", "three:jobs", "one-more:jobs"):
        bullmq(store.client, base)
    one = bench(store, prefixes=["one", "two"])
    one.run()
    assert one.bases() == ["one:jobs", "two:jobs"]


def test_a_name_of_any_bytes_is_found_and_remembered(
    bench: Callable[..., Bench], valkey: Store, state_store: Store
) -> None:
    valkey.client.hset(b"bull:\xff\xfe \r\n<b>:meta", "version", "bullmq:5.81.5")
    one = bench(valkey)
    one.run()
    again = KnownQueues()
    again.load(state_store.client, "main")
    assert one.bases() == ["bull:\udcff\udcfe \r\n<b>"]
    assert again.listing("main").queues == one.roster.listing("main").queues


def test_a_configured_queue_is_listed_before_it_has_keys(bench: Callable[..., Bench], valkey: Store) -> None:
    one = bench(valkey, queues=["jobs", "other:prefix:mails"])
    one.run()
    queues = one.roster.listing("main").queues
    assert [queue.ref.base for queue in queues] == ["bull:jobs", "other:prefix:mails"]
    assert queues[0].flavour.library is QueueLibrary.UNKNOWN
    assert queues[0].flavour.read_only


def test_a_connected_worker_tells_of_its_queue(bench: Callable[..., Bench], store: Store) -> None:
    one = bench(store)
    one.run()
    worker = store.connect(client_name=f"bull:{b64encode(b'jobs').decode()}")
    worker.ping()
    one.roster.hint("main", {"bull:jobs"})
    one.run(NOW + 1)
    worker.close()
    assert one.bases() == ["bull:jobs"]


def test_a_queue_that_appears_soon_after_the_start_is_found_soon(bench: Callable[..., Bench], valkey: Store) -> None:
    one = bench(valkey)
    one.run()
    bullmq(valkey.client, "bull:late")
    one.run(NOW + search.SOON_MS)
    assert one.bases() == ["bull:late"]


def test_nothing_is_asked_while_nothing_is_due(bench: Callable[..., Bench], valkey: Store) -> None:
    bullmq(valkey.client, "bull:jobs")
    one = bench(valkey)
    one.run()
    before = valkey.client.info("stats")["total_commands_processed"]
    one.run(NOW + 2000)
    assert valkey.client.info("stats")["total_commands_processed"] == before + 1  # our own INFO


def test_a_queue_that_is_gone_is_kept_for_an_hour(bench: Callable[..., Bench], valkey: Store) -> None:
    bullmq(valkey.client, "bull:jobs")
    one = bench(valkey)
    one.run()
    valkey.flush()
    one.run(NOW + HOUR)
    assert one.bases() == ["bull:jobs"]
    one.run(NOW + 2 * HOUR)
    assert one.bases() == []


def test_a_gone_queue_is_forgotten_in_the_state_store(
    bench: Callable[..., Bench], valkey: Store, state_store: Store
) -> None:
    bullmq(valkey.client, "bull:jobs")
    one = bench(valkey)
    one.run()
    valkey.flush()
    one.run(NOW + HOUR)
    assert state_store.client.hlen("unstall:found:main") == 1
    one.run(NOW + 2 * HOUR)
    assert state_store.client.hlen("unstall:found:main") == 0


def test_what_was_found_is_known_at_the_next_start(bench: Callable[..., Bench], valkey: Store) -> None:
    bullmq(valkey.client, "bull:jobs")
    bench(valkey).run()
    port = valkey.port
    valkey.stop()
    second = bench(f"redis://127.0.0.1:{port}/0")
    second.run(NOW + 5000)
    assert second.bases() == ["bull:jobs"]


def test_a_row_of_another_version_is_found_anew(bench: Callable[..., Bench], valkey: Store, state_store: Store) -> None:
    state_store.client.hset("unstall:found:main", mapping={"bull:old": "{}", "bull:jobs": json.dumps([1, 2])})
    bullmq(valkey.client, "bull:jobs")
    one = bench(valkey)
    one.run()
    assert one.bases() == ["bull:jobs"]


def test_a_new_flavour_makes_a_new_listing(bench: Callable[..., Bench], valkey: Store) -> None:
    bullmq(valkey.client, "bull:jobs", version="5.81.5")
    one = bench(valkey)
    one.run()
    first = one.roster.listing("main").version
    one.run(NOW + 60_000)
    assert one.roster.listing("main").version == first
    bullmq(valkey.client, "bull:jobs", version="5.82.0")
    one.run(NOW + 120_000)
    assert one.roster.listing("main").version > first
    assert one.roster.listing("main").queues[0].flavour.version == "5.82.0"


def test_more_queues_than_fit_are_counted(
    bench: Callable[..., Bench], valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "LIMIT", 10)
    for number in range(25):
        bullmq(valkey.client, f"bull:q{number}")
    one = bench(valkey)
    one.run()
    listing = one.roster.listing("main")
    assert (len(listing.queues), listing.left_out) == (10, 15)


def test_a_dead_deployment_is_searched_when_it_is_back(
    bench: Callable[..., Bench], serve: Callable[..., Store]
) -> None:
    mortal = serve()
    mortal.stop()
    one = bench(mortal)
    one.run()
    mortal.start()
    bullmq(mortal.client, "bull:jobs")
    one.run(NOW + 2000)
    assert one.bases() == ["bull:jobs"]


class _OldServer:
    """A Redis before 6: SCAN knows no TYPE."""

    def __init__(self, wire: StoreClient) -> None:
        self._wire = wire

    def nodes(self) -> tuple[str, ...]:
        return self._wire.nodes()

    def at(self, node: str, commands: Sequence[Command]) -> list[Any]:
        if any(b"TYPE" in command for command in commands):
            return [redis.ResponseError("syntax error")]
        return self._wire.at(node, commands)


def test_a_server_that_knows_no_type_filter_is_scanned_without(bench: Callable[..., Bench], valkey: Store) -> None:
    bullmq(valkey.client, "bull:jobs")
    old = _OldServer(bench(valkey).registry.wire("main"))
    found = KeyspaceScan()
    found.begin()
    while found.is_under_way:
        found.slice(old)  # type: ignore[arg-type] # it needs no more than this of a wire
    assert found.found == {"bull:jobs"}


def test_an_acl_without_scan_leaves_the_configured_queues(
    bench: Callable[..., Bench], serve: Callable[..., Store]
) -> None:
    server = serve()
    bullmq(server.client, "bull:jobs")
    server.do("ACL", "SETUSER", "observer", "on", ">pw", "~*", "+@read", "-scan", "+ping", "+select")
    one = bench(f"redis://observer:pw@127.0.0.1:{server.port}/0", queues=["jobs"])
    one.run()
    assert one.bases() == ["bull:jobs"]
    assert "scan" in one.roster.listing("main").trouble.lower()


@pytest.mark.parametrize("prefix", ["{bull}", "{other}", "{third}"])
def test_queues_on_every_master_of_a_cluster_are_found(
    tmp_path: Path, state_store: Store, cluster: Cluster, prefix: str
) -> None:
    cluster.client.hset(f"{prefix}:jobs:meta", "version", "bullmq:5.81.5")
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": cluster.url}))
    one = Bench(registry)
    one.run()
    registry.close()
    assert one.bases() == [f"{prefix}:jobs"]


def test_a_ref_knows_its_deployment(bench: Callable[..., Bench], valkey: Store) -> None:
    bullmq(valkey.client, "bull:jobs")
    one = bench(valkey)
    one.run()
    assert one.roster.listing("main").queues[0].ref == QueueRef("main", "bull:jobs")
