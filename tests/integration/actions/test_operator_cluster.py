"""Acts on a BullMQ queue in a cluster: what a script cannot reach is refused before it writes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from recovery.backends.base import Target
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.backends.bullmq.reader import BullMQReader
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.stores.redis.client import StoreClient
from tests.support.stores.cluster import Cluster
from tests.support.stores.fences import ATTEMPTS, FLAVOURS, Queue
from tests.support.stores.wires import wired

BASE, PARENT = "{one}:q", "{two}:par"  # the tags live on different nodes
FLAVOUR = LibraryVersion(QueueLibrary.BULLMQ, 6, "6.7.0")
OPERATOR = BullMQOperator()
READER = BullMQReader(may_have_markers=False)
NOW = 1_795_000_000_000


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[StoreClient]:
    with wired(cluster.url) as wire:
        yield wire


@pytest.fixture
def target(wire: StoreClient) -> Target:
    return Target(wire, QueueRef("main", BASE), FLAVOUR)


def _put(wire: StoreClient, id: str, place: str, parent: str = "") -> None:
    about = ("parentKey", f"{PARENT}:{parent}", "parent", json.dumps({"id": parent, "queueKey": PARENT}))
    job = ("HSET", f"{BASE}:{id}", "name", "job", "data", "{}", "timestamp", NOW, *(about if parent else ()))
    if parent:
        wire.call([("HSET", f"{PARENT}:{parent}", "name", "parent")])
    wire.call([job, ("ZADD", f"{BASE}:{place}", NOW, id) if place == "failed" else ("LPUSH", f"{BASE}:{place}", id)])


def _seen(target: Target, id: str) -> ExpectedJob:
    return ExpectedJob.of(READER.row(target.wire, target.ref, id))


def test_a_job_is_retried_where_its_slot_lives(target: Target) -> None:
    _put(target.wire, "1", "failed")
    (done,) = OPERATOR.on_jobs(Action.RETRY, target, [_seen(target, "1")], ActionOptions(), NOW)
    assert (done.outcome, done.state) == (Outcome.DONE, JobState.WAITING)
    assert target.wire.call([("LRANGE", f"{BASE}:wait", 0, -1)]) == [[b"1"]]


@pytest.mark.parametrize("act", [Action.RETRY, Action.REMOVE])
def test_a_parent_on_another_node_refuses_it_and_the_others_are_done(target: Target, act: Action) -> None:
    _put(target.wire, "1", "failed", parent="P")
    _put(target.wire, "2", "failed")
    refused, done = OPERATOR.on_jobs(act, target, [_seen(target, id) for id in ("1", "2")], ActionOptions(), NOW)
    assert (refused.outcome, done.outcome) == (Outcome.REFUSED, Outcome.DONE)
    assert "another node of the cluster" in refused.why
    assert target.wire.call([("ZRANGE", f"{BASE}:failed", 0, -1)]) == [[b"1"]]


def test_a_clean_passes_over_it(target: Target) -> None:
    _put(target.wire, "1", "failed", parent="P")
    _put(target.wire, "2", "failed")
    step = OPERATOR.take_away(Action.CLEAN, target, ActionOptions(state=JobState.FAILED), NOW, budget=10)
    assert (step.removed, step.skipped, step.is_finished) == (1, 1, True)


def test_a_job_that_was_taken_away_comes_back(target: Target) -> None:
    _put(target.wire, "1", "wait")
    (done,) = OPERATOR.on_jobs(Action.REMOVE, target, [_seen(target, "1")], ActionOptions(), NOW)
    assert done.kept is not None
    assert OPERATOR.put_back(target, done.kept, NOW).outcome is Outcome.DONE
    assert target.wire.call([("LRANGE", f"{BASE}:wait", 0, -1)]) == [[b"1"]]


@pytest.mark.parametrize("act", [Action.PAUSE, Action.RESUME])
def test_a_queue_is_paused_and_resumed(target: Target, act: Action) -> None:
    _put(target.wire, "1", "wait")
    if act is Action.RESUME:
        OPERATOR.on_queue(Action.PAUSE, target, ActionOptions(), NOW)
    assert OPERATOR.on_queue(act, target, ActionOptions(), NOW).outcome is Outcome.DONE


def test_an_epoch_is_kept_on_the_node_of_its_queue_and_an_older_one_refused(
    cluster: Cluster, wire: StoreClient
) -> None:
    for generation in FLAVOURS:
        queue = Queue(cluster.client, generation, f"{{{generation}}}:q")
        queue.seed()
        assert ATTEMPTS["retry"](queue.target(wire, 7)) is None
        assert queue.met() == 7
        for name, attempt in ATTEMPTS.items():
            assert attempt(queue.target(wire, 6)) == 7, name
        assert ATTEMPTS["promote"](queue.target(wire, 8)) is None
        assert queue.met() == 8
