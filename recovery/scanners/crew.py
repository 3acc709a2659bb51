"""Builds all scanners that may act, for one term of the leader or for one run by hand."""

from __future__ import annotations

from collections.abc import Callable

from recovery.connections.registry import Registry
from recovery.domain.counts import Snapshot
from recovery.domain.mandate import Mandate, always
from recovery.domain.refs import QueueRef
from recovery.domain.scans import Report, Scan
from recovery.scanners.acting.deeds import Deeds
from recovery.scanners.acting.turn import Run
from recovery.scanners.acting.warrant import Warrant
from recovery.scanners.deep.auto_retry import AutoRetry
from recovery.scanners.deep.stale_check import StaleCheck
from recovery.scanners.deep.startup_sweep import StartupSweep
from recovery.scanners.following.hooks import Hooks
from recovery.scanners.prune import Pruner
from recovery.scanners.watching.orphan_watch import OrphanWatch
from recovery.scanners.watching.store_brake import StoreBrake


def starting(registry: Registry, table: QueueRef, *, owner: str = "", observes: bool = False) -> Report:
    """Runs the startup sweep of a job table for a worker that has just started, whoever is the leader.

    The policy and the pause of the scanner are obeyed.

    Raises Missing and Unsupported.
    """
    holding = Warrant(registry, None, _no_brake).holding(Scan.STARTUP_SWEEP)
    return StartupSweep(registry, None, holding).start(table, owner=owner, observes=observes)


def _no_brake(_database: str) -> tuple[str, ...]:
    """Returns no reason to pause: a table has no locks that its database could lose."""
    return ()


class Crew:
    """All scanners that may act. `mandate` None: the leader is unknown, so they only read. `writes` off: they store
    nothing either.
    """

    def __init__(
        self,
        registry: Registry,
        newest: Callable[[], Snapshot | None],
        mandate: Mandate | None,
        *,
        writes: bool = True,
    ) -> None:
        may = mandate.holds if mandate else always
        self._brake = StoreBrake(registry)
        self._warrant = Warrant(registry, mandate, self._brake.holding)
        holding = self._warrant.holding
        brake = self._brake if writes else None
        self.watch = OrphanWatch(registry, newest, writes=writes, may=may, brake=brake)
        self.relaunch = AutoRetry(registry, newest, mandate, holding(Scan.AUTO_RETRY))
        again = Hooks(registry, may).again
        self._stale = StaleCheck(registry, newest, mandate, holding(Scan.STALE_CHECK), again)
        self.sweep = StartupSweep(registry, mandate, holding(Scan.STARTUP_SWEEP))
        self._pruner = Pruner(registry, may)
        self._runs: dict[Scan, Run] = {
            Scan.ORPHAN_WATCH: self._watched,
            Scan.STALE_CHECK: self._stale.run,
            Scan.AUTO_RETRY: self.relaunch.run,
            **({Scan.STARTUP_SWEEP: self.sweep.run} if registry.config.tables else {}),
            Scan.PRUNE: self._pruner.run,
        }

    @property
    def scans(self) -> tuple[Scan, ...]:
        """Scanners that have something to do with this configuration."""
        return tuple(self._runs)

    def run_of(self, scan: Scan) -> Run:
        return self._runs[scan]

    def stop(self) -> None:
        """Asks long runs to end after the current step."""
        self.relaunch.stop()

    def _watched(self, now: int, *, observes: bool = False, queue: QueueRef | None = None) -> Report:
        return self.watch.scan(now, self._deeds, observes=observes, queue=queue)

    def _deeds(self, observes: bool) -> Deeds:
        return self._warrant.deeds(Scan.ORPHAN_WATCH, observes=observes)
