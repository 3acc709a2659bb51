"""Compares the jobs and executions of each configured n8n, reads its processes, and publishes both for the pages.

When a mismatch without a date was seen first is published too, so that a new leader goes on where the last one was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recovery.connections.registry import Registry
from recovery.domain.counts import Snapshot
from recovery.domain.mandate import May, always
from recovery.domain.n8n.instances import InstanceHistory
from recovery.domain.n8n.pairs import Truth
from recovery.reads.n8n import alone, instances, truths
from recovery.reads.n8n.looking import Wish, look

AFTER = 4.0  # seconds: the first snapshot knows the queues of the pools by then


class Watch:
    """Compares all configured n8n installations. For one thread at a time."""

    def __init__(self, registry: Registry, newest: Callable[[], Snapshot | None], may: May = always) -> None:
        self._registry = registry
        self._newest = newest
        self._may = may
        self._young: dict[str, Mapping[str, int]] | None = None
        self._instances: Mapping[str, InstanceHistory] = {}

    def run(self, now: int) -> tuple[Truth, ...]:
        """Compares each n8n once. Raises StoreError of the state store; other errors are part of the result."""
        store = self._registry.state()
        if self._young is None:
            self._young = {truth.name: truth.young for truth in truths.fetch(store)}
        found = []
        self._instances = self._instances or instances.fetch(store)
        self._instances = instances.looked(self._registry, self._instances, now)
        for n8n in self._registry.config.n8n:
            version = instances.version_of(self._instances.get(n8n.name))
            wish = Wish(self._newest(), now, self._young.get(n8n.name, {}), version=version)
            found.append(look(self._registry, n8n, wish))
        if self._may():
            truths.publish(store, found)
            alone.remember(store, found)
            instances.publish(store, self._instances)
            self._young = {truth.name: truth.young for truth in found}
        return tuple(found)
