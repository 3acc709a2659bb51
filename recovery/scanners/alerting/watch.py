"""Checks for problems every five seconds in the leader, and sends alerts."""

from __future__ import annotations

from collections.abc import Callable

from recovery.connections.registry import Registry
from recovery.domain.alerts import AlertKind
from recovery.domain.counts import Snapshot
from recovery.domain.mandate import May, always
from recovery.scanners.alerting.book import Rows
from recovery.scanners.alerting.desk import Desk, sender_of
from recovery.scanners.alerting.outlets import Outlets
from recovery.scanners.alerting.sources import Sources
from recovery.scanners.audit_heads import AuditHeadSender

EVERY = 5.0  # seconds
AFTER = 6.0  # seconds after the start of a term: the first look at all active jobs is through
KINDS = frozenset(AlertKind) - {AlertKind.SCHEDULER}  # a missing leader is reported by a web process


class Watch:
    """Detects and sends alerts during one term of the leader. For one thread at a time."""

    def __init__(
        self,
        registry: Registry,
        newest: Callable[[], Snapshot | None],
        may: May = always,
        heads: AuditHeadSender | None = None,
    ) -> None:
        self._sources = Sources(registry, newest, heads)
        self._book = Rows(KINDS)
        self._desk = Desk(sender_of(registry.config), Outlets(registry.state), may)

    def run(self, now: int) -> int:
        """Runs one check; returns how many messages were accepted. Raises django.db.Error."""
        return self._desk.run(self._book, self._sources.look(now))
