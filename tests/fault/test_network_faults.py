"""What the network can do to a store while it is watched: told as what it is, in time, and its end is noticed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from recovery.config import ServerAddress, StoreLogin
from recovery.errors import (
    StoreError,
    TimedOut,
    Unreachable,
)
from recovery.stores.redis.client import StoreClient
from recovery.stores.redis.connection import ConnectionOptions, RedisConnection
from recovery.stores.redis.pipeline import CHUNK, EncodedBatch, chunked
from tests.fault.proxy import Proxy
from tests.fault.told import LIMIT, PING, answers, speaking, told_within
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until


@pytest.fixture
def proxy(valkey: Store) -> Iterator[Proxy]:
    with Proxy(valkey.port) as proxy:
        yield proxy


@pytest.fixture
def wire(proxy: Proxy) -> Iterator[StoreClient]:
    """Connected through the proxy, with one idle connection in its pool."""
    with wired(proxy.url) as wire:
        wire.call(PING)
        yield wire


def test_a_refused_port_is_unreachable(wire: StoreClient, proxy: Proxy) -> None:
    proxy.refuse()
    with told_within(0.2, Unreachable, "refused"):
        wire.call(PING)


def test_the_return_is_noticed_by_the_next_call(wire: StoreClient, proxy: Proxy) -> None:
    proxy.refuse()
    assert not answers(wire)
    proxy.restore()
    assert wire.call(PING) == [b"PONG"]


def test_a_connection_cut_while_idle_costs_nothing(wire: StoreClient, proxy: Proxy, valkey: Store) -> None:
    before = proxy.accepted
    proxy.cut()
    until(lambda: answers(wire), seconds=1)
    assert wire.call(PING) == [b"PONG"]
    assert proxy.accepted == before + 1


def test_a_connection_that_the_server_closed_costs_nothing(wire: StoreClient, valkey: Store) -> None:
    valkey.do("CLIENT", "KILL", "ID", wire.call([("CLIENT", "ID")])[0])
    assert until(lambda: answers(wire), seconds=1)


def test_a_half_open_connection_times_out(wire: StoreClient, proxy: Proxy) -> None:
    proxy.silence()
    with told_within(LIMIT, TimedOut, "no answer within 0.5 s"):
        wire.call(PING)


def test_a_server_that_accepts_and_stays_silent_times_out(proxy: Proxy) -> None:
    proxy.silence()
    with wired(proxy.url) as wire, told_within(LIMIT, TimedOut):
        wire.call(PING)


def test_silence_ends_without_a_trace(wire: StoreClient, proxy: Proxy) -> None:
    proxy.silence()
    assert not answers(wire)
    proxy.restore()
    assert wire.call(PING) == [b"PONG"]


def test_a_slow_answer_in_time_is_an_answer(wire: StoreClient, proxy: Proxy) -> None:
    proxy.delay(0.2)
    assert wire.call(PING) == [b"PONG"]


def test_an_answer_that_came_in_time_counts_though_this_process_stood_still(valkey: Store) -> None:
    terms = ConnectionOptions(StoreLogin(), database=0, context=None, timeout=0.1, connect=5.0)
    line = RedisConnection.open(ServerAddress("127.0.0.1", valkey.port), terms, valkey.url)
    line.post(*chunked([("ECHO", "here")]))
    until(lambda: line.is_usable() is False and line._deadline < time.monotonic())
    assert line.collect() == [b"here"]
    line.close()


def test_a_late_answer_is_never_taken_for_the_next_one(wire: StoreClient, proxy: Proxy) -> None:
    proxy.delay(0.7)
    with pytest.raises(TimedOut):
        wire.call([("ECHO", "first")])
    proxy.restore()
    assert wire.call([("ECHO", "second")]) == [b"second"]


def test_a_cut_in_the_middle_of_an_answer_is_unreachable(wire: StoreClient, valkey: Store) -> None:
    kill_me = "redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no') return 1"
    with pytest.raises(StoreError):
        wire.call([("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"), ("EVAL", kill_me, 0), ("PING",)])
    assert until(lambda: answers(wire), seconds=1)


def test_the_own_timeout_of_a_deployment_is_kept(proxy: Proxy) -> None:
    with wired(proxy.url, timeout=0.1) as wire:
        wire.call(PING)
        proxy.silence()
        with told_within(0.3, TimedOut, "within 0.1 s"):
            wire.call(PING)


def test_a_dripping_server_cannot_hold_us() -> None:
    with speaking(b"$", pause=0.1) as port, wired(f"redis://127.0.0.1:{port}/0") as wire, told_within(LIMIT, TimedOut):
        wire.call(PING)


def test_an_unknown_host_is_named() -> None:
    with wired("redis://no-such-host.invalid:6379/0") as wire, told_within(LIMIT, Unreachable, "host"):
        wire.call(PING)


def test_a_host_that_no_name_server_can_be_asked_for_is_named() -> None:
    with wired(f"redis://{'x' * 80}.example:6379/0") as wire, told_within(LIMIT, Unreachable, "no such host"):
        wire.call(PING)


def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    with wired(f"unix://{tmp_path}/none.sock") as wire, told_within(0.2, Unreachable, "no such socket"):
        wire.call(PING)


def test_a_long_way_is_filled_with_several_chunks_and_each_reply_keeps_its_place(proxy: Proxy) -> None:
    numbers = [str(number).encode() for number in range(20 * CHUNK)]
    proxy.delay(0.05)
    with wired(proxy.url) as wire:
        flights = list(wire.parts(EncodedBatch([("ECHO", number) for number in numbers])))
    assert list(chain.from_iterable(flights)) == numbers
    assert len(flights) == 2, "of 16 chunks at most, which the server keeps in its memory"
