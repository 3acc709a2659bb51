"""Client of a deployment behind Sentinels: they are asked who the master is, and asked again whenever it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from recovery.config import Deployment, ServerAddress
from recovery.errors import StoreError, Unreachable
from recovery.stores.redis.client import SingleServerClient
from recovery.stores.redis.connection import RedisConnection
from recovery.stores.redis.pipeline import EncodedBatch, chunked
from recovery.stores.redis.pool import RedisConnectionPool

# Seconds a sentinel has: it answers from memory, and a silent one must leave time for the next.
ASK_LIMIT = 0.25
ASK_BUDGET = 0.5  # seconds for all sentinels together; a sentinel that failed is asked last the next time


class SentinelClient(SingleServerClient):
    """Client of one master at a time. Its address is kept until an error, and every new connection checks its role."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._sentinels = list(deployment.nodes)
        self._master: ServerAddress | None = None
        self._lock = threading.Lock()

    def parts(self, batch: EncodedBatch) -> Iterator[list[Any]]:
        try:
            yield from super().parts(batch)
        except StoreError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Drops the master's connections: it may be another one by now, so none of them is used again."""
        with self._lock:
            self._master = None
            old, self._pool = self._pool, RedisConnectionPool(self._open)
        old.close()

    def _address(self) -> ServerAddress:
        with self._lock:
            if self._master is None:
                self._master = self._asked()
            return self._master

    def _open(self) -> RedisConnection:
        known = self._master
        address = self._address()
        try:
            return RedisConnection.open(address, self._terms, self._target_of(address))
        except Unreachable:
            fresh = self._elsewhere(address) if known else None
            if fresh is None:
                raise
            return RedisConnection.open(fresh, self._terms, self._target_of(fresh))

    def _elsewhere(self, failed: ServerAddress) -> ServerAddress | None:
        """Returns the new master, if the sentinels have agreed on another one already."""
        with self._lock:
            if self._master == failed:
                self._master = self._asked()
            return self._master if self._master != failed else None

    def _asked(self) -> ServerAddress:
        failures: list[str] = []
        end = time.monotonic() + ASK_BUDGET
        for sentinel in tuple(self._sentinels):
            if time.monotonic() > end:
                break
            try:
                answer = self._ask(sentinel)
            except StoreError as error:
                failures.append(f"{sentinel} {error.reason}")
                self._sentinels.remove(sentinel)
                self._sentinels.append(sentinel)
                continue
            if answer:
                return answer
            failures.append(f"{sentinel} knows no master named {self.deployment.sentinel_master!r}")
        raise Unreachable(self.target, f"no sentinel names the master: {'; '.join(failures)}")

    def _ask(self, sentinel: ServerAddress) -> ServerAddress | None:
        deployment = self.deployment
        login = deployment.sentinel_login
        terms = replace(
            self._terms,
            login=login,
            database=0,
            timeout=ASK_LIMIT,
            connect=ASK_LIMIT,
            needs_master=False,
            doubts_silence=False,
        )
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", deployment.sentinel_master)
        line = RedisConnection.open(sentinel, terms, deployment.target_of(sentinel))
        try:
            (reply,) = line.exchange(chunked([command]))
        finally:
            line.close()
        if isinstance(reply, Exception):
            raise StoreError(deployment.target_of(sentinel), str(reply), command="SENTINEL")
        return ServerAddress(reply[0].decode(), int(reply[1])) if reply else None

    def _target_of(self, address: ServerAddress) -> str:
        return f"{self.target} ({address})"
