"""Starts and stops the gate of this web process, and runs the task that records its decisions."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from redis.asyncio import Redis

from dashboard.gate.admission_lock import AdmissionArbiter
from dashboard.gate.admissions import Admissions
from dashboard.gate.asgi import PATH, CpuGate
from dashboard.gate.decision_log import GateDecisionLog
from dashboard.live.asgi import Receive, Scope, Send, refuse
from dashboard.live.cached_state import CachedState
from recovery import config, shared_clock
from recovery.domain.gate.state_machine import Gate, GateSample, GateThresholds, fold
from recovery.domain.servers.ewma import Ewma, add_sample
from recovery.domain.servers.samples import SampleOrigin
from recovery.errors import ConfigError
from recovery.monitor import cpu_counters
from recovery.monitor.agent import FIRST_LOOK, POLL, RESET_AFTER
from recovery.monitor.cgroups import Cgroups
from recovery.monitor.cpu_counters import CpuCounters
from recovery.monitor.server_id import server_id
from recovery.shared_clock import steady
from recovery.stores.state import async_client

# -- local cpu
# Measures the CPU of this machine in the web process, for machines without a monitor.


log = logging.getLogger(__name__)


def own_id(environ: Mapping[str, str]) -> str:
    """Returns the server id that a monitor here would use; "" if it could not determine one."""
    try:
        return server_id(environ)
    except ConfigError as error:
        log.info("this machine has no name among the servers: %s", error)
        return ""


class LocalCpu:
    """Task that samples the CPU once per poll interval, in a thread because the counters are files."""

    def __init__(self, server: str, terms: GateThresholds) -> None:
        self._server = server or SampleOrigin.LOCAL.value
        self._terms = terms
        self._gate: Gate | None = None
        self._average: Ewma | None = None
        self._task: asyncio.Task[None] | None = None

    def gate(self) -> Gate | None:
        return self._gate

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="local cpu")

    def stop(self) -> None:
        if self._task:
            self._task.cancel()

    async def _run(self) -> None:
        """Measures until cancelled; after a failure it starts again, and meanwhile the last sample ages and expires."""
        while True:
            try:
                await self._measure()
            except Exception:  # systems differ in which of these files they have
                log.exception("the CPU of this machine cannot be measured")
            await asyncio.sleep(POLL)

    async def _measure(self) -> None:
        cgroups = await asyncio.to_thread(Cgroups.find)
        before, wait = await asyncio.to_thread(_read, cgroups), FIRST_LOOK
        while True:
            await asyncio.sleep(wait)
            now = await asyncio.to_thread(_read, cgroups)
            wait = POLL if self._look(before, now, shared_clock.now()) else FIRST_LOOK
            before = now

    def _look(self, before: CpuCounters, now: CpuCounters, at: int) -> bool:
        """Updates the gate from two readings; returns False if they are unusable or too far apart."""
        shares = now.since(before)
        if shares is None or now.at - before.at > RESET_AFTER:
            self._average = None
            return False
        self._average = add_sample(self._average, shares.raw, now.at)
        sample = GateSample(at, at, int(POLL * 1000), shares.raw, self._average.value, SampleOrigin.LOCAL.value)
        self._gate = fold(self._gate, self._server, sample, self._terms, at)
        return True


def _read(cgroups: Cgroups) -> CpuCounters:
    return cpu_counters.read(cgroups, steady())


# -- lifespan


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
