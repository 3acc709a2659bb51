"""What the scanners would do in a queue by themselves right now: its policy, who leads, and what holds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from django.db import Error

from recovery.backends import operator
from recovery.config import Config
from recovery.connections.registry import Registry
from recovery.domain.acting import Act
from recovery.domain.counts import Flavour
from recovery.domain.policy import Scanner
from recovery.domain.refs import QueueRef, shown
from recovery.domain.rescuers import NOBODY, Armed, Rescuers
from recovery.domain.scans import Scan
from recovery.errors import ConfigError, StoreError
from recovery.reads import brakes, leading, pulses, scans
from recovery.reads.lists import Queue
from recovery.reads.policies import Book

_BOTH = (Scan.ORPHAN_WATCH, Scan.STALE_CHECK)
_NOT_LED = "no scheduler leads"
_PAUSED = "it is paused"
_HELD = "the Redis brake holds {deployment}"


@dataclass(frozen=True, slots=True)
class _Known:
    """At one moment. `next_at` of the stale check: it is so rare that a run to come tells more than its interval."""

    book: Book
    paused: frozenset[Scan]
    held: frozenset[str]  # deployments
    is_led: bool
    next_at: int | None


class Lookout:
    """Asks the database and the state store once, when it is asked first. While one is away nothing is promised."""

    def __init__(self, registry: Registry, now: int) -> None:
        self._registry = registry
        self._now = now

    def of(self, queue: QueueRef, flavour: Flavour) -> Rescuers:
        known = self._known
        if known is None or refusal(self._registry.config, Queue(queue, flavour), Act.REQUEUE):
            return NOBODY
        policy = known.book.of(queue).policy
        return Rescuers(*(self._armed(known, scan, queue) if policy.may_act(Scanner(scan)) else None for scan in _BOTH))

    @cached_property
    def _known(self) -> _Known | None:
        store = self._registry.state
        try:
            sign, runs = leading.fetch(store()), pulses.read(store())
            return _Known(
                Book.open(self._registry.config),
                frozenset(scans.pauses()),
                frozenset(one.deployment for one in brakes.stores(self._now, self._registry.config) if one.is_holding),
                sign is not None and sign.leads,
                runs[Scan.STALE_CHECK].next_at if Scan.STALE_CHECK in runs else None,
            )
        except (ConfigError, StoreError, Error):
            return None

    def _armed(self, known: _Known, scan: Scan, queue: QueueRef) -> Armed:
        duty = known.book.of(queue).policy.duty(Scanner(scan))
        return Armed(
            Scanner(scan),
            every=round(scans.every(self._registry.config, scan) * 1000),
            after=duty.after,
            most=duty.most,
            release=duty.release,
            next_at=known.next_at if scan is Scan.STALE_CHECK else None,
            held=_held(known, scan, queue.deployment),
        )


def refusal(config: Config, queue: Queue, act: Act) -> str:
    """Why this cannot be done to a queue at all, whatever its jobs are; "" when it can. Raises DeploymentMissing."""
    if config.deployment(queue.ref.deployment).read_only:
        return f"The deployment {shown(queue.ref.deployment)} is configured to be read only."
    return queue.flavour.read_only or operator(queue.flavour).refusals(queue.flavour).get(act, "")


def _held(known: _Known, scan: Scan, deployment: str) -> str:
    if not known.is_led:
        return _NOT_LED
    if scan in known.paused:
        return _PAUSED
    return _HELD.format(deployment=shown(deployment)) if deployment in known.held else ""
