"""Builds all scanners that may act, for one term of the leader or for one run by hand."""

from __future__ import annotations

from collections.abc import Callable

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.hooks.dispatcher import HookDispatcher
from recovery.scanners.auto_retry.scanner import AutoRetry
from recovery.scanners.job_tables.startup_sweep import StartupSweep
from recovery.scanners.orphan_watch.redis_pause import RedisPauseGuard
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.scanners.prune import Pruner
from recovery.scanners.runtime.permissions import ScannerPermissions
from recovery.scanners.runtime.scanner_actions import ScannerActions
from recovery.scanners.runtime.scanner_runner import ScannerFunction
from recovery.scanners.stale_check.scanner import StaleCheck
from recovery.stores.registry import ConnectionRegistry


def sweep_at_worker_start(
    registry: ConnectionRegistry, table: QueueRef, *, owner: str = "", dry_run: bool = False
) -> ScannerReport:
    """Runs the startup sweep of a job table for a worker that has just started, whoever is the leader.

    The policy and the pause of the scanner are obeyed.

    Raises Missing and Unsupported.
    """
    holding = ScannerPermissions(registry, None, _never_paused).holding(ScannerKind.STARTUP_SWEEP)
    return StartupSweep(registry, None, holding).start(table, owner=owner, dry_run=dry_run)


def _never_paused(_database: str) -> tuple[str, ...]:
    """Returns no reason to pause: a table has no locks that its database could lose."""
    return ()


class ScannerRegistry:
    """Scanners that may act. `leader_token` None: the leader is unknown, so they only read. `writes` off: they store
    nothing either.
    """

    def __init__(
        self,
        registry: ConnectionRegistry,
        newest: Callable[[], Snapshot | None],
        leader_token: LeaderToken | None,
        *,
        writes: bool = True,
    ) -> None:
        may = leader_token.holds if leader_token else always_leader
        self._pause_guard = RedisPauseGuard(registry)
        self._warrant = ScannerPermissions(registry, leader_token, self._pause_guard.holding)
        holding = self._warrant.holding
        pause_guard = self._pause_guard if writes else None
        self.watch = OrphanWatch(registry, newest, writes=writes, may=may, pause_guard=pause_guard)
        self.auto_retry = AutoRetry(registry, newest, leader_token, holding(ScannerKind.AUTO_RETRY))
        again = HookDispatcher(registry, may).again
        self._stale = StaleCheck(registry, newest, leader_token, holding(ScannerKind.STALE_CHECK), again)
        self.sweep = StartupSweep(registry, leader_token, holding(ScannerKind.STARTUP_SWEEP))
        self._pruner = Pruner(registry, may)
        self._runs: dict[ScannerKind, ScannerFunction] = {
            ScannerKind.ORPHAN_WATCH: self._watched,
            ScannerKind.STALE_CHECK: self._stale.run,
            ScannerKind.AUTO_RETRY: self.auto_retry.run,
            **({ScannerKind.STARTUP_SWEEP: self.sweep.run} if registry.config.tables else {}),
            ScannerKind.PRUNE: self._pruner.run,
        }

    @property
    def scans(self) -> tuple[ScannerKind, ...]:
        """Scanners that have something to do with this configuration."""
        return tuple(self._runs)

    def run_of(self, scan: ScannerKind) -> ScannerFunction:
        return self._runs[scan]

    def stop(self) -> None:
        """Asks long runs to end after the current step."""
        self.auto_retry.stop()

    def _watched(self, now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport:
        return self.watch.scan(now, self._scanner_actions, dry_run=dry_run, queue=queue)

    def _scanner_actions(self, dry_run: bool) -> ScannerActions:
        return self._warrant.scanner_actions(ScannerKind.ORPHAN_WATCH, dry_run=dry_run)
