"""The leader's turn: it looks for troubles every five seconds, and tells them."""

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
KINDS = frozenset(AlertKind) - {AlertKind.SCHEDULER}  # that nobody leads is told by who sees it: a web process


class Watch:
    """For one term of a leader. One thread at a time."""

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
        """How many messages were taken. Raises django.db.Error."""
        return self._desk.run(self._book, self._sources.look(now))
