"""The readers over the wires the product uses: the same answers from one server, from Sentinel, from a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recovery.backends import detection
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.stores.redis.client import StoreClient
from tests.support.processes.fleet import Fleet, Library, Queue
from tests.support.stores.cluster import Cluster
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until

PREFIX = "{bull}"  # in a cluster all keys of a queue must lie in one slot


@pytest.fixture
def cluster_wire(cluster: Cluster) -> Iterator[StoreClient]:
    with wired(cluster.url) as wire:
        yield wire


def test_each_generation_is_read_in_a_cluster(library: Library, cluster: Cluster, cluster_wire: StoreClient) -> None:
    _is_read(library.queue(cluster, prefix=PREFIX), cluster_wire)


@pytest.mark.parametrize("generation", ["bull4", "bullmq6"])
def test_a_queue_is_read_through_sentinel(libraries: Fleet, sentinel: Sentinel, generation: str) -> None:
    with wired(sentinel.url) as wire:
        _is_read(libraries[generation].queue(sentinel), wire)


@pytest.mark.parametrize("generation", ["bull4", "bullmq6"])
def test_a_queue_is_read_from_one_server(libraries: Fleet, store: Store, generation: str) -> None:
    with wired(store.url) as wire:
        _is_read(libraries[generation].queue(store), wire)


def test_relatives_in_other_slots_of_a_cluster_are_found(
    libraries: Fleet, cluster: Cluster, cluster_wire: StoreClient
) -> None:
    queue = libraries["bullmq6"].queue(cluster, prefix=PREFIX)
    tree = queue.add_flow([{"name": "child"}], "parent")
    cluster.client.set("bull:far:id", 5)
    cluster.client.hset("bull:far:5", mapping={"name": "distant", "data": "{}"})
    cluster.client.sadd(queue.key(tree["id"], "dependencies"), "bull:far:5")
    ref = QueueRef("main", queue.base)
    (flavour,) = detection.identify(cluster_wire, [queue.base], {})
    assert flavour is not None
    family = reader(flavour).family(cluster_wire, ref, tree["id"])
    assert {child.name for child in family.children} == {"child", "distant"}


def _is_read(queue: Queue, wire: StoreClient) -> None:
    """A job of each kind of place: a list, a sorted set, finished with its payload."""
    queue.add("send", {"to": "Zoë", "result": "sent"})
    worker = queue.work("ok")
    until(lambda: queue.counts()["completed"] == 1)
    worker.close()
    waiting, later = queue.add("next", {"to": "Ann"}), queue.add("later", delay=3_600_000)
    ref = QueueRef("main", queue.base)
    (flavour,) = detection.identify(wire, [queue.base], {})
    assert flavour is not None
    ours = reader(flavour)
    sample, heads = ours.sample(ref, flavour, wire.call(ours.sample_plan(ref)), 0)
    counts = sample.counts
    assert (counts.waiting, counts.delayed, counts.completed, sample.error) == (1, 1, 1, "")
    assert heads[0] == waiting
    assert [row.id for row in ours.page(wire, ref, JobState.DELAYED).rows] == [later]
    (done,) = ours.page(wire, ref, JobState.COMPLETED).rows
    assert (done.name, done.result) == ("send", '"sent"')
    assert "Zoë" in ours.job(wire, ref, done.id).data.value
    assert ours.row(wire, ref, waiting).state is JobState.WAITING
    assert [row.id for row in ours.search(wire, ref, JobState.WAITING, data="Ann").rows] == [waiting]
