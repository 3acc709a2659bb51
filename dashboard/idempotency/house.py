"""The ledger of this web process from its start to its end: its client of the state store, and that the queues live
elsewhere.
"""

from __future__ import annotations

import asyncio
import time

from redis.asyncio import Redis

from dashboard.idempotency.app import PATH, IdempotencyApp
from dashboard.live.stream import Receive, Scope, Send, refuse
from recovery import config
from recovery.connections import aio
from recovery.connections.registry import registry
from recovery.domain.idempotency import Answer, Order
from recovery.errors import NotApart
from recovery.idempotency import apart
from recovery.idempotency.ledger import LoopLedger

FRESH_SECONDS = 20.0  # a look at the neighbours that is older is done anew, and nobody waits for that
KEPT_SECONDS = 60.0  # one that is older than this is waited for


class IdempotencyHouse:
    """ASGI application; it answers between `start` and `stop`."""

    def __init__(self) -> None:
        self._app: IdempotencyApp | None = None
        self._client: Redis | None = None
        self._trouble = ""
        self._looked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            await refuse(send, 503, "This process is starting or stopping.", [(b"retry-after", b"5")])
            return
        await self._app(scope, receive, send)

    def start(self) -> None:
        self._app = IdempotencyApp(self._do, self._apart)
        self._looked_at = None

    async def stop(self) -> None:
        self._app = None
        if self._looking:
            self._looking.cancel()
        if self._client:
            await self._client.aclose()
            self._client = None

    async def _do(self, order: Order) -> Answer:
        """Raises ConfigError, StoreError."""
        self._client = self._client or aio.state_client(config.current())
        return await LoopLedger(self._client, config.current().idempotency).do(order)

    async def _apart(self) -> None:
        """Raises NotApart, ConfigError, StoreError."""
        age = None if self._looked_at is None else time.monotonic() - self._looked_at
        if age is None or age > KEPT_SECONDS:
            await asyncio.shield(self._look())
        elif age > FRESH_SECONDS:
            self._look()
        if self._trouble:
            raise NotApart(self._trouble)

    def _look(self) -> asyncio.Task[None]:
        """One for all who ask meanwhile."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_around(), name="idempotency neighbours")
            self._looking.add_done_callback(_heard)
        return self._looking

    async def _look_around(self) -> None:
        found = await asyncio.to_thread(lambda: apart.neighbours(registry()))
        self._trouble, self._looked_at = found.trouble, time.monotonic()


def _heard(task: asyncio.Task[None]) -> None:
    """Whoever waits for it has what it raised; when nobody does, the next one asks anew."""
    if not task.cancelled():
        task.exception()


__all__ = ["PATH", "IdempotencyHouse"]
