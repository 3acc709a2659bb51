"""The wire behind Sentinel: finding the master, and following it."""

from __future__ import annotations

import pytest

from recovery.errors import StoreError, Unreachable
from recovery.stores.redis.client import StoreClient
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until


def refuses(why: str, url: str, **settings: object) -> None:
    with wired(url, **settings) as wire, pytest.raises(Unreachable, match=why):
        wire.call([("PING",)])


def test_the_master_is_found_through_its_sentinel(sentinel: Sentinel) -> None:
    with wired(sentinel.url) as wire:
        assert wire.call([("SET", "a", 1), ("ROLE",)])[1][0] == b"master"
        assert wire.nodes() == (f"127.0.0.1:{sentinel.master.port}",)


def test_a_dead_sentinel_beside_a_live_one_does_no_harm(sentinel: Sentinel) -> None:
    with wired(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/{sentinel.name}/0") as wire:
        assert wire.call([("PING",)]) == [b"PONG"]


def test_an_unknown_master_is_named(sentinel: Sentinel) -> None:
    with (
        wired(f"redis+sentinel://127.0.0.1:{sentinel.port}/other") as wire,
        pytest.raises(Unreachable, match="knows no master named 'other'"),
    ):
        wire.call([("PING",)])


def test_a_server_that_is_no_sentinel_is_named(valkey: Store) -> None:
    with (
        wired(f"redis+sentinel://127.0.0.1:{valkey.port}/queues") as wire,
        pytest.raises(Unreachable, match="unknown command"),
    ):
        wire.call([("PING",)])


def test_after_a_failover_the_new_master_is_asked(sentinel: Sentinel) -> None:
    with wired(sentinel.url) as wire:
        wire.call([("SET", "before", 1)])
        sentinel.fail_over()
        until(lambda: _role(wire) == b"master", seconds=5, what="the wire follows the failover")
        assert wire.nodes() == (f"127.0.0.1:{sentinel.master.port}",)
        assert wire.call([("GET", "before"), ("SET", "after", 1)]) == [b"1", b"OK"]


def test_a_sentinel_has_a_login_of_its_own(sentinel: Sentinel) -> None:
    sentinel.watcher.do("ACL", "SETUSER", "eye", "on", ">watch", "+@all")
    with wired(sentinel.url, sentinel_username="eye", sentinel_password="watch") as wire:
        assert wire.call([("PING",)]) == [b"PONG"]
    with (
        wired(sentinel.url, sentinel_username="eye", sentinel_password="wrong") as wire,
        pytest.raises(Unreachable, match="user or password is wrong"),
    ):
        wire.call([("PING",)])


def _role(wire: StoreClient) -> bytes | None:
    try:
        found: bytes = wire.call([("ROLE",)])[0][0]
    except StoreError:
        return None
    return found
