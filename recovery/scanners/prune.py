"""Forgets what nobody will ask for again: the queues and the history of deployments that are no longer configured.

Queues that are gone need nothing here: discovery forgets them, and their history ends by its own time to live.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import redis

from recovery.connections import faults, state
from recovery.connections.registry import Registry
from recovery.domain.mandate import May, always

COUNT = 1000  # keys a SCAN call looks at
BATCH = 200  # keys a call removes; UNLINK frees them in the background


class Pruner:
    def __init__(self, registry: Registry, may: May = always) -> None:
        self._registry = registry
        self._may = may
        self._kept = {deployment.name for deployment in registry.config.deployments}

    def run(self, _now: int) -> int:
        """Returns how many keys were removed; raises StoreError."""
        store = self._registry.state()
        removed = 0
        with faults.guarded(store):
            strange = self._strange(store)
            while (batch := list(islice(strange, BATCH))) and self._may():
                removed += len(batch)
                store.unlink(*batch)
        return removed

    def _strange(self, store: redis.Redis) -> Iterator[bytes]:
        for pattern in state.OF_DEPLOYMENTS:
            for key in store.scan_iter(match=pattern, count=COUNT):
                if state.deployment_of(key) not in self._kept:
                    yield key
