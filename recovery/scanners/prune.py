"""Deletes expired data: in the database old runs, incidents, safety limits, copies of executions and sessions; in the
state store the queues and the history of deployments that are no longer configured, and the names of servers that were
silent for eight days.

The idempotency ledger deletes expired keys by itself, ten with each call; here the rest is deleted, also when no worker
calls it any more.

Queues that are gone need nothing here: discovery forgets them, and their history ends by its own time to live. The
audit is never pruned.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any

import redis
from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from recovery.actions.safety_limits import auto_retry_limits
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerReport, ScanStatus
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.time_units import DAY
from recovery.gate import transitions
from recovery.idempotency.ledger import Ledger
from recovery.models import Alert, Incident, ScanFind, ScanRun
from recovery.n8n import copy_store
from recovery.servers import queries as servers_queries
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys

COUNT = 1000  # keys a SCAN call looks at
BATCH = 200  # keys a call removes; UNLINK frees them in the background
ROWS = 500  # of a table in one transaction: others want to write meanwhile
RUNS_FOR = 30 * DAY
RUNS = 10_000  # kept at most, the newest
ALERTS_FOR = 90 * DAY  # after they were over
INCIDENTS_FOR = 90 * DAY  # after they were closed; quarantined asks for 72 hours


class Pruner:
    def __init__(self, registry: ConnectionRegistry, may: May = always_leader) -> None:
        self._registry = registry
        self._may = may
        self._kept = {deployment.name for deployment in registry.config.places}

    def run(self, now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport:
        """Deletes expired data; `count` is what was removed, or would be in a dry run. With a `queue` it does nothing.

        Raises StoreError, NotRecorded, and Error of the database.
        """
        if queue is not None:
            return ScannerReport()
        alerts = Alert.objects.filter(resolved_at__lt=now - ALERTS_FOR)
        rows = _runs(now), _incidents(now), alerts, transitions.expired_transitions(now), *copy_store.leftovers(now)
        if dry_run:
            return _removed(sum(found.count() for found in rows) + len(list(self._strange(self._registry.state()))))
        _clear_sessions()
        removed = sum(self._clear(found) for found in rows)
        removed += auto_retry_limits.prune() if self._may() else 0
        removed += servers_queries.forget(self._registry.state(), now) if self._may() else 0
        removed += self._forget_claims()
        return _removed(removed + self._unlink())

    def _clear(self, rows: QuerySet[Any]) -> int:
        """Deletes rows in batches, a run's finds before the run itself; returns how many."""
        removed = 0
        while self._may() and (keys := list(rows.values_list("pk", flat=True)[:ROWS])):
            if rows.model is ScanRun:
                ScanFind.objects.filter(run_id__in=keys).delete()
            rows.model._default_manager.filter(pk__in=keys).delete()
            removed += len(keys)
        return removed

    def _forget_claims(self) -> int:
        """Deletes idempotency keys that have expired by the clock of the store. Each step takes milliseconds."""
        ledger, removed = Ledger(self._registry.state(), self._registry.config.idempotency), 0
        while self._may() and (dropped := ledger.prune()):
            removed += dropped
        return removed

    def _unlink(self) -> int:
        store = self._registry.state()
        removed = 0
        strange = self._strange(store)
        with redis_errors.guarded(store):
            while (batch := list(islice(strange, BATCH))) and self._may():
                removed += len(batch)
                store.unlink(*batch)
        return removed

    def _strange(self, store: redis.Redis) -> Iterator[bytes]:
        with redis_errors.guarded(store):
            for pattern in state_keys.OF_DEPLOYMENTS:
                for key in store.scan_iter(match=pattern, count=COUNT):
                    if state_keys.deployment_of(key) not in self._kept:
                        yield key


def _clear_sessions() -> None:
    """Deletes expired sessions from the session engine of the web process."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()


def _runs(now: int) -> QuerySet[ScanRun]:
    """Returns runs that are too old or too many, but none that is waiting or running."""
    ended = ScanRun.objects.exclude(status__in=(ScanStatus.WAITING, ScanStatus.RUNNING))
    first_kept = ScanRun.objects.order_by("-pk").values_list("pk", flat=True)[RUNS - 1 : RUNS].first()
    old = ended.filter(wanted_at__lt=now - RUNS_FOR)
    return old if first_kept is None else old | ended.filter(pk__lt=first_kept)


def _incidents(now: int) -> QuerySet[Incident]:
    """Returns incidents closed long ago, but none of a job with an open one: quarantine is derived from these rows."""
    same = {name: OuterRef(name) for name in ("deployment", "base", "job")}
    still_open = Incident.objects.filter(**same, closed_at=None)
    return Incident.objects.filter(~Exists(still_open), closed_at__lt=now - INCIDENTS_FOR)


def _removed(count: int) -> ScannerReport:
    return ScannerReport(looked=count, count=count)
