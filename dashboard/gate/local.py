"""The CPU of this machine as this process measures it, for where no monitor tells of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from recovery import shared_clock
from recovery.domain.ewma import Ewma, fed
from recovery.domain.gate import Gate, Sample, Terms, fold
from recovery.domain.servers import Origin
from recovery.errors import ConfigError
from recovery.monitor import counters
from recovery.monitor.agent import FAR, FIRST_LOOK, POLL
from recovery.monitor.cgroups import Cgroups
from recovery.monitor.counters import Counters
from recovery.monitor.identity import server_id
from recovery.shared_clock import steady

log = logging.getLogger(__name__)


def own_id(environ: Mapping[str, str]) -> str:
    """What the monitor of this machine would call it; "" where it would refuse to."""
    try:
        return server_id(environ)
    except ConfigError as error:
        log.info("this machine has no name among the servers: %s", error)
        return ""


class Local:
    """A look every poll, each in a thread: the counters are files."""

    def __init__(self, server: str, terms: Terms) -> None:
        self._server = server or Origin.LOCAL.value
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
        """For ever; what cannot be read now is read anew, and meanwhile nobody passes for what is not known."""
        while True:
            try:
                await self._measure()
            except Exception:  # whatever a system has instead of these files
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

    def _look(self, before: Counters, now: Counters, at: int) -> bool:
        """Whether the two said anything."""
        shares = now.since(before)
        if shares is None or now.at - before.at > FAR:
            self._average = None
            return False
        self._average = fed(self._average, shares.raw, now.at)
        sample = Sample(at, at, int(POLL * 1000), shares.raw, self._average.value, Origin.LOCAL.value)
        self._gate = fold(self._gate, self._server, sample, self._terms, at)
        return True


def _read(cgroups: Cgroups) -> Counters:
    return counters.read(cgroups, steady())
