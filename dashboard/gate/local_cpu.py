"""Measures the CPU of this machine in the web process, for machines without a monitor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from recovery import shared_clock
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
