"""Publishes samples to the state store, and keeps a backlog while that is away.

Sampling goes on meanwhile. The next attempt comes after a pause with jitter, so that a hundred servers do not return at
the same moment, and writes the history of the time between.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from recovery import config
from recovery.domain.servers.metric_history import cell_of_sample
from recovery.domain.servers.samples import Server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.errors import StoreError
from recovery.monitor.store_clock import StoreClock
from recovery.servers.sample_store import SampleStore
from recovery.stores.state import sync_client

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
