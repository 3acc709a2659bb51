"""Evaluates the gates of all servers from their samples in the leader, and stores them for web processes.

Web processes evaluate the same samples themselves, beginning with the stored gates. A new leader begins with what the
one before stored, so that a change of leaders opens no gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from recovery.domain.gate.state_machine import Gate, fold, resume_gate
from recovery.domain.identifiers import encode_name
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.gate import queries as gate_queries
from recovery.gate.transitions import GateTransitions
from recovery.servers import queries as servers_queries
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys

EVERY = 2.5  # seconds: twice per sample of a monitor, so that none is missed


class GateEvaluator:
    """Evaluates and stores all gates. For one thread at a time."""

    def __init__(self, registry: ConnectionRegistry, may: May = always_leader) -> None:
        self._registry = registry
        self._may = may
        self._gates: dict[str, Gate] = {}
        self._flips = GateTransitions()
        self._cursor = 0  # of the search for servers that are not listed yet

    def run(self, now: int) -> None:
        """Evaluates all gates once. Raises StoreError, and, after the gates are stored, Error of the database."""
        store = self._registry.state()
        if self._may():
            self._cursor = servers_queries.list_new(store, self._cursor, now)
        stored, samples = gate_queries.fetch(store), gate_queries.samples(store, now)
        config = self._registry.config.gate
        found: dict[str, Gate] = {}
        for server, sample in samples.items():
            start = resume_gate(self._gates.get(server), stored.get(server), sample)
            found[server] = fold(start, server, sample, config.terms_of(server), now)
        self._gates = found
        if self._may():
            listed = servers_queries.last_seen(store)
            late = {name: one.sampled_at for name, one in samples.items() if one.sampled_at > listed.get(name, 0)}
            servers_queries.touch(store, late)
            _store(store, found, stored)
            self._flips.record(found.values(), now, self._may)


def _store(store: redis.Redis, found: Mapping[str, Gate], stored: Mapping[str, Gate]) -> None:
    """Writes changed gates and removes those of servers that are gone, of which readers then see no fresh sample."""
    changed: dict[Any, Any] = {
        encode_name(server): gate.encode() for server, gate in found.items() if gate != stored.get(server)
    }
    gone = [encode_name(server) for server in stored if server not in found]
    if not changed and not gone:
        return
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=True)
        if changed:
            pipeline.hset(state_keys.GATES, mapping=changed)
        if gone:
            pipeline.hdel(state_keys.GATES, *gone)
        pipeline.execute()
