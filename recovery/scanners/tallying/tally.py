"""Every few seconds: what is new in the database is added to what was counted before, and published."""

from __future__ import annotations

from recovery.connections.registry import Registry
from recovery.domain.mandate import May, always
from recovery.domain.tallies import Tallies, sums
from recovery.reads import tallies
from recovery.scanners.tallying import acts, incidents
from recovery.scanners.tallying.brakes import Brakes
from recovery.scanners.tallying.quarantine import QuarantineTally

EVERY = 15.0  # seconds: as often as most scrape


class Tallier:
    """One thread at a time. A new term goes on where the last one was."""

    def __init__(self, registry: Registry, may: May = always) -> None:
        self._registry = registry
        self._may = may
        self._brakes = Brakes(registry.config)
        self._quarantined = QuarantineTally()
        self._last: Tallies | None = None

    def run(self, now: int) -> Tallies:
        """Raises StoreError, and Error of the database."""
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
