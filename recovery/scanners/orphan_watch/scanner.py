"""Checks all active jobs every few seconds: makes verdicts, publishes the inbox, opens and closes incidents.

`OrphanRescue` recovers lost jobs where the policy permits it. What has to be remembered (since when a job has been
without a lock, which workers connected and left) is kept in the state store, so that a restart proves nothing anew and
forgets nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from django.db import Error

from recovery.domain.actions.types import Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n import mismatch_rows
from recovery.domain.n8n.comparison import N8nComparison
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerReport
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.stuck.inbox import ROW_LIMIT, StuckInbox, most_urgent_first
from recovery.errors import ConfigError, StoreError, WritesRefused
from recovery.hooks import outbox
from recovery.n8n import comparison_store
from recovery.reads.stuck import inbox_store
from recovery.scanners.job_tables.orphan_watch import TableOrphanWatch
from recovery.scanners.orphan_watch.deployment_watch import DeploymentFindings, DeploymentWatch
from recovery.scanners.orphan_watch.incident_store import IncidentStore
from recovery.scanners.orphan_watch.redis_pause import RedisPauseGuard
from recovery.scanners.orphan_watch.rescue import OrphanRescue
from recovery.scanners.orphan_watch.resolution import SCANNER, IncidentResolution
from recovery.scanners.runtime.scanner_actions import ScannerActions
from recovery.stores.registry import ConnectionRegistry

NO_SNAPSHOT = "No snapshot has been taken yet, so no queue has been checked."


class OrphanWatch:
    """Orphan watch of all deployments. `newest` gives the last snapshot. `writes` off: state store and database are at
    most read.

    `may`: a pass that was begun as leader and is ready when another one leads must not overwrite its newer results.
    """

    def __init__(
        self,
        registry: ConnectionRegistry,
        newest: Callable[[], Snapshot | None],
        *,
        writes: bool = True,
        may: May = always_leader,
        pause_guard: RedisPauseGuard | None = None,
    ) -> None:
        self._registry = registry
        self._may = may
        self._newest = newest
        incident_store = IncidentStore(partial(outbox.enqueue_event, registry.config)) if writes else None
        self._incident_store = incident_store
        self._beats: list[DeploymentWatch | TableOrphanWatch] = [
            *(
                DeploymentWatch(registry, deployment, incident_store, pause_guard)
                for deployment in registry.config.deployments
            ),
            *(TableOrphanWatch(registry, database, incident_store) for database in registry.config.databases),
        ]
        self._rescue = OrphanRescue(registry)
        self._found: list[DeploymentFindings] = []
        self.lost_at: frozenset[str] = frozenset()  # deployments where the last pass found lost jobs

    @property
    def is_pending(self) -> bool:
        """Returns True if the next snapshot may prove what is only a suspicion now."""
        return self._rescue.is_pending

    def scan(
        self,
        now: int,
        scanner_actions: Callable[[bool], ScannerActions],
        *,
        dry_run: bool = False,
        queue: QueueRef | None = None,
    ) -> ScannerReport:
        """Runs one pass and the actions that are permitted. `scanner_actions` builds those of one run, dry or not.

        Raises StoreError when the state store does not answer, before anything is done.
        """
        inbox = self.run(now) if self._incident_store else self.look(now)
        try:
            report = self._rescue.act(
                self._found, scanner_actions(dry_run), queue=queue, tells=dry_run or queue is not None
            )
            self._close(report, now)
        except Error as error:
            report = ScannerReport(
                faults=(f"Nothing is changed, because the database answered {type(error).__name__}.",)
            )
        looked, faults = inbox.looked, (*inbox.faults, *report.faults)
        reached = sum(not one.faults for one in self._found)
        return replace(report, looked=looked, faults=tuple(dict.fromkeys(faults)), count=inbox.stuck, reached=reached)

    def _close(self, report: ScannerReport, now: int) -> None:
        """Closes incidents of recovered jobs at once: a job that is lost again before the next pass gets a new one."""
        for beat in self._beats:
            if isinstance(beat, DeploymentWatch):
                beat.doubt(find.job for find in report.finds if find.outcome is not None)
        groups: dict[QueueRef, dict[str, IncidentResolution]] = {}
        for find in report.finds:
            if find.outcome is Outcome.DONE:
                groups.setdefault(find.job.queue, {})[find.job.id] = IncidentResolution(SCANNER, find.audit)
        for queue, ends in groups.items():
            if self._incident_store:
                known = self._incident_store.cases(queue)
                self._incident_store.close(queue, {id: end for id, end in ends.items() if id in known}, now)

    def run(self, now: int) -> StuckInbox:
        """Runs one pass and publishes it. A state store that refuses writes is a fault of the pass, which acts all the
        same on what was read. Raises StoreError when the store does not answer, after everything else is done.
        """
        inbox = self.look(now)
        if not self._may():
            return inbox
        try:
            inbox_store.publish(self._registry.state(), inbox)
        except WritesRefused as error:
            fault = f"Its results cannot be shown, because the state store refuses writes: {error}."
            return replace(inbox, faults=(*inbox.faults, fault))
        return inbox

    def look(self, now: int) -> StuckInbox:
        """Runs one pass without publishing it."""
        snapshot = self._newest()
        self._found = []
        if snapshot is None:
            return StuckInbox(now, faults=(NO_SNAPSHOT,))
        faults = self._open_incident_store()
        found = [beat.look(snapshot, now) for beat in self._beats]
        self._found = found
        self.lost_at = frozenset(tally.queue.deployment for one in found for tally in one.tallies if tally.lost)
        rows = most_urgent_first([row for one in found for row in one.rows])
        inbox = StuckInbox(
            checked_at=now,
            rows=tuple(rows[:ROW_LIMIT]),
            queues=tuple(tally for one in found for tally in one.tallies),
            faults=(*faults, *dict.fromkeys(fault for one in found for fault in one.faults)),
        )
        named = [one.name for one in self._registry.config.n8n if one.database]
        return mismatch_rows.merge_mismatches(inbox, self._truths(), named)

    def _truths(self) -> tuple[N8nComparison, ...]:
        """Returns the last comparison of n8n's executions, as the leader published it."""
        if not self._registry.config.n8n:
            return ()
        try:
            return comparison_store.fetch(self._registry.state())
        except (ConfigError, StoreError):
            return ()

    def _open_incident_store(self) -> tuple[str, ...]:
        if self._incident_store is None:
            return ()
        try:
            self._incident_store.load()
        except Error as error:
            self._incident_store.forget()
            return (f"Incidents cannot be read: {type(error).__name__}.",)
        return ()
