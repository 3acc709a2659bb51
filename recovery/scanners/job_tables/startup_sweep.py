"""Requeues rows of job tables left running by a process that is gone, or fails them if their attempts are used up.

Every minute by what a row itself shows: an expired lease, an old heartbeat, an age above the limit. And when a
worker reports that it has just started, every row that was running before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from recovery import shared_clock
from recovery.backends.job_tables import server_uptime, sweep
from recovery.backends.job_tables.sweep import OrphanRow, SweepTrigger
from recovery.config import JobTable
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.scanners.types import ScannerFinding, ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.domain.time_units import SECOND, age
from recovery.errors import BadOrder, ConfigError, StoreError, UnstallError
from recovery.reads.policies.queries import LivePolicies
from recovery.reads.queues import outages
from recovery.scanners.collect.outage_tracker import OutageTracker
from recovery.scanners.runtime.scanner_actions import BlockingReasons, ScannerActionRequest, ScannerActions
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

log = logging.getLogger(__name__)

TOLD = 1_000  # rows of one run that are left as they are, each with its evidence in words
READ_ONLY = "The database is configured to be read only."


class StartupSweep:
    """Startup sweep; for one thread at a time. `leader_token` None: unknown leader, so a periodic run is dry."""

    def __init__(
        self,
        registry: ConnectionRegistry,
        leader_token: LeaderToken | None,
        holding: BlockingReasons,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._leader_token = leader_token
        self._holding = holding
        self._outages = _Outages(registry, clock)

    def run(self, now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport:
        """Sweeps all tables, or one, for rows whose lease, heartbeat or age shows that no worker holds them."""
        work = self._work(self._leader_token, dry_run)
        for table in self._registry.config.tables:
            ref = QueueRef(table.database, table.name)
            if queue in (None, ref):
                duty = work.scanner_actions.policy(ref).policy.startup_sweep
                work.table(table, SweepTrigger(after=duty.after), now, self._outages.fresh)
        return work.report()

    def start(self, queue: QueueRef, *, owner: str = "", dry_run: bool = False) -> ScannerReport:
        """Sweeps a table whose worker has just started, for rows that ran before; with `owner`, only for its rows.

        The caller need not be the leader: a row is changed only if it is as it was read, so of two concurrent
        sweeps one changes it. Raises Missing and BadOrder.
        """
        wire, occasion = self._registry.wire(queue.deployment), SweepTrigger(is_start=True, owner=owner)
        if not isinstance(wire, SqlClient):
            raise BadOrder(f"{printable(queue.deployment)} is not a database: only rows of job tables are swept.")
        table = wire.table(queue.base)
        sweep.check(table, occasion)
        work = self._work(self._leader_token or LeaderToken(0, always_leader), dry_run)
        work.table(table, occasion, shared_clock.now())
        return work.report()

    def _work(self, leader_token: LeaderToken | None, dry_run: bool) -> _Work:
        book = LivePolicies(self._registry.config)
        return _Work(
            self._registry,
            ScannerActions(leader_token, ScannerKind.STARTUP_SWEEP, book, self._holding, dry_run=dry_run),
        )


class _Outages:
    """Outages of databases: no worker could renew its leases meanwhile, so right after one all running rows look lost.

    A new leader may never have read the database before: so the collector records in the state store how long it gave
    no answer. Time in which no process asked it counts as an outage, as it may not have answered.
    """

    def __init__(self, registry: ConnectionRegistry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._clock = clock
        self._answers = OutageTracker(clock)
        self._back: dict[str, float | None] = {}  # since when it is back; None: it is unavailable

    def fresh(self, table: JobTable) -> str:
        """Returns why expired leases of this table prove nothing yet; "" if they do. Raises StoreError in an outage."""
        name = table.database
        wire = as_sql_client(self._registry.wire(name))
        try:
            up = server_uptime.uptime(wire)
        except StoreError:
            self._back[name] = None
            self._answers.missed(name)
            raise
        self._answers.came(name)
        if name in self._back and self._back[name] is None:
            self._back[name] = self._clock()
        since = self._back.get(name)
        back = None if since is None else round((self._clock() - since) * SECOND)
        # An outage may have ended the term of an earlier sweep in this very process.
        reached = None if wire.reached_for is None else round(wire.reached_for * SECOND)
        spans = (back, up, reached, self._noted(table))
        lasted = min((span for span in spans if span is not None), default=table.heartbeat_limit)
        if lasted >= table.heartbeat_limit or not table.has_proof:
            return ""
        left = age(table.heartbeat_limit - lasted)
        return (
            f"{printable(name)} was unavailable a moment ago, or was not checked: its workers have {left} to renew "
            "their "
            "leases."
        )

    def _noted(self, table: JobTable) -> int | None:
        """Returns how long ago an outage of at least half the limit ended; None: there was none."""
        try:
            store = self._registry.state()
            self._answers.tell(store)
            outage = outages.last(store, table.database)
        except ConfigError:
            return None
        except StoreError:
            return 0 if self._answers.owes else None
        return outage.ended if outage.lasted * 2 >= table.heartbeat_limit else None


def _settled(table: JobTable) -> str:
    return ""


@dataclass(slots=True)
class _Work:
    """State of one run of the startup sweep."""

    registry: ConnectionRegistry
    scanner_actions: ScannerActions
    looked: int = 0
    reached: int = 0  # tables
    found: int = 0
    told: int = 0  # finds of unchanged rows
    finds: list[ScannerFinding] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def table(
        self, table: JobTable, occasion: SweepTrigger, now: int, fresh: Callable[[JobTable], str] = _settled
    ) -> None:
        """Sweeps one table; an error is reported, and does not stop the sweep of other tables."""
        ref = QueueRef(table.database, table.name)
        before, known = len(self.finds), self.found
        try:
            held = fresh(table)
            if held:
                self.holds.append(held)
            elif self.registry.config.deployment(ref.deployment).read_only:
                held = READ_ONLY
            for looked, found in sweep.orphans(self.registry.wire(ref.deployment), ref, occasion):
                self.looked += looked
                self._act(ref, occasion, found, held, now)
            self.reached += 1
        except UnstallError as error:
            self.faults.append(f"{printable(str(ref))}: {error}")
        _tell(ref, self.found - known, self.finds[before:])

    def report(self) -> ScannerReport:
        holds = dict.fromkeys((*self.holds, *self.scanner_actions.holds))
        faults = dict.fromkeys((*self.faults, *self.scanner_actions.faults))
        return ScannerReport(
            self.looked, tuple(self.finds), tuple(holds), tuple(faults), self.found, reached=self.reached
        )

    def _act(self, ref: QueueRef, occasion: SweepTrigger, found: Sequence[OrphanRow], held: str, now: int) -> None:
        self.found += len(found)
        if held:
            self._keep([ScannerFinding(ref.job(one.look.row.id), one.evidence, held) for one in found])
            return
        policy = self.scanner_actions.policy(ref).sentence(PolicyScanner.STARTUP_SWEEP, now)
        options = ActionOptions(at_start=occasion.is_start)
        requests = [ScannerActionRequest(ExpectedJob.of(one.look.row), one.evidence, policy) for one in found]
        self._keep(self.scanner_actions.do(Action.REQUEUE, ref, requests, options))

    def _keep(self, finds: Sequence[ScannerFinding]) -> None:
        """Keeps the finds of all attempts, and the first finds of unchanged rows."""
        left = [find for find in finds if find.outcome is None][: TOLD - self.told]
        self.told += len(left)
        self.finds += [*(find for find in finds if find.outcome is not None), *left]


def _tell(ref: QueueRef, found: int, finds: Sequence[ScannerFinding]) -> None:
    """Logs the counts of a table: for a run by hand this is the only report."""
    if found:
        log.info("startup-sweep of %s: %s", ref, ", ".join(_counted(found, finds)))


def _counted(found: int, finds: Sequence[ScannerFinding]) -> Iterator[str]:
    done = sum(find.outcome is not None and find.outcome.value == "done" for find in finds)
    tried = sum(find.outcome is not None for find in finds)
    yield f"{found:,} rows were left running"
    yield f"{done:,} recovered"
    if refused := tried - done:
        yield f"{refused:,} refused"
    if left := found - tried:
        yield f"{left:,} left unchanged"
