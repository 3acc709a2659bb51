"""The look at all active jobs, every few seconds: verdicts for all, the inbox, and incidents opened and closed.

It reads the queues and never writes to them. What it has to remember (since when a job has been without a lock, who
came and went) is kept in the state store, so that a restart proves nothing anew and forgets nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import Error

from recovery.connections.registry import Registry
from recovery.domain.counts import Snapshot
from recovery.domain.inbox import ROW_LIMIT, Inbox, ordered
from recovery.domain.mandate import May, always
from recovery.reads import inboxes
from recovery.scanners.beat import Beat
from recovery.scanners.casebook import Casebook

NO_SNAPSHOT = "No snapshot has been taken yet, so no queue has been looked at."


class OrphanWatch:
    """`newest` gives the last snapshot. With `writes` off state store and database are read at most.

    `may`: what was seen with leave, and is ready without, must not cover the newer look of another.
    """

    def __init__(
        self, registry: Registry, newest: Callable[[], Snapshot | None], *, writes: bool = True, may: May = always
    ) -> None:
        self._registry = registry
        self._may = may
        self._newest = newest
        casebook = Casebook() if writes else None
        self._casebook = casebook
        self._beats = [Beat(registry, deployment, casebook) for deployment in registry.config.deployments]

    def run(self, now: int) -> Inbox:
        """One look, published; raises StoreError when it cannot be, after everything else is done."""
        inbox = self.look(now)
        if self._may():
            inboxes.publish(self._registry.state(), inbox)
        return inbox

    def look(self, now: int) -> Inbox:
        """One look without publishing."""
        snapshot = self._newest()
        if snapshot is None:
            return Inbox(now, faults=(NO_SNAPSHOT,))
        faults = self._open_casebook()
        found = [beat.look(snapshot, now) for beat in self._beats]
        rows = ordered([row for one in found for row in one.rows])
        return Inbox(
            checked_at=now,
            rows=tuple(rows[:ROW_LIMIT]),
            queues=tuple(tally for one in found for tally in one.tallies),
            faults=(*faults, *dict.fromkeys(fault for one in found for fault in one.faults)),
        )

    def _open_casebook(self) -> tuple[str, ...]:
        if self._casebook is None:
            return ()
        try:
            self._casebook.load()
        except Error as error:
            self._casebook.forget()
            return (f"Incidents cannot be read: {type(error).__name__}.",)
        return ()
