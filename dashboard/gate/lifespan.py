"""Starts and stops the gate of this web process, and runs the task that records its decisions."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from redis.asyncio import Redis

from dashboard.gate.admission_lock import AdmissionArbiter
from dashboard.gate.admissions import Admissions
from dashboard.gate.asgi import PATH, CpuGate
from dashboard.gate.decision_log import GateDecisionLog
from dashboard.gate.local_cpu import LocalCpu, own_id
from dashboard.live.asgi import Receive, Scope, Send, refuse
from dashboard.live.cached_state import CachedState
from recovery import config, shared_clock
from recovery.stores.state import async_client

log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
LAST_FLUSH_SECONDS = 1.0  # at the end; what is not written by then is lost


class GateLifespan:
    """ASGI application that builds the gate at `start` and answers 503 before it and after `stop`."""

    def __init__(self, picture: Callable[[], CachedState | None]) -> None:
        self._picture = picture
        self._notes = GateDecisionLog()
        self._app: CpuGate | None = None
        self._local: LocalCpu | None = None
        self._client: Redis | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            await refuse(send, 503, "This process is starting or stopping.", [(b"retry-after", b"5")])
            return
        await self._app(scope, receive, send)

    def start(self) -> None:
        settings = config.current()
        own, gating = own_id(os.environ), settings.gate
        self._local = LocalCpu(own, gating.terms_of(own))
        self._local.start()
        keeper = Admissions(self._picture, self._local.gate, own, gating, _now())
        referee = AdmissionArbiter(self._store)
        self._app = CpuGate(keeper, self._notes, referee, opens_on_loopback=gating.open_on_loopback, clock=_now)
        self._flushing = asyncio.create_task(self._flush_for_ever(), name="gate notes")

    async def stop(self) -> None:
        self._app = None
        if self._flushing:
            self._flushing.cancel()
        if self._local:
            self._local.stop()
        try:
            async with asyncio.timeout(LAST_FLUSH_SECONDS):
                await self._notes.flush(self._store, _now())
        except Exception:
            log.info("the last gate decisions could not be recorded", exc_info=True)
        if self._client:
            await self._client.aclose()
            self._client = None

    def _store(self) -> Redis:
        """Returns the one client of the state store; it connects when needed and reconnects. Raises ConfigError."""
        self._client = self._client or async_client.state_client(config.current())
        return self._client

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self._notes.flush(self._store, _now())
            except Exception:  # any failure: the next flush tries again
                log.exception("gate decisions cannot be recorded")


def _now() -> int:
    return shared_clock.now()


__all__ = ["PATH", "GateLifespan"]
