"""Checks all active jobs every few seconds: makes verdicts, publishes the inbox, opens and closes incidents.

`Rescue` recovers lost jobs where the policy permits it. What has to be remembered (since when a job has been without a
lock, which workers connected and left) is kept in the state store, so that a restart proves nothing anew and forgets
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from django.db import Error

from recovery.actions import hooks
from recovery.connections.registry import Registry
from recovery.domain.acting import Outcome
from recovery.domain.counts import Snapshot
from recovery.domain.inbox import ROW_LIMIT, Inbox, ordered
from recovery.domain.mandate import May, always
from recovery.domain.n8n import lines
from recovery.domain.n8n.pairs import Truth
from recovery.domain.refs import QueueRef
from recovery.domain.scans import Report
from recovery.errors import ConfigError, StoreError, WritesRefused
from recovery.reads import inboxes
from recovery.reads.n8n import truths
from recovery.scanners.acting.deeds import Deeds
from recovery.scanners.acting.rescue import Rescue
from recovery.scanners.watching.beat import Beat, Found
from recovery.scanners.watching.casebook import Casebook
from recovery.scanners.watching.resolution import SCANNER, Resolved
from recovery.scanners.watching.store_brake import StoreBrake
from recovery.scanners.watching.table_beat import TableBeat

NO_SNAPSHOT = "No snapshot has been taken yet, so no queue has been checked."


class OrphanWatch:
    """Orphan watch of all deployments. `newest` gives the last snapshot. `writes` off: state store and database are at
    most read.

    `may`: a pass that was begun as leader and is ready when another one leads must not overwrite its newer results.
    """

    def __init__(
        self,
        registry: Registry,
        newest: Callable[[], Snapshot | None],
        *,
        writes: bool = True,
        may: May = always,
        brake: StoreBrake | None = None,
    ) -> None:
        self._registry = registry
        self._may = may
        self._newest = newest
        casebook = Casebook(partial(hooks.tell, registry.config)) if writes else None
        self._casebook = casebook
        self._beats: list[Beat | TableBeat] = [
            *(Beat(registry, deployment, casebook, brake) for deployment in registry.config.deployments),
            *(TableBeat(registry, database, casebook) for database in registry.config.databases),
        ]
        self._rescue = Rescue(registry)
        self._found: list[Found] = []
        self.lost_at: frozenset[str] = frozenset()  # deployments where the last pass found lost jobs

    @property
    def is_pending(self) -> bool:
        """Returns True if the next snapshot may prove what is only a suspicion now."""
        return self._rescue.is_pending

    def scan(
        self,
        now: int,
        deeds: Callable[[bool], Deeds],
        *,
        observes: bool = False,
        queue: QueueRef | None = None,
    ) -> Report:
        """Runs one pass and the actions that are permitted. `deeds` builds the actions of one run, dry or not.

        Raises StoreError when the state store does not answer, before anything is done.
        """
        inbox = self.run(now) if self._casebook else self.look(now)
        try:
            report = self._rescue.act(self._found, deeds(observes), queue=queue, tells=observes or queue is not None)
            self._close(report, now)
        except Error as error:
            report = Report(faults=(f"Nothing is changed, because the database answered {type(error).__name__}.",))
        looked, faults = inbox.looked, (*inbox.faults, *report.faults)
        reached = sum(not one.faults for one in self._found)
        return replace(report, looked=looked, faults=tuple(dict.fromkeys(faults)), count=inbox.stuck, reached=reached)

    def _close(self, report: Report, now: int) -> None:
        """Closes incidents of recovered jobs at once: a job that is lost again before the next pass gets a new one."""
        for beat in self._beats:
            if isinstance(beat, Beat):
                beat.doubt(find.job for find in report.finds if find.outcome is not None)
        groups: dict[QueueRef, dict[str, Resolved]] = {}
        for find in report.finds:
            if find.outcome is Outcome.DONE:
                groups.setdefault(find.job.queue, {})[find.job.id] = Resolved(SCANNER, find.audit)
        for queue, ends in groups.items():
            if self._casebook:
                known = self._casebook.cases(queue)
                self._casebook.close(queue, {id: end for id, end in ends.items() if id in known}, now)

    def run(self, now: int) -> Inbox:
        """Runs one pass and publishes it. A state store that refuses writes is a fault of the pass, which acts all the
        same on what was read. Raises StoreError when the store does not answer, after everything else is done.
        """
        inbox = self.look(now)
        if not self._may():
            return inbox
        try:
            inboxes.publish(self._registry.state(), inbox)
        except WritesRefused as error:
            fault = f"Its results cannot be shown, because the state store refuses writes: {error}."
            return replace(inbox, faults=(*inbox.faults, fault))
        return inbox

    def look(self, now: int) -> Inbox:
        """Runs one pass without publishing it."""
        snapshot = self._newest()
        self._found = []
        if snapshot is None:
            return Inbox(now, faults=(NO_SNAPSHOT,))
        faults = self._open_casebook()
        found = [beat.look(snapshot, now) for beat in self._beats]
        self._found = found
        self.lost_at = frozenset(tally.queue.deployment for one in found for tally in one.tallies if tally.lost)
        rows = ordered([row for one in found for row in one.rows])
        inbox = Inbox(
            checked_at=now,
            rows=tuple(rows[:ROW_LIMIT]),
            queues=tuple(tally for one in found for tally in one.tallies),
            faults=(*faults, *dict.fromkeys(fault for one in found for fault in one.faults)),
        )
        named = [one.name for one in self._registry.config.n8n if one.database]
        return lines.merged(inbox, self._truths(), named)

    def _truths(self) -> tuple[Truth, ...]:
        """Returns the last comparison of n8n's executions, as the leader published it."""
        if not self._registry.config.n8n:
            return ()
        try:
            return truths.fetch(self._registry.state())
        except (ConfigError, StoreError):
            return ()

    def _open_casebook(self) -> tuple[str, ...]:
        if self._casebook is None:
            return ()
        try:
            self._casebook.load()
        except Error as error:
            self._casebook.forget()
            return (f"Incidents cannot be read: {type(error).__name__}.",)
        return ()
