"""One server of several fails: told in time, and what takes its place is found."""

from __future__ import annotations

from recovery.errors import (
    TimedOut,
    Unreachable,
)
from tests.fault.told import LIMIT, PING, answers, told_within
from tests.support.stores.cluster import Cluster
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.wires import wired
from tests.support.waiting import until


def test_a_hung_cluster_node_times_out(cluster: Cluster) -> None:
    with wired(cluster.url) as wire:
        keys = [("GET", f"k{number}") for number in range(30)]
        wire.call(keys)
        cluster.nodes[1].pause()
        try:
            with told_within(LIMIT, TimedOut):
                wire.call(keys)
        finally:
            cluster.nodes[1].resume()
        until(lambda: answers(wire), seconds=20)


def test_a_hung_cluster_fails_in_time_without_a_map(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.pause()
    try:
        with wired(cluster.url) as wire, told_within(LIMIT, TimedOut):
            wire.call(PING)
    finally:
        for node in cluster.nodes:
            node.resume()


def test_a_master_killed_behind_sentinel_is_replaced(sentinel: Sentinel) -> None:
    with wired(sentinel.url) as wire:
        wire.call([("SET", "a", 1)])
        old = sentinel.master
        old.kill()
        with told_within(LIMIT, Unreachable):
            wire.call(PING)
        until(lambda: answers(wire), seconds=20, what="the replica is master and the wire found it")
        assert wire.call([("ROLE",)])[0][0] == b"master"
        assert wire.nodes() != (f"127.0.0.1:{old.port}",)


def test_a_hung_master_behind_sentinel_is_replaced(sentinel: Sentinel) -> None:
    with wired(sentinel.url) as wire:
        wire.call(PING)
        old = sentinel.master
        old.pause()
        try:
            with told_within(LIMIT, TimedOut):
                wire.call(PING)
            until(lambda: answers(wire), seconds=20, what="the wire leaves the hung master for the new one")
            assert wire.nodes() != (f"127.0.0.1:{old.port}",)
        finally:
            old.resume()


def test_a_hung_sentinel_does_not_hold_us(sentinel: Sentinel) -> None:
    sentinel.watcher.pause()
    try:
        with wired(sentinel.url) as wire, told_within(LIMIT, Unreachable, "no sentinel names the master"):
            wire.call(PING)
    finally:
        sentinel.watcher.resume()
