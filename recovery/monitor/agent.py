"""Agent of one server: samples, smooths and publishes until a signal ends it."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from recovery.domain.servers.ewma import Ewma, add_sample
from recovery.domain.servers.samples import Server
from recovery.errors import ConfigError
from recovery.monitor import cpu_counters, gauges, settings
from recovery.monitor.cgroups import Cgroups
from recovery.monitor.cpu_counters import CpuCounters, CpuShares
from recovery.monitor.process_table import ProcessTable
from recovery.monitor.sample_publisher import SamplePublisher, make_publisher
from recovery.monitor.settings import MonitorSettings
from recovery.monitor.store_clock import StoreClock
from recovery.processes.signals import StopRequest
from recovery.processes.supervisor import WRONG_CALL
from recovery.shared_clock import steady

if TYPE_CHECKING:
    from recovery.monitor.shipping.shipping_thread import ShippingThread

POLL = 5.0  # seconds
FIRST_LOOK = 0.5  # seconds between the first two samples, so that a new server is seen at once
RESET_AFTER = 6 * POLL  # without a sample for so long (a machine that slept, a stopped process) the average starts anew
ADDRESSES_EVERY = 12  # samples: network interfaces change rarely
KILLED = 1
_MARGIN = 1_000  # ms that a sample stays away from the borders of its period, so that a late one is not in the next
_POLL_MS = int(POLL * 1000)


@dataclass(slots=True)
class Agent:
    """State kept between two samples: the counters, the average, and the process table."""

    settings: MonitorSettings
    courier: SamplePublisher
    times: StoreClock
    read: Callable[[float], CpuCounters]
    crowd: ProcessTable
    counters: CpuCounters
    average: Ewma | None = None
    looks: int = 0
    goes_on: bool = False  # the last attempt gave a sample
    addresses: tuple[str, ...] = ()
    started_at: int = field(init=False)

    def __post_init__(self) -> None:
        self.started_at = self.times.at(self.counters.at)

    @classmethod
    def make(cls, chosen: MonitorSettings, courier: SamplePublisher, times: StoreClock) -> Agent:
        now, crowd = steady(), ProcessTable(chosen.patterns, times)
        read = partial(cpu_counters.read, Cgroups.find())
        if before := courier.greet(chosen.server, now):
            crowd.recall(before.strays)
        return cls(chosen, courier, times, read, crowd, read(now))

    def look(self, now: float) -> float:
        """Takes and publishes one sample; returns how long to wait for the next one, in seconds."""
        before, self.counters = self.counters, self.read(now)
        shares = self.counters.since(before)
        if now - before.at > RESET_AFTER:
            self.average, shares = None, None
        if shares is None:
            self.goes_on = False
            return FIRST_LOOK
        self.average = add_sample(self.average, shares.raw, now)
        server = self._server(shares, now)
        self.courier.bring(server, now, since=self.times.at(before.at) if self.goes_on else None)
        self.goes_on = True
        return self.pause(self.times.at(steady()))

    def pause(self, now: int) -> float:
        """Returns the seconds until the next sample: one in each period of five seconds, its moment given by the id."""
        moment = _MARGIN + crc32(self.settings.server.encode()) % (_POLL_MS - 2 * _MARGIN)
        wait = _POLL_MS - (now - moment) % _POLL_MS
        return (wait if wait > _POLL_MS / 2 else wait + _POLL_MS) / 1000

    def _server(self, shares: CpuShares, now: float) -> Server:
        if self.looks % ADDRESSES_EVERY == 0:
            self.addresses = gauges.read_addresses()
        self.looks += 1
        found, limit = self.crowd.look(now), self.counters.limit
        return Server(
            id=self.settings.server,
            host=socket.gethostname(),
            sampled_at=self.times.at(now),
            poll=_POLL_MS,
            started_at=self.started_at,
            cpu_raw=round(shares.raw, 2),
            cpu_ema=None if self.average is None else round(self.average.value, 2),
            cpu_host=None if shares.host is None else round(shares.host, 2),
            cores=limit.cores if limit else float(self.counters.count),
            quota=limit.cores if limit else None,
            addresses=self.addresses,
            processes=found.processes,
            strays=found.strays,
            left_out=found.left_out,
            **gauges.read_gauges(self.settings.disk),
        )


def run(environ: Mapping[str, str]) -> int:
    """Runs until SIGTERM, SIGINT or SIGHUP; returns the exit status."""
    ending = StopRequest(lambda: sys.exit(KILLED))
    ending.listen()
    times = StoreClock(int(time.time() * 1000), steady())
    try:
        chosen = settings.read(environ)
        agent = Agent.make(chosen, make_publisher(environ, times, _say), times)
        shipping = _shipping(chosen, environ, times)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_CALL
    wait = FIRST_LOOK
    while not ending.wait(wait):
        wait = agent.look(steady())
    agent.courier.publisher.close()
    if shipping:
        shipping.end()
    return 0


def _shipping(chosen: MonitorSettings, environ: Mapping[str, str], times: StoreClock) -> ShippingThread | None:
    """Starts log shipping; returns None, and imports none of it, where no logs are configured."""
    if not chosen.shipping.is_wanted:
        return None
    from recovery.monitor.shipping import shipping_thread  # noqa: PLC0415

    make = partial(shipping_thread.make_shipper, chosen.shipping, chosen.server, environ, times, _say)
    return shipping_thread.ShippingThread(make, _say)


def _say(line: str) -> None:
    """Writes a warning to stderr in the format of the other processes: time, level, logger, all in one line."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    sys.stderr.write(f"{at} warn  recovery.monitor  {' | '.join(line.splitlines())}\n")
    sys.stderr.flush()
