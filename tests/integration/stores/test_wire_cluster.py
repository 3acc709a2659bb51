"""The wire to a cluster: splitting, moved slots, slots on their way, lost nodes."""

from __future__ import annotations

import binascii
from collections.abc import Iterator

import pytest
import redis

from recovery.errors import Garbled, NotReady, Unreachable
from recovery.stores.redis.client import StoreClient
from recovery.stores.redis.cluster_slots import slot
from recovery.stores.redis.pipeline import CHUNK, EncodedBatch
from tests.support.stores.cluster import Cluster
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until

KEYS = [f"{{q{number}}}:wait" for number in range(60)]


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[StoreClient]:
    with wired(cluster.url) as wire:
        yield wire


def owner(cluster: Cluster, key: str) -> Store:
    return cluster.owner(slot(key.encode()))


def test_our_slots_are_redis_slots(cluster: Cluster) -> None:
    keys = [*KEYS, "plain", "{}x", "a{b}c{d}", "{unclosed", "x{}{y}", "ü{ß}"]
    with wired(cluster.nodes[0].url) as single:
        theirs = single.call([("CLUSTER", "KEYSLOT", key) for key in keys])
    assert [slot(key.encode()) for key in keys] == theirs
    assert binascii.crc_hqx(b"123456789", 0) == 0x31C3


def test_replies_of_all_nodes_come_in_order(wire: StoreClient) -> None:
    sets = [("SET", key, number) for number, key in enumerate(KEYS)]
    gets = [("GET", key) for key in KEYS]
    assert wire.call([*sets, *gets]) == [b"OK"] * 60 + [str(number).encode() for number in range(60)]


def test_a_big_batch_over_all_nodes_comes_back_whole(wire: StoreClient) -> None:
    batch = EncodedBatch(("HGET", f"q{number}", "f") for number in range(CHUNK * 4))
    assert wire.send(batch) == [None] * (CHUNK * 4)


def test_commands_without_keys_find_a_node(wire: StoreClient) -> None:
    script = "return KEYS[1]"
    replies = wire.call([("PING",), ("EVAL", "return 7", 0), ("EVAL", script, 1, "{b}x"), ("EVAL", script, 1, "{c}y")])
    assert replies == [b"PONG", 7, b"{b}x", b"{c}y"]


def test_an_error_stays_in_its_place(wire: StoreClient) -> None:
    replies = wire.call([("SET", "{a}", "x"), ("LLEN", "{a}"), ("GET", "{b}")])
    assert isinstance(replies[1], redis.ResponseError)
    assert replies[::2] == [b"OK", None]


def test_every_master_is_asked_once(wire: StoreClient, cluster: Cluster) -> None:
    wire.call([("SET", key, 1) for key in KEYS])
    sizes = wire.each_node(("DBSIZE",))
    assert sizes.keys() == {f"127.0.0.1:{node.port}" for node in cluster.nodes}
    assert sum(sizes.values()) == len(KEYS)


def test_scan_goes_on_at_its_own_node(wire: StoreClient) -> None:
    wire.call([("SET", key, 1) for key in KEYS])
    seen: list[bytes] = []
    for node in wire.nodes():
        cursor = b"0"
        while True:
            cursor, keys = wire.at(node, [("SCAN", cursor, "COUNT", 10)])[0]
            seen += keys
            if cursor == b"0":
                break
    assert sorted(set(seen)) == sorted(key.encode() for key in KEYS)


def test_a_node_that_is_no_master_is_not_asked(wire: StoreClient) -> None:
    with pytest.raises(Unreachable, match="no longer a master"):
        wire.at("127.0.0.1:1", [("PING",)])


def test_one_known_node_is_enough(cluster: Cluster) -> None:
    with wired(f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.nodes[2].port}") as wire:
        assert len(wire.nodes()) == 3


def test_a_moved_slot_is_followed_and_the_map_drawn_anew(wire: StoreClient, cluster: Cluster) -> None:
    batch = EncodedBatch([("INCR", key) for key in KEYS])
    assert wire.send(batch) == [1] * 60
    source = owner(cluster, KEYS[0])
    target = next(node for node in cluster.nodes if node is not source)
    with _moved(cluster, KEYS[0], source, target):
        assert wire.send(batch) == [2] * 60
        held = wire.at(f"127.0.0.1:{target.port}", [("GET", KEYS[0])])
        assert held == [b"2"]
        assert wire.send(batch) == [3] * 60


def test_a_slot_on_its_way_is_asked_at_its_target(wire: StoreClient, cluster: Cluster) -> None:
    key = KEYS[0]
    wire.call([("SET", "{q0}:stays", 1)])
    source = owner(cluster, key)
    target = next(node for node in cluster.nodes if node is not source)
    number = slot(key.encode())
    ids = {node.port: node.do("CLUSTER", "MYID").decode() for node in (source, target)}
    target.do("CLUSTER", "SETSLOT", number, "IMPORTING", ids[source.port])
    source.do("CLUSTER", "SETSLOT", number, "MIGRATING", ids[target.port])
    try:
        assert wire.call([("SET", key, "there"), ("GET", key), ("GET", "{q0}:stays")]) == [b"OK", b"there", b"1"]
    finally:
        for node in (source, target):
            node.do("CLUSTER", "SETSLOT", number, "STABLE")
        # The key landed in a slot that its node does not own: it has to go before the next test.
        with wired(target.url) as single:
            single.call([("FLUSHALL",)])


def test_a_lost_node_is_an_outage_that_names_it(wire: StoreClient, cluster: Cluster) -> None:
    wire.call([("SET", key, 1) for key in KEYS])
    lost = cluster.nodes[1]
    lost.stop()
    with pytest.raises((Unreachable, NotReady)) as caught:
        wire.call([("GET", key) for key in KEYS])
    assert str(lost.port) in caught.value.target
    lost.start()
    until(lambda: _answers(wire), seconds=20, what="the cluster is whole again")


def test_a_single_server_is_no_cluster(valkey: Store) -> None:
    with wired(f"redis+cluster://127.0.0.1:{valkey.port}") as wire, pytest.raises(Garbled, match="write redis://"):
        wire.call([("PING",)])


def _answers(wire: StoreClient) -> bool:
    try:
        return len(wire.call([("GET", key) for key in KEYS])) == len(KEYS)
    except (Unreachable, NotReady):
        return False


class _moved:  # noqa: N801 - reads as what it does
    """The key's slot with all that is in it belongs to another node meanwhile."""

    def __init__(self, cluster: Cluster, key: str, source: Store, target: Store) -> None:
        self._cluster, self._key, self._source, self._target = cluster, key, source, target

    def __enter__(self) -> None:
        self._move(self._source, self._target)

    def __exit__(self, *_: object) -> None:
        self._move(self._target, self._source)

    def _move(self, source: Store, target: Store) -> None:
        self._cluster.move_slot(slot(self._key.encode()), source, target)
