"""What the looks remember in the state store, and whose it is."""

from __future__ import annotations

import pytest

from recovery.connections import state
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import Change
from recovery.domain.verdicts import Kind
from recovery.reads import sightings
from recovery.reads.sightings import Mark, Memory, Place
from tests.stores import Store

REF = QueueRef("eu", "bull:\udcff/x")
MARK = Mark(Kind.UNLOCKED, 5, 4, 3, (2, None, 1, 0), 1, 97.0, has_expired=True)
MEMORY = Memory(1, 2, 30_000, 29_000, 9, (Change("a\udcff", 7, "::1"),), (Change("", 8),))


@pytest.mark.parametrize(
    "key", [state.sightings(REF), state.watched("eu"), state.found("eu"), state.history(REF, "1m")]
)
def test_every_key_of_a_deployment_can_be_told_from_others(key: bytes) -> None:
    assert state.deployment_of(key) == "eu"
    assert any(key.startswith(pattern.rstrip(b"*")) for pattern in state.OF_DEPLOYMENTS)


def test_marks_and_memories_come_back_as_they_were(state_store: Store) -> None:
    store = state_store.client
    sightings.save(store, REF, {"a\udc80": MARK, "b": MARK}, ())
    sightings.save(store, REF, {}, ["b"])
    sightings.remember(store, "eu", Place("run", 6, {REF.base: MEMORY}), ())
    assert sightings.marks(store, REF) == {"a\udc80": MARK}
    assert sightings.marks_of(store, REF, ["b", "a\udc80"]) == {"a\udc80": MARK}
    assert sightings.place(store, "eu") == Place("run", 6, {REF.base: MEMORY})
    assert sightings.memory(store, REF) == (MEMORY, 6)
    assert 0 < store.ttl(state.sightings(REF)) <= 7 * 86_400


def test_what_another_version_wrote_is_as_if_it_were_not_there(state_store: Store) -> None:
    store = state_store.client
    store.hset(state.sightings(REF), "a", '["held"]')
    store.hset(state.watched("eu"), mapping={"": "[]", REF.base.encode("utf-8", "surrogateescape"): "x"})
    assert sightings.marks(store, REF) == {}
    assert sightings.place(store, "eu") == Place()
    assert sightings.memory(store, REF) == (Memory(), None)


def test_a_queue_that_is_gone_is_forgotten(state_store: Store) -> None:
    store = state_store.client
    sightings.remember(store, "eu", Place("run", None, {REF.base: MEMORY}), ())
    sightings.remember(store, "eu", Place("run", None, {}), [REF.base])
    assert sightings.place(store, "eu").queues == {}
