"""Three masters that share the slots, private to the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import redis
from redis.cluster import RedisCluster

from tests.support.processes.processes import free_port
from tests.support.stores.stores import Store
from tests.support.waiting import until

_SLOTS = 16_384
_SIZE = 3
_JOIN_SECONDS = 30.0
_KEYS = 100  # that move in one command
_MIGRATE_MS = 5_000


class Cluster:
    """`client` follows redirections; `nodes` are the single servers, to stop and to look into."""

    def __init__(self) -> None:
        self.nodes = tuple(Store(options=_options()) for _ in range(_SIZE))
        self._client: RedisCluster | None = None

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def port(self) -> int:
        return self.nodes[0].port

    @property
    def client(self) -> RedisCluster:
        if self._client is None:
            self._client = RedisCluster(host="127.0.0.1", port=self.port, socket_timeout=5.0)
        return self._client

    def start(self) -> Self:
        for number, node in enumerate(self.nodes):
            node.start()
            low, high = _SLOTS * number // _SIZE, _SLOTS * (number + 1) // _SIZE - 1
            node.do("CLUSTER", "ADDSLOTSRANGE", low, high)
            node.do("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            bus = node.client.config_get("cluster-port")["cluster-port"]
            self.nodes[0].do("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        self._settle()
        return self

    def owner(self, number: int) -> Store:
        """The node that has this slot."""
        return next(node for node in self.nodes if any(low <= number <= high for low, high in _slots(node)))

    def move_slot(
        self, number: int, source: Store, target: Store, *, halfway: Callable[[], None] | None = None
    ) -> None:
        """Hands over a slot as an operator's tool does; `halfway` is called when half of its keys are there."""
        to = target.do("CLUSTER", "MYID").decode()
        target.do("CLUSTER", "SETSLOT", number, "IMPORTING", source.do("CLUSTER", "MYID").decode())
        source.do("CLUSTER", "SETSLOT", number, "MIGRATING", to)
        half = int(source.do("CLUSTER", "COUNTKEYSINSLOT", number)) // 2
        while keys := source.do("CLUSTER", "GETKEYSINSLOT", number, _KEYS):
            source.do("MIGRATE", "127.0.0.1", target.port, "", 0, _MIGRATE_MS, "KEYS", *keys)
            if halfway and int(source.do("CLUSTER", "COUNTKEYSINSLOT", number)) <= half:
                halfway, meanwhile = None, halfway
                meanwhile()
        for node in (target, source, *self.nodes):
            node.do("CLUSTER", "SETSLOT", number, "NODE", to)

    def flush(self) -> None:
        for node in self.nodes:
            node.client.flushall()

    def renew(self) -> None:
        for node in self.nodes:
            if node.is_running:
                node.resume()
            node.start()
        self._settle()
        self.flush()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        for node in self.nodes:
            node.close()

    def _settle(self) -> None:
        until(lambda: all(_is_whole(node) for node in self.nodes), _JOIN_SECONDS, "every node sees a whole cluster")


def _options() -> dict[str, str]:
    return {
        "cluster-enabled": "yes",
        "cluster-port": str(free_port()),
        "cluster-node-timeout": "2000",
        "cluster-allow-replica-migration": "no",
    }


def _slots(node: Store) -> Iterator[tuple[int, int]]:
    """The ranges that this node says are its own."""
    for low, high, (_host, port, *_), *_replicas in node.do("CLUSTER", "SLOTS"):
        if int(port) == node.port:
            yield int(low), int(high)


def _is_whole(node: Store) -> bool:
    try:
        state: dict[str, Any] = node.do("CLUSTER INFO")
    except redis.RedisError:
        return False
    return state["cluster_state"] == "ok" and int(state["cluster_known_nodes"]) == _SIZE
