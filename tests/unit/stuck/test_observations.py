"""What the looks remember in the state store, and whose it is."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.context import WorkerChange
from recovery.domain.stuck.types import VerdictKind
from recovery.reads.stuck import observations
from recovery.reads.stuck.observations import DeploymentObservation, JobObservation, QueueObservation
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store

REF = QueueRef("eu", "bull:\udcff/x")
MARK = JobObservation(VerdictKind.UNLOCKED, 5, 4, 3, (2, None, 1, 0), 1, 97.0, has_expired=True)
MEMORY = QueueObservation(1, 2, 30_000, 29_000, 9, (WorkerChange("a\udcff", 7, "::1"),), (WorkerChange("", 8),))


@pytest.mark.parametrize(
    "key",
    [
        state_keys.sightings(REF),
        state_keys.watch_memory("eu"),
        state_keys.discovered_queues("eu"),
        state_keys.history(REF, "1m"),
    ],
)
def test_every_key_of_a_deployment_can_be_told_from_others(key: bytes) -> None:
    assert state_keys.deployment_of(key) == "eu"
    assert any(key.startswith(pattern.rstrip(b"*")) for pattern in state_keys.OF_DEPLOYMENTS)


def test_marks_and_memories_come_back_as_they_were(state_store: Store) -> None:
    store = state_store.client
    observations.save(store, REF, {"a\udc80": MARK, "b": MARK}, ())
    observations.save(store, REF, {}, ["b"])
    observations.remember(store, "eu", DeploymentObservation("run", 6, {REF.base: MEMORY}), ())
    assert observations.marks(store, REF) == {"a\udc80": MARK}
    assert observations.marks_of(store, REF, ["b", "a\udc80"]) == {"a\udc80": MARK}
    assert observations.place(store, "eu") == DeploymentObservation("run", 6, {REF.base: MEMORY})
    assert observations.memory(store, REF) == (MEMORY, 6)
    assert 0 < store.ttl(state_keys.sightings(REF)) <= 7 * 86_400


def test_what_another_version_wrote_is_as_if_it_were_not_there(state_store: Store) -> None:
    store = state_store.client
    store.hset(state_keys.sightings(REF), "a", '["held"]')
    store.hset(state_keys.watch_memory("eu"), mapping={"": "[]", REF.base.encode("utf-8", "surrogateescape"): "x"})
    assert observations.marks(store, REF) == {}
    assert observations.place(store, "eu") == DeploymentObservation()
    assert observations.memory(store, REF) == (QueueObservation(), None)


def test_a_queue_that_is_gone_is_forgotten(state_store: Store) -> None:
    store = state_store.client
    observations.remember(store, "eu", DeploymentObservation("run", None, {REF.base: MEMORY}), ())
    observations.remember(store, "eu", DeploymentObservation("run", None, {}), [REF.base])
    assert observations.place(store, "eu").queues == {}
