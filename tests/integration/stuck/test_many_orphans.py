"""A page of a long list of orphans: true whatever others do meanwhile, and no search of the list for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRowPage, JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.stores.stores import Store
from tests.support.stuck.restless import Restless

BASE = "bull:q"
REF = QueueRef("main", BASE)
OURS = reader(LibraryVersion(QueueLibrary.BULLMQ, 6))
JOBS = 3_000
PAGE = 100
DEEP = 10  # pages from the oldest

Change = Callable[[], Any]
OPEN = Callable[..., Restless]


def nothing() -> None:
    """Nobody acts."""


@pytest.fixture
def client(valkey: Store) -> redis.Redis:
    pipeline = valkey.client.pipeline(transaction=False)
    for number in range(JOBS):
        pipeline.hset(f"{BASE}:{number}", mapping={"name": "mail", "data": "{}", "timestamp": 1, "processedOn": 2})
        pipeline.lpush(f"{BASE}:active", number)
    pipeline.execute()
    return valkey.client


@pytest.fixture
def wire(client: redis.Redis) -> Iterator[OPEN]:
    opened: list[Restless] = []

    def make(*changes: Change) -> Restless:
        opened.append(Restless(client, changes))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def page(wire: Restless, cursor: str = "") -> JobRowPage:
    return OURS.page(wire, REF, JobState.ACTIVE, cursor=cursor, size=PAGE, oldest_first=True)


def deep(wire: OPEN) -> str:
    cursor = ""
    for _ in range(DEEP):
        cursor = page(wire(), cursor).next
    return cursor


def test_a_deep_page_of_orphans_searches_the_list_a_few_times_only(wire: OPEN) -> None:
    cursor, pipe = deep(wire), wire()
    found = page(pipe, cursor)
    first = DEEP * PAGE
    assert [row.id for row in found.rows] == [str(number) for number in range(first, first + PAGE)]
    assert pipe.commands.count("LPOS") <= 3


def test_one_that_left_meanwhile_is_not_shown(client: redis.Redis, wire: OPEN) -> None:
    gone = str(DEEP * PAGE + 5)
    changes = [nothing, nothing, nothing, lambda: client.lrem(f"{BASE}:active", 0, gone)]
    found = page(wire(*changes), deep(wire))
    assert gone not in [row.id for row in found.rows]
    assert len(found.rows) == PAGE - 1


def test_one_that_was_locked_meanwhile_is_shown_with_its_lock(client: redis.Redis, wire: OPEN) -> None:
    taken = str(DEEP * PAGE + 5)
    changes = [nothing, nothing, nothing, lambda: client.set(f"{BASE}:{taken}:lock", "worker:1", px=30_000)]
    found = page(wire(*changes), deep(wire))
    (row,) = (row for row in found.rows if row.id == taken)
    assert row.lock is not None
    assert row.lock.token == "worker:1"


def test_none_is_missed_when_the_whole_list_moves_on_meanwhile(client: redis.Redis, wire: OPEN) -> None:
    """A thousand jobs begin between finding the page's part of the list and reading it."""

    def rush() -> None:
        client.lpush(f"{BASE}:active", *(f"new-{number}" for number in range(1_000)))

    changes = [nothing, nothing, nothing, nothing, nothing, rush]
    for place in range(3, len(changes)):
        found = page(wire(*changes[:place], rush), deep(wire))
        assert len(found.rows) == PAGE
