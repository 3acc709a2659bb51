"""Fails fast on a store that has just failed: a page has one second for all its reads, and one timeout takes half.

Every read within that moment gets the failure that is already known. A page of several reads, a search over many
queues and a dozen open tabs then wait once, not once each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from recovery.backends import base
from recovery.backends.base import Command
from recovery.errors import StoreError
from recovery.stores.redis.client import StoreClient
from recovery.stores.sql.sql_client import SqlClient

LIFE = 1.0  # seconds: as long as an answer is shared, and well below the next refresh of a page

_failures: WeakKeyDictionary[StoreClient, tuple[float, StoreError]] = WeakKeyDictionary()


def fail_fast_client(wire: StoreClient) -> base.CommandClient:
    """Returns the wire that pages use; a SQL database fails fast by itself."""
    return wire if isinstance(wire, SqlClient) else FailFastClient(wire)


class FailFastClient:
    """Wire that fails fast after a failure. Threads may race here: at worst two of them wait for the same store."""

    __slots__ = ("_wire",)

    def __init__(self, wire: StoreClient) -> None:
        self._wire = wire

    def call(self, commands: Sequence[Command]) -> list[Any]:
        until, failure = _failures.get(self._wire, (0.0, None))
        if failure is not None and time.monotonic() < until:
            raise failure
        try:
            return self._wire.call(commands)
        except StoreError as error:
            _failures[self._wire] = time.monotonic() + LIFE, error
            raise
