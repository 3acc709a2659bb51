"""A job may move while it is read; what is shown was true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import JobMissing
from tests.support.stores.stores import Store
from tests.support.stuck.restless import Restless

REF = QueueRef("main", "bull:q")
OURS = reader(LibraryVersion(QueueLibrary.BULLMQ, 4))
Change = Callable[[], Any]


def nothing() -> None:
    """Nobody acts."""


@pytest.fixture
def keys(valkey: Store) -> redis.Redis:
    valkey.client.hset("bull:q:7", mapping={"name": "send", "data": "{}", "timestamp": "1795000156536"})
    return valkey.client


@pytest.fixture
def wire(valkey: Store) -> Iterator[Callable[..., Restless]]:
    opened: list[Restless] = []

    def make(*changes: Change) -> Restless:
        opened.append(Restless(valkey.client, changes))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def hold(keys: redis.Redis) -> None:
    keys.lpush("bull:q:active", "7")
    keys.set("bull:q:7:lock", "worker:1", px=30_000)


def finish(keys: redis.Redis) -> None:
    keys.pipeline().lrem("bull:q:active", 0, "7").delete("bull:q:7:lock").zadd("bull:q:completed", {"7": 9}).execute()


def remove(keys: redis.Redis) -> None:
    keys.pipeline().lrem("bull:q:active", 0, "7").delete("bull:q:7:lock", "bull:q:7").execute()


def test_a_job_that_ends_while_the_page_is_read_is_no_orphan(keys: redis.Redis, wire: Callable[..., Restless]) -> None:
    hold(keys)
    assert OURS.page(wire(nothing, lambda: finish(keys)), REF, JobState.ACTIVE).rows == ()


def test_a_job_that_ends_and_is_removed_while_the_page_is_read_is_no_ghost(
    keys: redis.Redis, wire: Callable[..., Restless]
) -> None:
    hold(keys)
    assert OURS.page(wire(nothing, lambda: remove(keys)), REF, JobState.ACTIVE).rows == ()


def test_a_job_that_is_locked_a_moment_after_it_was_fetched_is_held(
    keys: redis.Redis, wire: Callable[..., Restless]
) -> None:
    keys.lpush("bull:q:active", "7")
    busy = wire(nothing, nothing, nothing, lambda: keys.set("bull:q:7:lock", "worker:1", px=30_000))
    (row,) = OURS.page(busy, REF, JobState.ACTIVE).rows
    assert row.lock is not None


def test_a_job_that_moves_on_while_it_is_looked_for_is_found(keys: redis.Redis, wire: Callable[..., Restless]) -> None:
    keys.lpush("bull:q:wait", "7")
    busy = wire(nothing, lambda: keys.lmove("bull:q:wait", "bull:q:active", "RIGHT", "LEFT"))
    assert OURS.row(busy, REF, "7").state is JobState.ACTIVE


def test_a_job_that_ends_while_it_is_looked_for_is_completed(keys: redis.Redis, wire: Callable[..., Restless]) -> None:
    hold(keys)
    assert OURS.row(wire(nothing, nothing, lambda: finish(keys)), REF, "7").state is JobState.COMPLETED


def test_a_job_that_is_removed_while_it_is_looked_for_is_missing(
    keys: redis.Redis, wire: Callable[..., Restless]
) -> None:
    hold(keys)
    with pytest.raises(JobMissing):
        OURS.row(wire(nothing, nothing, lambda: remove(keys)), REF, "7")


def test_a_hash_that_no_list_holds_is_of_unknown_state(keys: redis.Redis, wire: Callable[..., Restless]) -> None:
    row = OURS.row(wire(), REF, "7")
    assert (row.state, row.name) == (JobState.UNKNOWN, "send")


def test_a_job_is_found_by_a_server_that_knows_no_lpos(serve: Callable[..., Store]) -> None:
    store = serve(options={"rename-command": 'LPOS ""'})
    store.client.lpush("bull:q:wait", "7", *range(100, 1600))
    wire = Restless(store.client, ())
    assert OURS.row(wire, REF, "7").state is JobState.WAITING
    page = OURS.page(wire, REF, JobState.WAITING, size=5)
    assert len(OURS.page(wire, REF, JobState.WAITING, size=5, cursor=page.next).rows) == 5
    wire.close()


def test_a_job_is_found_where_lpos_is_not_granted(keys: redis.Redis, valkey: Store) -> None:
    keys.lpush("bull:q:wait", "7", *range(100, 1600))
    keys.acl_setuser("old", enabled=True, nopass=True, keys=["*"], commands=["+@read", "-lpos"])
    client = valkey.connect(username="old", password="any")
    wire = Restless(client, ())
    assert OURS.row(wire, REF, "7").state is JobState.WAITING
    assert OURS.row(wire, REF, "7").missing is False
    wire.close()
    client.close()


def test_a_lock_we_may_not_see_is_not_said_to_be_absent(keys: redis.Redis, valkey: Store) -> None:
    hold(keys)
    keys.acl_setuser("half", enabled=True, nopass=True, keys=["bull:q:active", "bull:q:7"], commands=["+@read"])
    client = valkey.connect(username="half", password="any")
    wire = Restless(client, ())
    (row,) = OURS.page(wire, REF, JobState.ACTIVE).rows
    assert (row.lock, row.lock_known) == (None, False)
    wire.close()
    client.close()
