"""What a store can come to while it is watched: each is told as what it is, in time, and its return is noticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from recovery.errors import (
    Garbled,
    NotReady,
    ReadOnlyStore,
    StoreError,
    TimedOut,
    Unreachable,
)
from recovery.stores.redis.client import StoreClient
from tests.fault.told import LIMIT, PING, answers, speaking, told_within
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until


def test_a_stopped_process_times_out_and_is_noticed_when_it_goes_on(valkey: Store) -> None:
    with wired(valkey.url) as wire:
        wire.call(PING)
        valkey.pause()
        with told_within(LIMIT, TimedOut):
            wire.call(PING)
        with told_within(LIMIT, TimedOut):  # now on a new connection, which the kernel accepts
            wire.call(PING)
        valkey.resume()
        assert until(lambda: answers(wire), seconds=1)


def test_a_killed_server_is_unreachable_and_noticed_when_it_returns(serve: Callable[..., Store]) -> None:
    store = serve()
    with wired(store.url) as wire:
        wire.call(PING)
        store.kill()
        with told_within(0.2, Unreachable):
            wire.call(PING)
        store.start()
        assert wire.call(PING) == [b"PONG"]


def test_paused_clients_time_out(valkey: Store) -> None:
    with wired(valkey.url) as wire:
        valkey.do("CLIENT", "PAUSE", 1500, "ALL")
        with told_within(LIMIT, TimedOut):
            wire.call(PING)
        assert until(lambda: answers(wire), seconds=5)


def test_a_server_busy_with_a_script_is_told_as_such(serve: Callable[..., Store]) -> None:
    store = serve(options={"busy-reply-threshold": "50"})
    with wired(store.url, timeout=2.0) as wire, wired(store.url, timeout=0.3) as other:
        with pytest.raises(TimedOut):
            other.call([("EVAL", "while true do end", 0)])
        with told_within(2.0, TimedOut, "busy with a long script"):
            wire.call([("GET", "a")])
        store.connect().script_kill()
        assert until(lambda: answers(wire), seconds=2)


def test_a_loading_server_is_not_ready(serve: Callable[..., Store]) -> None:
    store = serve(
        options={
            "enable-debug-command": "yes",
            "key-load-delay": "100",
            "loading-process-events-interval-bytes": "1024",
        }
    )
    store.do("DEBUG", "POPULATE", 8_000, "k", 200)
    store.do("SAVE")
    store.stop()
    with wired(store.url) as wire, _starting(store):
        fault = until(lambda: _fault(wire, NotReady), seconds=10, what="the server says LOADING")
    assert "loading" in fault.reason


def test_a_replica_without_master_is_not_ready(serve: Callable[..., Store]) -> None:
    store = serve(options={"replica-serve-stale-data": "no"})
    store.client.replicaof("127.0.0.1", 1)
    with wired(store.url) as wire, told_within(LIMIT, NotReady, "lost its master"):
        wire.call([("GET", "a")])


def test_a_write_to_a_replica_is_told_as_such(serve: Callable[..., Store]) -> None:
    store = serve()
    store.client.replicaof("127.0.0.1", 1)
    with wired(store.url) as wire:
        assert wire.call([("GET", "a")]) == [None]
        with told_within(LIMIT, ReadOnlyStore):
            wire.call([("SET", "a", 1)])


def test_too_many_clients_is_told_as_such(serve: Callable[..., Store]) -> None:
    store = serve(options={"maxclients": "2"})
    with store.connect() as one, wired(store.url) as wire:
        one.ping()
        store.client.ping()
        with told_within(LIMIT, Unreachable, "maxclients"):
            wire.call(PING)


def test_what_is_no_redis_is_garbled() -> None:
    with (
        speaking(b"HTTP/1.1 400 Bad Request\r\n\r\n", pause=0.05) as port,
        wired(f"redis://127.0.0.1:{port}/0") as wire,
        told_within(LIMIT, Garbled),
    ):
        wire.call(PING)


def _fault(wire: StoreClient, kind: type[StoreError]) -> StoreError | None:
    try:
        wire.call([("GET", "a")])
    except StoreError as error:
        return error if type(error) is kind else None
    return None


@contextmanager
def _starting(store: Store) -> Iterator[None]:
    """Starts beside the test instead of before it: what happens meanwhile is what the test looks at."""
    thread = threading.Thread(target=store.start)
    thread.start()
    yield
    thread.join()
