"""Clients of the Redis of queues: a batch in, its replies out, wherever the keys live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import redis

from recovery.config import Deployment, DeploymentMode, ServerAddress
from recovery.errors import Garbled
from recovery.stores.redis import sockets
from recovery.stores.redis.connection import ConnectionOptions, RedisConnection
from recovery.stores.redis.pipeline import Command, EncodedBatch
from recovery.stores.redis.pool import RedisConnectionPool

__all__ = ["Command", "EncodedBatch", "SingleServerClient", "StoreClient"]


class StoreClient(ABC):
    """Client of one deployment. Thread-safe. One round trip a node and chunk; what may have run is never sent twice."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    @property
    def target(self) -> str:
        return self.deployment.target

    def call(self, commands: Sequence[Command]) -> list[Any]:
        """Returns replies in order. A command's own error is in the list; a dead store raises StoreError."""
        return self.send(EncodedBatch(commands))

    @abstractmethod
    def send(self, batch: EncodedBatch) -> list[Any]:
        """Sends a batch that is kept and sent again: no encoding, no cost a reply in Python."""

    def parts(self, batch: EncodedBatch) -> Iterator[list[Any]]:
        """Yields the same replies in pieces, so that the caller can work while the server does. Read it to its end."""
        yield self.send(batch)

    @abstractmethod
    def nodes(self) -> tuple[str, ...]:
        """Returns the masters by address, as `at` and `each_node` name them."""

    @abstractmethod
    def at(self, node: str, commands: Sequence[Command]) -> list[Any]:
        """Calls one node: for SCAN with that node's cursor, CLIENT LIST, INFO."""

    def each_node(self, command: Command) -> dict[str, Any]:
        """Sends one command to every master; a refusal is an exception among the values."""
        return {node: self.at(node, [command])[0] for node in self.nodes()}

    @abstractmethod
    def close(self) -> None: ...

    @cached_property
    def _terms(self) -> ConnectionOptions:
        """Options of its connections, made at the first use: a missing certificate file costs this deployment only."""
        deployment = self.deployment
        return ConnectionOptions(
            login=deployment.login,
            database=deployment.database,
            context=sockets.context(deployment.tls, self.target) if deployment.tls else None,
            timeout=deployment.timeout,
            connect=max(deployment.timeout, sockets.CONNECT_LIMIT),
            needs_master=deployment.mode is DeploymentMode.SENTINEL,
        )


class SingleServerClient(StoreClient):
    """Client of one server."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._pool = RedisConnectionPool(self._open)

    def send(self, batch: EncodedBatch) -> list[Any]:
        return list(chain.from_iterable(self.parts(batch)))

    def parts(self, batch: EncodedBatch) -> Iterator[list[Any]]:
        with self._pool.line() as line:
            for replies in line.parts(batch.chunks):
                refuse_cluster(replies, self.target)
                yield replies

    def nodes(self) -> tuple[str, ...]:
        return (str(self._address()),)

    def at(self, node: str, commands: Sequence[Command]) -> list[Any]:
        return self.call(commands)

    def close(self) -> None:
        self._pool.close()

    def _address(self) -> ServerAddress:
        return self.deployment.nodes[0]

    def _open(self) -> RedisConnection:
        return RedisConnection.open(self._address(), self._terms, self.target)


def refuse_cluster(replies: Sequence[Any], target: str) -> None:
    """Raises Garbled when a plain URL met a node of a cluster: it would answer for a part of the keys only."""
    if any(type(reply) is redis.exceptions.MovedError for reply in replies):
        raise Garbled(target, "it is a node of a cluster: write redis+cluster:// in the URL")
