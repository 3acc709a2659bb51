"""Agent of one server: samples, smooths and publishes until a signal ends it."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from zlib import crc32

import psutil

from recovery import config
from recovery.domain.servers.ewma import Ewma, add_sample
from recovery.domain.servers.metric_history import cell_of_sample
from recovery.domain.servers.samples import Server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.errors import ConfigError, StoreError
from recovery.monitor import cpu_counters, settings
from recovery.monitor.cgroups import Cgroups
from recovery.monitor.cpu_counters import CpuCounters, CpuShares
from recovery.monitor.process_table import ProcessTable
from recovery.monitor.settings import MonitorSettings
from recovery.monitor.store_clock import StoreClock
from recovery.processes.signals import StopRequest
from recovery.processes.supervisor import WRONG_CALL
from recovery.servers.sample_store import SampleStore
from recovery.shared_clock import steady
from recovery.stores.state import sync_client

# -- sample publisher
# Publishes samples to the state store, and keeps a backlog while that is away. Sampling goes on meanwhile. The next
# attempt comes after a pause with jitter, so that a hundred servers do not return at the same moment, and writes the
# history of the time between.


LONGEST_PAUSE = 30.0  # seconds between two attempts to reach a store that is away
SHORTEST_PAUSE = 5.0
STRANGERS = 3  # samples in a row of another monitor under our name: a predecessor may leave one

Say = Callable[[str], None]


@dataclass(slots=True)
class SamplePublisher:
    publisher: SampleStore
    times: StoreClock
    say: Say
    backlog: UnsentSamples = field(default_factory=UnsentSamples)
    pause: float = 0.0
    try_at: float = 0.0
    is_away: bool = False
    strangers: int = 0

    def bring(self, server: Server, now: float, *, since: int | None = None) -> None:
        """Publishes the newest sample, unless the store is away and it is not yet time to try again."""
        self.backlog.add(cell_of_sample(server), since)
        if now < self.try_at:
            return
        try:
            receipt = self.publisher.publish(server, self.backlog)
        except StoreError as error:
            self._missed(error, now)
        else:
            self._arrived()
            self.times.heard(receipt.now, now)
            self._compare(receipt.before, server)

    def greet(self, server: str, now: float) -> Server | None:
        """Reads the store's time before the first sample (without it our own clock is used), and the last sample of the
        monitor before us.
        """
        try:
            told, before = self.publisher.greet(server)
        except StoreError as error:
            self._missed(error, now)
            return None
        self.times.heard(told, now)
        return before

    def _missed(self, error: StoreError, now: float) -> None:
        self.pause = min(max(SHORTEST_PAUSE, self.pause * 2), LONGEST_PAUSE)
        self.try_at = now + self.pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, guards nothing
        if not self.is_away:
            self.say(f"{error}; sampling goes on. {error.advice}")
        self.is_away = True

    def _arrived(self) -> None:
        if self.is_away:
            self.say("the store is reachable again")
        self.pause, self.try_at, self.is_away = 0.0, 0.0, False

    def _compare(self, before: str, server: Server) -> None:
        """Warns about another monitor with our id: two machines overwrite each other, and the charts show neither."""
        is_other = bool(before) and before != SampleStore.identity(server)
        self.strangers = self.strangers + 1 if is_other else 0
        if self.strangers == STRANGERS:
            self.say(f"another monitor reports as the server {server.id} too. Give each its own UNSTALL_SERVER_ID.")


def make_publisher(environ: Mapping[str, str], times: StoreClock, say: Say) -> SamplePublisher:
    """Returns a publisher for the configured state store; raises ConfigError when there is none."""
    return SamplePublisher(
        SampleStore(sync_client.open_client(sync_client.state_deployment(config.load(environ)))), times, say
    )


# -- agent


# -- gauges
# Reads load, memory, disk and network addresses of the machine.


ADDRESSES = 32  # at most; a host of containers has hundreds, which are not its own
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def read_gauges(disk: str) -> dict[str, Any]:
    """Returns the gauges by their field names in Server; values that cannot be read are left out."""
    memory = psutil.virtual_memory()
    load1, load5, load15 = psutil.getloadavg()
    # `used` differs from system to system; what is not available is used.
    told = {"load1": load1, "load5": load5, "load15": load15, "mem_used": memory.total - memory.available}
    return {**told, "mem_total": memory.total, **_disk(disk)}


def _disk(path: str) -> dict[str, int]:
    try:
        usage = psutil.disk_usage(path)
    except OSError:
        return {}
    return {"disk_used": usage.used, "disk_total": usage.total}


def read_addresses() -> tuple[str, ...]:
    """Returns the addresses of the machine's interfaces, without loopback, link-local and multicast ones."""
    try:
        cards = psutil.net_if_addrs()
    except OSError:
        return ()
    found = {one.address for card in cards.values() for one in card if one.family in _FAMILIES}
    return tuple(sorted(address for address in found if _is_own(address)))[:ADDRESSES]


def _is_own(address: str) -> bool:
    try:
        one = ip_address(address)
    except ValueError:  # with the name of an interface behind it
        return False
    return not (one.is_loopback or one.is_link_local or one.is_unspecified or one.is_multicast)


# -- agent


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
            self.addresses = read_addresses()
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
            **read_gauges(self.settings.disk),
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
