"""How the engine speaks to the Redis of queues: a batch in, its replies out, wherever the keys live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import redis

from recovery.config import Address, Deployment, Mode
from recovery.connections import dialing
from recovery.connections.encoded import Command, Encoded
from recovery.connections.line import Line, Terms
from recovery.connections.pool import Pool
from recovery.errors import Garbled

__all__ = ["Command", "Encoded", "SingleWire", "Wire"]


class Wire(ABC):
    """Thread-safe. One round trip a node and chunk; nothing is ever sent twice by itself once it may have run."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    @property
    def target(self) -> str:
        return self.deployment.target

    def call(self, commands: Sequence[Command]) -> list[Any]:
        """Replies in order. A command's own error is in the list; a dead store raises StoreError."""
        return self.send(Encoded(commands))

    @abstractmethod
    def send(self, batch: Encoded) -> list[Any]:
        """The same for a batch that is kept and sent again: no encoding, no cost a reply in Python."""

    def parts(self, batch: Encoded) -> Iterator[list[Any]]:
        """The same replies piece by piece, so that the caller can work while the server does. To be read to its end."""
        yield self.send(batch)

    @abstractmethod
    def nodes(self) -> tuple[str, ...]:
        """The masters by address, as `at` and `each_node` name them."""

    @abstractmethod
    def at(self, node: str, commands: Sequence[Command]) -> list[Any]:
        """Like `call`, but at this node: for SCAN with that node's cursor, CLIENT LIST, INFO."""

    def each_node(self, command: Command) -> dict[str, Any]:
        """One command at every master; a refusal is an exception among the values."""
        return {node: self.at(node, [command])[0] for node in self.nodes()}

    @abstractmethod
    def close(self) -> None: ...

    @cached_property
    def _terms(self) -> Terms:
        """Made at the first use: a certificate file that is gone then costs this deployment only."""
        deployment = self.deployment
        return Terms(
            login=deployment.login,
            database=deployment.database,
            context=dialing.context(deployment.tls, self.target) if deployment.tls else None,
            timeout=deployment.timeout,
            connect=max(deployment.timeout, dialing.CONNECT_LIMIT),
            needs_master=deployment.mode is Mode.SENTINEL,
        )


class SingleWire(Wire):
    """One server."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._pool = Pool(self._open)

    def send(self, batch: Encoded) -> list[Any]:
        return list(chain.from_iterable(self.parts(batch)))

    def parts(self, batch: Encoded) -> Iterator[list[Any]]:
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

    def _address(self) -> Address:
        return self.deployment.nodes[0]

    def _open(self) -> Line:
        return Line.open(self._address(), self._terms, self.target)


def refuse_cluster(replies: Sequence[Any], target: str) -> None:
    """Says so when a plain URL met a node of a cluster: it would answer for a part of the keys only."""
    if any(type(reply) is redis.exceptions.MovedError for reply in replies):
        raise Garbled(target, "it is a node of a cluster: write redis+cluster:// in the URL")
