"""Starts and stops the idempotency API of this web process: its client of the state store, and the regular check that
the queues are in another database.
"""

from __future__ import annotations

import asyncio
import time

from redis.asyncio import Redis

from dashboard.idempotency.asgi import PATH, IdempotencyApp
from dashboard.live.asgi import Receive, Scope, Send, refuse
from recovery import config
from recovery.domain.idempotency import ClaimReply, ClaimRequest
from recovery.errors import NotApart
from recovery.idempotency import store_isolation
from recovery.idempotency.ledger import LoopLedger
from recovery.stores.registry import registry
from recovery.stores.state import async_client

FRESH_SECONDS = 20.0  # an older check is repeated in the background
KEPT_SECONDS = 60.0  # with an older check, requests wait for a new one


class IdempotencyLifespan:
    """ASGI application that answers 503 before `start` and after `stop`."""

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

    async def _do(self, order: ClaimRequest) -> ClaimReply:
        """Raises ConfigError, StoreError."""
        self._client = self._client or async_client.state_client(config.current())
        return await LoopLedger(self._client, config.current().idempotency).do(order)

    async def _apart(self) -> None:
        """Checks that the state store holds no queues. Raises NotApart, ConfigError, StoreError."""
        age = None if self._looked_at is None else time.monotonic() - self._looked_at
        if age is None or age > KEPT_SECONDS:
            await asyncio.shield(self._look())
        elif age > FRESH_SECONDS:
            self._look()
        if self._trouble:
            raise NotApart(self._trouble)

    def _look(self) -> asyncio.Task[None]:
        """Returns the running check, or starts one; all requests share it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_around(), name="idempotency neighbours")
            self._looking.add_done_callback(_heard)
        return self._looking

    async def _look_around(self) -> None:
        found = await asyncio.to_thread(lambda: store_isolation.check_isolation(registry()))
        self._trouble, self._looked_at = found.trouble, time.monotonic()


def _heard(task: asyncio.Task[None]) -> None:
    """Marks the exception of a check as retrieved: a waiting request gets it, else the next request checks again."""
    if not task.cancelled():
        task.exception()


__all__ = ["PATH", "IdempotencyLifespan"]
