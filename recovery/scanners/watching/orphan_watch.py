"""The look at all active jobs, every few seconds: verdicts for all, the inbox, and incidents opened and closed.

What is done about it, where the policy lets it, is the part of `Rescue`. What has to be remembered (since when a job
has been without a lock, who came and went) is kept in the state store, so that a restart proves nothing anew and
forgets nothing.
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
    """`newest` gives the last snapshot. With `writes` off state store and database are read at most.

    `may`: what was seen with leave, and is ready without, must not cover the newer look of another.
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
        self.lost_at: frozenset[str] = frozenset()  # deployments where the last look found lost jobs

    @property
    def is_pending(self) -> bool:
        """The next snapshot may prove what the last one only hinted at."""
        return self._rescue.is_pending

    def scan(
        self,
        now: int,
        deeds: Callable[[bool], Deeds],
        *,
        observes: bool = False,
        queue: QueueRef | None = None,
    ) -> Report:
        """One look, and what may be done about it. `deeds` for one run, told whether it only looks.

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
        """At once: who takes the job next may be gone again before the next look, and that is another incident."""
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
        """One look, published. A state store that takes no writes is a fault of the look, which acts all the same:
        what it goes by was read. Raises StoreError when the store does not answer, after everything else is done.
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
        """One look without publishing."""
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
        """What the last look at n8n's executions found, by whoever leads."""
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
