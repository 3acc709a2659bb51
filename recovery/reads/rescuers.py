"""Predicts what the scanners would do in a queue now: what its policy allows, and what blocks them."""

from __future__ import annotations

from functools import cached_property

from django.db import Error

from recovery.backends import operator
from recovery.connections.registry import Registry
from recovery.domain.acting import Act
from recovery.domain.counts import Flavour, Snapshot
from recovery.domain.policy import Duty, Scanner
from recovery.domain.refs import QueueRef
from recovery.domain.rescuers import NOBODY, Armed, Rescuers
from recovery.domain.scans import Scan
from recovery.errors import ConfigError, StoreError
from recovery.reads import pulses, scans
from recovery.reads.blockers import Blockers
from recovery.reads.lists import Queue
from recovery.reads.policies import Book

_NOT_CHANGED = "this queue is read-only"


class Lookout:
    """Predictions at one moment; reads the database and the state store once, on first use.

    While the policies cannot be read, no recovery is predicted.
    """

    def __init__(self, registry: Registry, now: int, snapshot: Snapshot | None = None) -> None:
        self._registry = registry
        self._blockers = Blockers(registry, now, snapshot)

    def of(self, queue: QueueRef, flavour: Flavour) -> Rescuers:
        if self._book is None:
            return NOBODY
        policy = self._book.of(queue).policy
        held = _NOT_CHANGED if refusal(Queue(queue, flavour), Act.REQUEUE) else ""
        return Rescuers(
            *(
                self._armed(scan, queue, policy.duty(Scanner(scan)), held) if policy.may_act(Scanner(scan)) else None
                for scan in (Scan.ORPHAN_WATCH, Scan.STALE_CHECK)
            )
        )

    def sweep(self, table: QueueRef) -> Armed | None:
        """Returns the startup sweep as it would act on a job table; None: dry run only, or an unreadable policy."""
        if self._book is None:
            return None
        policy = self._book.of(table).policy
        if not policy.may_act(Scanner.STARTUP_SWEEP):
            return None
        return self._armed(Scan.STARTUP_SWEEP, table, policy.duty(Scanner.STARTUP_SWEEP), "")

    @cached_property
    def _book(self) -> Book | None:
        try:
            return Book.open(self._registry.config)
        except Error:
            return None

    @cached_property
    def _stale_at(self) -> int | None:
        """Next run of the stale check, which is so rare that this tells more than its interval. None: unknown."""
        try:
            pulse = pulses.read(self._registry.state()).get(Scan.STALE_CHECK)
        except (ConfigError, StoreError):
            return None
        return pulse.next_at if pulse else None

    def _armed(self, scan: Scan, queue: QueueRef, duty: Duty, held: str) -> Armed:
        blocked = next(self._blockers.of(scan, queue), None)
        return Armed(
            Scanner(scan),
            every=round(scans.every(self._registry.config, scan) * 1000),
            after=duty.after,
            most=duty.most,
            release=duty.release,
            next_at=self._stale_at if scan is Scan.STALE_CHECK else None,
            held=held or (blocked.clause if blocked else ""),
            ends=blocked.ends if blocked and not held else None,
        )


def refusal(queue: Queue, act: Act) -> str:
    """Returns why this action is impossible for every job of the queue; "" if it is possible."""
    return queue.flavour.read_only or operator(queue.flavour).refusals(queue.flavour).get(act, "")
