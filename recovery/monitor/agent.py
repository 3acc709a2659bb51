"""The agent of one server: samples, smooths, publishes, until it is asked to end.

The store may be away for hours: sampling goes on, only the newest sample is kept, and the next attempt to
publish comes after a pause with jitter, so that a hundred servers do not return in the same moment.
"""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recovery.domain.ewma import Ewma, fed
from recovery.errors import ConfigError, StoreError
from recovery.monitor.identity import server_id
from recovery.monitor.publish import Publisher, publisher
from recovery.monitor.sample import Clock, Sample
from recovery.processes.signals import Ending
from recovery.processes.supervisor import WRONG_CALL

POLL = 5.0  # seconds
POLLS_KEPT = 10  # a server that missed so many is gone
FIRST_LOOK = 0.5  # seconds between the two first looks, so that a new server is seen at once
LONGEST_PAUSE = 30.0  # seconds between two attempts to reach a store that is away
KILLED = 1


@dataclass(slots=True)
class Agent:
    """What is carried from one look to the next: the counters, the average, and when to try the store again."""

    server: str
    publisher: Publisher
    clock: Clock
    average: Ewma | None = None
    pause: float = 0.0
    try_at: float = 0.0
    is_away: bool = False

    def look(self, now: float, wall_ms: int, say: Callable[[str], None]) -> None:
        """One sample; published unless the store is away and it is not yet time to try again."""
        clock = Clock.read()
        cpu = clock.percent_since(self.clock)
        self.clock = clock
        if cpu is None:
            return
        self.average = fed(self.average, cpu, now)
        if now >= self.try_at:
            self._publish(self._fields(cpu, Sample.take(), wall_ms), now, say)

    def _fields(self, cpu: float, sample: Sample, wall_ms: int) -> dict[str, str]:
        average = self.average.value if self.average else cpu
        return {
            "cpu_raw": f"{cpu:.1f}",
            "cpu_ema": f"{average:.1f}",
            "cores": str(sample.cores),
            "load1": f"{sample.load1:.2f}",
            "load5": f"{sample.load5:.2f}",
            "load15": f"{sample.load15:.2f}",
            "mem_used": str(sample.mem_used),
            "mem_total": str(sample.mem_total),
            "host": socket.gethostname(),
            "poll_ms": str(int(POLL * 1000)),
            "sampled_at": str(wall_ms),
        }

    def _publish(self, fields: dict[str, str], now: float, say: Callable[[str], None]) -> None:
        try:
            self.publisher.publish(self.server, fields, expires_ms=int(POLL * 1000) * POLLS_KEPT)
        except StoreError as error:
            self.pause = min(max(POLL, self.pause * 2), LONGEST_PAUSE)
            self.try_at = now + self.pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, guards nothing
            if not self.is_away:
                say(f"{error}; sampling goes on. {error.advice}")
            self.is_away = True
        else:
            if self.is_away:
                say("the store is back")
            self.pause, self.try_at, self.is_away = 0.0, 0.0, False


def run(environ: Mapping[str, str]) -> int:
    """Runs until SIGTERM, SIGINT or SIGHUP; the exit status."""
    ending = Ending(lambda: sys.exit(KILLED))
    ending.listen()
    try:
        agent = Agent(server_id(environ), publisher(environ), Clock.read())
    except ConfigError as error:
        _say(str(error))
        return WRONG_CALL
    wait = FIRST_LOOK
    while not ending.wait(wait):
        agent.look(time.monotonic(), int(time.time() * 1000), _say)
        wait = POLL
    agent.publisher.close()
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
