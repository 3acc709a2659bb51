"""Which queue a relative's key belongs to, when its parts hold colons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from recovery.backends.registry import reader
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobRelative
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

REF = QueueRef("main", "bull:q")
OURS = reader(LibraryVersion(QueueLibrary.BULLMQ, 5))


@pytest.fixture
def keys(valkey: Store) -> redis.Redis:
    valkey.client.set("bull:q:id", 1)
    valkey.client.hset("bull:q:7", mapping={"name": "parent", "data": "{}"})
    return valkey.client


@pytest.fixture
def pipe(valkey: Store) -> Iterator[Pipe]:
    opened = Pipe(valkey.client)
    yield opened
    opened.close()


def child(keys: redis.Redis, pipe: Pipe, key: str) -> JobRelative:
    keys.sadd("bull:q:7:dependencies", key)
    (only,) = OURS.family(pipe, REF, "7").children
    return only


def ref(base: str, id: str) -> JobRef:
    return QueueRef("main", base).job(id)


def test_a_queue_below_the_one_at_hand_is_the_child_s(keys: redis.Redis, pipe: Pipe) -> None:
    keys.set("bull:q:sub:id", 5)
    assert child(keys, pipe, "bull:q:sub:9").ref == ref("bull:q:sub", "9")


def test_an_id_with_colons_stays_in_the_queue_at_hand(keys: redis.Redis, pipe: Pipe) -> None:
    assert child(keys, pipe, "bull:q:repeat:nightly:1795000156536").ref == ref("bull:q", "repeat:nightly:1795000156536")


def test_a_scheduler_called_id_makes_no_queue(keys: redis.Redis, pipe: Pipe) -> None:
    keys.hset("bull:q:repeat:id", "name", "tick")
    assert child(keys, pipe, "bull:q:repeat:id:1795000156536").ref == ref("bull:q", "repeat:id:1795000156536")


def test_a_prefix_with_colons_is_told_by_the_queue_s_counter(keys: redis.Redis, pipe: Pipe) -> None:
    keys.set("app:eu:mail:id", 5)
    assert child(keys, pipe, "app:eu:mail:a:b").ref == ref("app:eu:mail", "a:b")


def test_a_key_of_no_known_queue_is_shown_as_it_stands(keys: redis.Redis, pipe: Pipe) -> None:
    found = child(keys, pipe, "gone:queue:5")
    assert (found.ref, found.key, found.outcome) == (None, "gone:queue:5", "pending")


def test_a_parent_s_queue_is_what_the_job_says(keys: redis.Redis, pipe: Pipe) -> None:
    parent = {"parentKey": "other:q:x:1", "parent": '{"id":"x:1","queueKey":"other:q"}'}
    keys.hset("bull:q:7", mapping=parent)
    family = OURS.family(pipe, REF, "7")
    assert family.parent is not None
    assert family.parent.ref == ref("other:q", "x:1")


def test_a_parent_that_contradicts_itself_is_looked_up(keys: redis.Redis, pipe: Pipe) -> None:
    keys.hset("bull:q:7", mapping={"parentKey": "bull:q:1", "parent": '{"id":"2","queueKey":"else:where"}'})
    family = OURS.family(pipe, REF, "7")
    assert family.parent is not None
    assert family.parent.ref == ref("bull:q", "1")
