"""Checks in each store whether its user has the permissions that scanners need: when a term begins, then every RETRY.

In Redis one queue of each prefix is checked, as an ACL names prefixes; in a database each job table. A store that
is configured to be read only is not checked.
"""

from __future__ import annotations

from collections.abc import Callable

import redis

from recovery.backends.job_tables import permissions as sql_rights
from recovery.backends.redis_common import permissions
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot
from recovery.errors import QueueMissing, StoreError
from recovery.reads.scanners import rights_refusals
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient

EVERY = 2.0  # seconds: a newly found queue is checked before its jobs have been lost for long


class StoreRightsCheck:
    """Checker of permissions; for one thread at a time."""

    def __init__(self, registry: ConnectionRegistry, newest: Callable[[], Snapshot | None]) -> None:
        self._registry = registry
        self._newest = newest
        self._asked_at: dict[tuple[str, str], int] = {}

    def run(self, now: int) -> None:
        """Checks what is due. Raises StoreError of the state store."""
        snapshot = self._newest()
        if snapshot is None:
            return
        silent = {one.name for one in snapshot.deployments if one.error}
        for deployment in self._registry.config.places:
            if not deployment.read_only and deployment.name not in silent:
                refs = [sample.ref for sample in snapshot.queues if sample.ref.deployment == deployment.name]
                self._ask({rights_refusals.prefix_of(ref): ref for ref in refs}, now)

    def _ask(self, prefixes: dict[str, QueueRef], now: int) -> None:
        due = [ref for prefix, ref in prefixes.items() if self._is_due((ref.deployment, prefix), now)]
        refused = []
        for ref in due:
            try:
                lacking = self._lacking(ref)
            except (StoreError, QueueMissing, redis.ResponseError):
                continue  # the error shows nothing about permissions
            self._asked_at[ref.deployment, rights_refusals.prefix_of(ref)] = now
            self._learn(ref, lacking)
            if lacking:
                refused.append((ref, lacking))
        if refused and len(refused) == len(prefixes):
            rights_refusals.note(self._registry.state(), *refused[0], is_all=True)

    def _lacking(self, ref: QueueRef) -> str | None:
        wire = self._registry.wire(ref.deployment)
        return (
            sql_rights.missing_permissions(wire, ref)
            if isinstance(wire, SqlClient)
            else permissions.missing_permissions(wire, ref)
        )

    def _is_due(self, place: tuple[str, str], now: int) -> bool:
        asked_at = self._asked_at.get(place)
        return asked_at is None or not 0 <= now - asked_at < rights_refusals.RETRY

    def _learn(self, ref: QueueRef, lacking: str | None) -> None:
        store = self._registry.state()
        if lacking:
            rights_refusals.note(store, ref, lacking)
            return
        known = rights_refusals.refusal_of_queue(ref, rights_refusals.fetch(store))
        if known and (lacking == "" or not known.was_tried):
            rights_refusals.forget(store, ref)
