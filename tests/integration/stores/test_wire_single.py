"""The wire to one server: batches, errors that stay in the list, chunks, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from recovery.errors import AccessDenied, Garbled, StoreError
from recovery.stores.redis.client import StoreClient
from recovery.stores.redis.pipeline import CHUNK, EncodedBatch
from recovery.stores.redis.pool import IDLE_LIMIT
from tests.support.stores.cluster import Cluster
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until


@pytest.fixture
def wire(store: Store) -> Iterator[StoreClient]:
    with wired(store.url) as wire:
        yield wire


def test_replies_come_in_order(wire: StoreClient) -> None:
    commands = [("SET", f"k{number}", number) for number in range(5)] + [("GET", f"k{number}") for number in range(5)]
    assert wire.call(commands) == [b"OK"] * 5 + [b"0", b"1", b"2", b"3", b"4"]


def test_no_commands_bring_no_replies(wire: StoreClient) -> None:
    assert wire.call([]) == []


def test_a_commands_own_error_stays_in_its_place(wire: StoreClient) -> None:
    replies = wire.call([("SET", "text", "x"), ("LLEN", "text"), ("GET", "text")])
    assert replies[::2] == [b"OK", b"x"]
    assert isinstance(replies[1], redis.ResponseError)
    assert str(replies[1]).startswith("WRONGTYPE")


def test_nil_lists_and_nested_lists_survive(wire: StoreClient) -> None:
    wire.call([("RPUSH", "l", "a", "b"), ("HSET", "h", "f", "1")])
    script = "return {1, {2, {false, 'x'}}, redis.error_reply('ERR inner')}"
    nothing, listed, fields, nested = wire.call(
        [("GET", "none"), ("LRANGE", "l", 0, -1), ("HMGET", "h", "f", "g"), ("EVAL", script, 0)]
    )
    assert (nothing, listed, fields) == (None, [b"a", b"b"], [b"1", None])
    assert nested[:2] == [1, [2, [None, b"x"]]]
    assert isinstance(nested[2], redis.ResponseError)


def test_any_bytes_survive_the_round_trip(wire: StoreClient) -> None:
    payload = bytes(range(256)) * 3
    name = b"\xff\xfe \r\n*1\r\n".decode("utf-8", "surrogateescape")
    assert wire.call([("SET", name, payload), ("GET", name)])[1] == payload


def test_a_reply_much_larger_than_one_receive_arrives_whole(wire: StoreClient) -> None:
    payload = b"x" * (5 * 1024 * 1024)
    assert wire.call([("HSET", "big", "data", payload), ("HGET", "big", "data"), ("PING",)])[1:] == [payload, b"PONG"]


def test_an_encoded_batch_can_be_sent_again_and_again(wire: StoreClient) -> None:
    batch = EncodedBatch([("INCR", "n"), ("GET", "n")])
    assert [wire.send(batch), wire.send(batch)] == [[1, b"1"], [2, b"2"]]


def test_a_batch_of_many_chunks_comes_back_whole(wire: StoreClient) -> None:
    count = CHUNK * 2 + 7
    batch = EncodedBatch(("ECHO", number) for number in range(count))
    assert wire.send(batch) == [str(number).encode() for number in range(count)]
    assert len(batch.chunks) == 3


def test_an_error_in_one_chunk_leaves_the_next_batch_clean(wire: StoreClient) -> None:
    assert isinstance(wire.call([("NOSUCH",)])[0], redis.ResponseError)
    assert wire.call([("PING",)]) == [b"PONG"]


def test_threads_share_a_wire_without_mixing_replies(wire: StoreClient) -> None:
    def ask(number: int) -> bool:
        mark = str(number).encode()
        return all(wire.call([("ECHO", mark)] * 50) == [mark] * 50 for _ in range(10))

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(ask, range(24)))


def test_few_connections_are_kept_after_a_rush(serve: Callable[..., Store]) -> None:
    store = serve()  # its own: every connection to it is counted
    start = threading.Barrier(IDLE_LIMIT * 2)

    def ask(_: int) -> None:
        start.wait()
        wire.call([("EVAL", "local n = 0 for i = 1, 2e5 do n = n + i end return 1", 0)])

    with wired(store.url) as wire, ThreadPoolExecutor(IDLE_LIMIT * 2) as pool:
        list(pool.map(ask, range(IDLE_LIMIT * 2)))
        # The server hears of a closed connection a moment later.
        until(lambda: len(store.client.client_list()) - 1 <= IDLE_LIMIT, what="the rest is closed")


def test_one_connection_is_used_again(wire: StoreClient, store: Store) -> None:
    ids = {wire.call([("CLIENT", "ID")])[0] for _ in range(5)}
    assert len(ids) == 1


def test_each_node_of_one_server_is_that_server(wire: StoreClient, store: Store) -> None:
    assert wire.each_node(("PING",)) == {f"127.0.0.1:{store.port}": b"PONG"}
    assert wire.at(wire.nodes()[0], [("PING",)]) == [b"PONG"]


def test_the_database_number_is_chosen(store: Store) -> None:
    with wired(store.url.replace("/0", "/3")) as wire:
        assert b" db=3 " in wire.call([("CLIENT", "INFO")])[0]


def test_a_database_that_does_not_exist_is_named(store: Store) -> None:
    with wired(store.url.replace("/0", "/9999")) as wire, pytest.raises(StoreError, match="no database 9999"):
        wire.call([("PING",)])


def test_a_unix_socket_is_spoken_to(serve: Callable[..., Store]) -> None:
    with wired(serve(by_socket=True).url) as wire:
        assert wire.call([("PING",)]) == [b"PONG"]


def test_tls_with_our_own_authority(serve: Callable[..., Store], certificates: Path) -> None:
    store = serve("redis", tls=certificates)
    with wired(store.url, tls_ca=certificates / "ca.crt") as wire:
        payload = b"x" * 300_000
        assert wire.call([("SET", "a", payload), ("GET", "a")]) == [b"OK", payload]
        first, second = (wire.call([("CLIENT", "ID")])[0] for _ in range(2))
    assert first == second


def test_user_and_password_log_in(serve: Callable[..., Store]) -> None:
    store = serve()
    store.do("ACL", "SETUSER", "watcher", "on", ">s3cret/@:", "~*", "+@all")
    with wired(f"redis://watcher:s3cret%2F%40%3A@127.0.0.1:{store.port}/0") as wire:
        assert wire.call([("ACL", "WHOAMI")]) == [b"watcher"]
    with wired(f"redis://127.0.0.1:{store.port}/0", username="watcher", password="s3cret/@:") as wire:
        assert wire.call([("ACL", "WHOAMI")]) == [b"watcher"]


def test_an_acl_that_is_too_small_costs_its_own_command_only(serve: Callable[..., Store]) -> None:
    store = serve()
    store.do("ACL", "SETUSER", "small", "on", ">pw", "~bull:*", "+llen")
    with wired(f"redis://small:pw@127.0.0.1:{store.port}/0") as wire:
        length, refused = wire.call([("LLEN", "bull:a:wait"), ("ZCARD", "bull:a:delayed")])
    assert length == 0
    assert isinstance(refused, redis.exceptions.NoPermissionError)


def test_an_acl_without_select_says_what_is_missing(serve: Callable[..., Store]) -> None:
    store = serve()
    store.do("ACL", "SETUSER", "small", "on", ">pw", "~*", "+@read")
    with wired(f"redis://small:pw@127.0.0.1:{store.port}/2") as wire, pytest.raises(AccessDenied) as caught:
        wire.call([("PING",)])
    assert caught.value.command == "SELECT"


def test_a_plain_url_of_a_cluster_says_what_to_write(cluster: Cluster) -> None:
    with wired(f"redis://127.0.0.1:{cluster.port}/0") as wire, pytest.raises(Garbled, match=r"redis\+cluster://"):
        wire.call([("GET", f"key{number}") for number in range(50)])
