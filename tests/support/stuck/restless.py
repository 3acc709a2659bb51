"""A wire on which others act between any two calls of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis

from recovery.backends.base import Command
from tests.support.stores.pipe import Pipe


class Restless(Pipe):
    """Before each call, the next of `changes` happens."""

    def __init__(self, client: redis.Redis, changes: Sequence[Callable[[], Any]]) -> None:
        super().__init__(client)
        self._changes = list(changes)

    def call(self, commands: Sequence[Command]) -> list[Any]:
        if self._changes:
            self._changes.pop(0)()
        return super().call(commands)
