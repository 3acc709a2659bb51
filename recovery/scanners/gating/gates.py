"""The leader's look at the samples of all servers: how their gates stand, for whoever shows them or begins to ask.

Web processes fold the same samples for themselves and take this as their start. What was not known to the leader of
the term before is seeded from what it stored, so that a change of leaders opens no gate.
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

EVERY = 2.5  # seconds: twice a poll, so that no sample is missed


class Gates:
    """One thread at a time."""

    def __init__(self, registry: Registry, may: May = always) -> None:
        self._registry = registry
        self._may = may
        self._gates: dict[str, Gate] = {}
        self._flips = Flips()
        self._cursor = 0  # of the search for servers that are not listed yet

    def run(self, now: int) -> None:
        """Raises StoreError, and with the gates stored Error of the database."""
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
    """A server that is gone has no gate any more: whoever asks for it hears that there is no fresh sample."""
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
