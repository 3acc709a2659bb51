"""Checks for problems every five seconds in the leader, and sends alerts."""

from __future__ import annotations

from collections.abc import Callable

from recovery.alerts.channel_backoff import ChannelBackoff
from recovery.alerts.detectors import AlertDetectors
from recovery.alerts.notifier import AlertNotifier, sender_of
from recovery.alerts.store import DatabaseAlertStore
from recovery.domain.alerts.types import AlertKind
from recovery.domain.queues.types import Snapshot
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.scanners.audit_heads import AuditHeadSender
from recovery.stores.registry import ConnectionRegistry

EVERY = 5.0  # seconds
AFTER = 6.0  # seconds after the start of a term: the first look at all active jobs is through
KINDS = frozenset(AlertKind) - {AlertKind.SCHEDULER}  # a missing leader is reported by a web process


class AlertScanner:
    """Detects and sends alerts during one term of the leader. For one thread at a time."""

    def __init__(
        self,
        registry: ConnectionRegistry,
        newest: Callable[[], Snapshot | None],
        may: May = always_leader,
        heads: AuditHeadSender | None = None,
    ) -> None:
        self._sources = AlertDetectors(registry, newest, heads)
        self._book = DatabaseAlertStore(KINDS)
        self._desk = AlertNotifier(sender_of(registry.config), ChannelBackoff(registry.state), may)

    def run(self, now: int) -> int:
        """Runs one check; returns how many messages were accepted. Raises django.db.Error."""
        return self._desk.run(self._book, self._sources.look(now))
