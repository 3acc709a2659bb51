"""Predicts what the scanners would do in a queue now: what its policy allows, and what blocks them."""

from __future__ import annotations

from functools import cached_property

from django.db import Error

from recovery.backends.registry import operator
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.enabled_scanners import NO_SCANNERS, EnabledScanner, EnabledScanners
from recovery.domain.policies.types import PolicyScanner, ScannerPolicy
from recovery.domain.queues.types import LibraryVersion, Snapshot
from recovery.domain.scanners.types import ScannerKind
from recovery.errors import ConfigError, StoreError
from recovery.reads.policies.queries import PolicySnapshot
from recovery.reads.queues.job_lists import Queue
from recovery.reads.scanners import last_runs
from recovery.reads.scanners import queries as scanners_queries
from recovery.reads.scanners.blockers import ScannerBlockers
from recovery.stores.registry import ConnectionRegistry

_NOT_CHANGED = "this queue is read-only"


class ScannerForecast:
    """Predictions at one moment; reads the database and the state store once, on first use.

    While the policies cannot be read, no recovery is predicted.
    """

    def __init__(self, registry: ConnectionRegistry, now: int, snapshot: Snapshot | None = None) -> None:
        self._registry = registry
        self._blockers = ScannerBlockers(registry, now, snapshot)

    def of(self, queue: QueueRef, flavour: LibraryVersion) -> EnabledScanners:
        if self._book is None:
            return NO_SCANNERS
        policy = self._book.of(queue).policy
        held = _NOT_CHANGED if action_refusal(Queue(queue, flavour), Action.REQUEUE) else ""
        return EnabledScanners(
            *(
                self._armed(scan, queue, policy.duty(PolicyScanner(scan)), held)
                if policy.may_act(PolicyScanner(scan))
                else None
                for scan in (ScannerKind.ORPHAN_WATCH, ScannerKind.STALE_CHECK)
            )
        )

    def sweep(self, table: QueueRef) -> EnabledScanner | None:
        """Returns the startup sweep as it would act on a job table; None: dry run only, or an unreadable policy."""
        if self._book is None:
            return None
        policy = self._book.of(table).policy
        if not policy.may_act(PolicyScanner.STARTUP_SWEEP):
            return None
        return self._armed(ScannerKind.STARTUP_SWEEP, table, policy.duty(PolicyScanner.STARTUP_SWEEP), "")

    @cached_property
    def _book(self) -> PolicySnapshot | None:
        try:
            return PolicySnapshot.open(self._registry.config)
        except Error:
            return None

    @cached_property
    def _stale_at(self) -> int | None:
        """Next run of the stale check, which is so rare that this tells more than its interval. None: unknown."""
        try:
            pulse = last_runs.read(self._registry.state()).get(ScannerKind.STALE_CHECK)
        except (ConfigError, StoreError):
            return None
        return pulse.next_at if pulse else None

    def _armed(self, scan: ScannerKind, queue: QueueRef, duty: ScannerPolicy, held: str) -> EnabledScanner:
        blocked = next(self._blockers.of(scan, queue), None)
        return EnabledScanner(
            PolicyScanner(scan),
            every=round(scanners_queries.every(self._registry.config, scan) * 1000),
            after=duty.after,
            most=duty.most,
            release=duty.release,
            next_at=self._stale_at if scan is ScannerKind.STALE_CHECK else None,
            held=held or (blocked.clause if blocked else ""),
            ends=blocked.ends if blocked and not held else None,
        )


def action_refusal(queue: Queue, act: Action) -> str:
    """Returns why this action is impossible for every job of the queue; "" if it is possible."""
    return queue.flavour.read_only or operator(queue.flavour).refusals(queue.flavour).get(act, "")
