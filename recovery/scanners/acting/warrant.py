"""What scanners act under: the mandate of their term, the policies as they are now, and whatever may hold them back."""

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

Brakes = Callable[[str], tuple[str, ...]]  # deployment → why its brake holds; empty: it does not


@dataclass(frozen=True, slots=True)
class Warrant:
    """`mandate` None: nobody can know who leads, so nothing may be done."""

    registry: Registry
    mandate: Mandate | None
    brakes: Brakes

    def deeds(self, scan: Scan, *, observes: bool = False) -> Deeds:
        """For one run. Raises Error of the database: what the policies say is not known then, so nothing is done."""
        book = Following(self.registry.config)
        return Deeds(self.mandate, scan, book, self.holding(scan), observes=observes)

    def holding(self, scan: Scan) -> Holding:
        """What blocks this scanner, and after that the brake of the deployment."""

        def holds(queue: QueueRef) -> tuple[str, ...]:
            blockers = Blockers(self.registry, shared_clock.now())
            first = next(blockers.of(scan, queue, without=KNOWN_TO_ACTOR), None)
            return (first.why,) if first else self.brakes(queue.deployment)

        return holds
