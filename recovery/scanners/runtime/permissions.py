"""Builds the permission checks of scanner runs: the leader's term, the current policies, and what blocks a scanner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recovery import shared_clock
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.reads.policies.queries import LivePolicies
from recovery.reads.scanners.blockers import KNOWN_TO_ACTOR, ScannerBlockers
from recovery.scanners.runtime.scanner_actions import BlockingReasons, ScannerActions
from recovery.stores.registry import ConnectionRegistry

PauseReasons = Callable[[str], tuple[str, ...]]  # deployment → why auto-recovery is paused on it; empty: it is not


@dataclass(frozen=True, slots=True)
class ScannerPermissions:
    """Permissions of scanners in one term. `leader_token` None: the leader is unknown, so nothing may be changed."""

    registry: ConnectionRegistry
    leader_token: LeaderToken | None
    pause_reasons: PauseReasons

    def scanner_actions(self, scan: ScannerKind, *, dry_run: bool = False) -> ScannerActions:
        """Builds the actions of a run. Raises Error of the database: then policies are unknown, and nothing is done."""
        book = LivePolicies(self.registry.config)
        return ScannerActions(self.leader_token, scan, book, self.holding(scan), dry_run=dry_run)

    def holding(self, scan: ScannerKind) -> BlockingReasons:
        """Returns a function that tells what blocks this scanner at a queue, else why its deployment is paused."""

        def holds(queue: QueueRef) -> tuple[str, ...]:
            blockers = ScannerBlockers(self.registry, shared_clock.now())
            first = next(blockers.of(scan, queue, without=KNOWN_TO_ACTOR), None)
            return (first.why,) if first else self.pause_reasons(queue.deployment)

        return holds
