"""Compares the jobs and executions of each configured n8n, reads its processes, and publishes both for the pages.

When a mismatch without a date was seen first is published too, so that a new leader goes on where the last one was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recovery.domain.n8n.comparison import N8nComparison
from recovery.domain.n8n.instances import InstanceHistory
from recovery.domain.queues.types import Snapshot
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.n8n import comparison_store, instance_store, jobless_executions
from recovery.n8n.comparison import ComparisonRequest, compare
from recovery.stores.registry import ConnectionRegistry

AFTER = 4.0  # seconds: the first snapshot knows the queues of the pools by then


class ComparisonScanner:
    """Compares all configured n8n installations. For one thread at a time."""

    def __init__(
        self, registry: ConnectionRegistry, newest: Callable[[], Snapshot | None], may: May = always_leader
    ) -> None:
        self._registry = registry
        self._newest = newest
        self._may = may
        self._young: dict[str, Mapping[str, int]] | None = None
        self._instances: Mapping[str, InstanceHistory] = {}

    def run(self, now: int) -> tuple[N8nComparison, ...]:
        """Compares each n8n once. Raises StoreError of the state store; other errors are part of the result."""
        store = self._registry.state()
        if self._young is None:
            self._young = {truth.name: truth.young for truth in comparison_store.fetch(store)}
        found = []
        self._instances = self._instances or instance_store.fetch(store)
        self._instances = instance_store.read_all(self._registry, self._instances, now)
        for n8n in self._registry.config.n8n:
            version = instance_store.version_of(self._instances.get(n8n.name))
            request = ComparisonRequest(self._newest(), now, self._young.get(n8n.name, {}), version=version)
            found.append(compare(self._registry, n8n, request))
        if self._may():
            comparison_store.publish(store, found)
            jobless_executions.remember(store, found)
            instance_store.publish(store, self._instances)
            self._young = {truth.name: truth.young for truth in found}
        return tuple(found)
