"""Evaluates the gates of all servers from their samples in the leader, and stores them for web processes.

Web processes evaluate the same samples themselves, beginning with the stored gates. A new leader begins with what the
one before stored, so that a change of leaders opens no gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from recovery.connections import faults, state
from recovery.connections.registry import Registry
from recovery.domain.gate import Gate, fold, seeded
from recovery.domain.mandate import May, always
from recovery.domain.refs import raw
from recovery.reads import gates, servers
from recovery.scanners.gating.flips import Flips

EVERY = 2.5  # seconds: twice per sample of a monitor, so that none is missed


class Gates:
    """Evaluates and stores all gates. For one thread at a time."""

    def __init__(self, registry: Registry, may: May = always) -> None:
        self._registry = registry
        self._may = may
        self._gates: dict[str, Gate] = {}
        self._flips = Flips()
        self._cursor = 0  # of the search for servers that are not listed yet

    def run(self, now: int) -> None:
        """Evaluates all gates once. Raises StoreError, and, after the gates are stored, Error of the database."""
        store = self._registry.state()
        if self._may():
            self._cursor = servers.list_new(store, self._cursor, now)
        stored, samples = gates.fetch(store), gates.samples(store, now)
        config = self._registry.config.gate
        found: dict[str, Gate] = {}
        for server, sample in samples.items():
            start = seeded(self._gates.get(server), stored.get(server), sample)
            found[server] = fold(start, server, sample, config.terms_of(server), now)
        self._gates = found
        if self._may():
            listed = servers.seen(store)
            late = {name: one.sampled_at for name, one in samples.items() if one.sampled_at > listed.get(name, 0)}
            servers.touch(store, late)
            _store(store, found, stored)
            self._flips.record(found.values(), now, self._may)


def _store(store: redis.Redis, found: Mapping[str, Gate], stored: Mapping[str, Gate]) -> None:
    """Writes changed gates and removes those of servers that are gone, of which readers then see no fresh sample."""
    changed: dict[Any, Any] = {
        raw(server): gate.encode() for server, gate in found.items() if gate != stored.get(server)
    }
    gone = [raw(server) for server in stored if server not in found]
    if not changed and not gone:
        return
    with faults.guarded(store):
        pipeline = store.pipeline(transaction=True)
        if changed:
            pipeline.hset(state.GATES, mapping=changed)
        if gone:
            pipeline.hdel(state.GATES, *gone)
        pipeline.execute()
