"""A wire of the tests' own: what the readers are given, on one connection, and how much went over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from recovery.backends.base import Command


class Pipe:
    """Counts what it carries: `commands` by name, `trips`, and the `weight` of the replies in bytes."""

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection = self._pool.get_connection()
        self.reset()

    def reset(self) -> None:
        self.trips = 0
        self.weight = 0
        self.commands: list[str] = []

    def call(self, commands: Sequence[Command]) -> list[Any]:
        self.trips += 1
        self.commands += [_name(command) for command in commands]
        self._connection.send_packed_command(self._connection.pack_commands(commands))  # type: ignore[no-untyped-call]
        replies = [self._reply() for _ in commands]
        self.weight += sum(map(_weight, replies))
        return replies

    def close(self) -> None:
        self._pool.release(self._connection)

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.ResponseError as refusal:
            return refusal


def _name(command: Command) -> str:
    word = command[0]
    return word.decode() if isinstance(word, bytes) else str(word)


def _weight(reply: Any) -> int:
    if isinstance(reply, (list, tuple, set)):
        return sum(map(_weight, reply))
    return len(reply) if isinstance(reply, (bytes, str)) else 8
