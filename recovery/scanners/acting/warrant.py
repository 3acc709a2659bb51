"""Builds the permission checks of scanner runs: the leader's term, the current policies, and what blocks a scanner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recovery import shared_clock
from recovery.connections.registry import Registry
from recovery.domain.mandate import Mandate
from recovery.domain.refs import QueueRef
from recovery.domain.scans import Scan
from recovery.reads.blockers import KNOWN_TO_ACTOR, Blockers
from recovery.reads.policies import Following
from recovery.scanners.acting.deeds import Deeds, Holding

Brakes = Callable[[str], tuple[str, ...]]  # deployment → why auto-recovery is paused on it; empty: it is not


@dataclass(frozen=True, slots=True)
class Warrant:
    """Permissions of scanners in one term. `mandate` None: the leader is unknown, so nothing may be changed."""

    registry: Registry
    mandate: Mandate | None
    brakes: Brakes

    def deeds(self, scan: Scan, *, observes: bool = False) -> Deeds:
        """Builds the actions of a run. Raises Error of the database: then policies are unknown, and nothing is done."""
        book = Following(self.registry.config)
        return Deeds(self.mandate, scan, book, self.holding(scan), observes=observes)

    def holding(self, scan: Scan) -> Holding:
        """Returns a function that tells what blocks this scanner at a queue, else why its deployment is paused."""

        def holds(queue: QueueRef) -> tuple[str, ...]:
            blockers = Blockers(self.registry, shared_clock.now())
            first = next(blockers.of(scan, queue, without=KNOWN_TO_ACTOR), None)
            return (first.why,) if first else self.brakes(queue.deployment)

        return holds
