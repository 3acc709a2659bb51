"""Adds what is new in the database to the counts for /metrics every 15 seconds, and publishes them."""

from __future__ import annotations

from recovery.connections.registry import Registry
from recovery.domain.mandate import May, always
from recovery.domain.tallies import Tallies, sums
from recovery.reads import tallies
from recovery.scanners.tallying import acts, incidents
from recovery.scanners.tallying.brakes import Brakes
from recovery.scanners.tallying.quarantine import QuarantineTally

EVERY = 15.0  # seconds: a usual scrape interval


class Tallier:
    """Counts and publishes, for one thread at a time. A new leader goes on from the published counts."""

    def __init__(self, registry: Registry, may: May = always) -> None:
        self._registry = registry
        self._may = may
        self._brakes = Brakes(registry.config)
        self._quarantined = QuarantineTally()
        self._last: Tallies | None = None

    def run(self, now: int) -> Tallies:
        """Counts once, and publishes if this process is the leader. Raises StoreError, and Error of the database."""
        store = self._registry.state()
        found = self._counted(self._last or tallies.fetch(store), now)
        if self._may():
            tallies.publish(store, found)
            self._last = found
        return found

    def _counted(self, before: Tallies | None, now: int) -> Tallies:
        settled, until = incidents.settled(before, now)
        done, audited = acts.since(before)
        return Tallies(
            at=now,
            until=until,
            audited=audited,
            settled=settled,
            durations=sums(settled, incidents.durations(until)),
            acts=done,
            open=incidents.still_open(),
            held=self._brakes.held(now),
            spending=self._brakes.spending(now),
            breakers=self._brakes.breakers(now),
            quarantined=self._quarantined.jobs(now),
        )
