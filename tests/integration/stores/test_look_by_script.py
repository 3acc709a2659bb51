"""A look by a script says what plain commands say, and where it may not be run or cannot tell, they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recovery.backends.redis_common import script_reads
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.stores.redis.client import StoreClient
from tests.integration.stores.test_acl import admit, documented
from tests.support.acting import BASE, Bench
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.stuck.samples import BULLMQ

REF = QueueRef("main", BASE)
FLAVOURS = {
    "bullmq5": BULLMQ,
    "bullmq4": LibraryVersion(QueueLibrary.BULLMQ, 4),
    "bull4": LibraryVersion(QueueLibrary.BULL, 4),
}
PLACES = {
    "a-active": JobState.ACTIVE,
    "held": JobState.ACTIVE,
    "a-failed": JobState.FAILED,
    "a-completed": JobState.COMPLETED,
    "a-waiting": JobState.WAITING,
    "a-delayed": JobState.DELAYED,
    "ghost": JobState.ACTIVE,
    "0": JobState.ACTIVE,
    "wrong": JobState.ACTIVE,
    "nowhere": JobState.WAITING,
    "gone": JobState.FAILED,
    "long": JobState.FAILED,
    "b\udcff": JobState.ACTIVE,
}


@pytest.fixture
def jobs(bench: Bench) -> Bench:
    """A job in each place, and those that no library writes so."""
    bench.orphan("a-active", stc=1, pb="worker-1", parentKey="bull:up:1", progress="7")
    bench.held("held", token="worker:1", ttl=None)
    bench.failed("a-failed", opts='{"attempts":3}')
    bench.failed("long", reason="x" * 70_000)
    bench.completed("a-completed")
    bench.waiting("a-waiting")
    bench.delayed("a-delayed")
    bench.client.hset(f"{BASE}:".encode() + b"b\xff", mapping={"name": b"\xff", "timestamp": "soon", "ats": "1.5"})
    bench.client.lpush(f"{BASE}:active", "ghost", "0", "wrong", b"b\xff")
    bench.client.set(f"{BASE}:wrong", "no hash")
    bench.add("nowhere")
    return bench


def looks(
    flavour: LibraryVersion, wire: StoreClient, wanted: list[tuple[str, JobState]], **how: Any
) -> list[JobRow | None]:
    return [reader(flavour).rows(wire, REF, [one], **how)[0] for one in wanted]


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=FLAVOURS)
@pytest.mark.parametrize("place", ["where it is", "elsewhere", "unknown"])
def test_both_looks_say_the_same(jobs: Bench, flavour: LibraryVersion, place: str) -> None:
    wrong = {"where it is": None, "elsewhere": JobState.COMPLETED, "unknown": JobState.UNKNOWN}[place]
    wanted = [(id, wrong or state) for id, state in PLACES.items()]
    with wired(jobs.queues.url) as wire:
        assert looks(flavour, wire, wanted, by_script=True) == looks(flavour, wire, wanted)


def test_a_script_sees_one_moment_and_plain_commands_do_not(jobs: Bench) -> None:
    with wired(jobs.queues.url) as wire:
        (one,) = looks(BULLMQ, wire, [("a-active", JobState.ACTIVE)], by_script=True)
        (other,) = looks(BULLMQ, wire, [("a-active", JobState.ACTIVE)])
    assert one == other
    assert one is not None
    assert other is not None
    assert (one.is_one_moment, other.is_one_moment) == (True, False)


def test_a_list_that_is_too_long_for_a_script_is_searched_by_a_command(
    jobs: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_reads, "DEPTH", 1)
    with wired(jobs.queues.url) as wire:
        (row,) = looks(BULLMQ, wire, [("ghost", JobState.ACTIVE)], by_script=True)
    assert row is not None
    assert (row.state, row.missing, row.is_one_moment) == (JobState.ACTIVE, True, False)


def test_who_may_run_no_scripts_looks_all_the_same(serve: Callable[..., Store]) -> None:
    store = serve()
    store.client.zadd(f"{BASE}:failed", {"1": 5})
    store.client.hset(f"{BASE}:1", mapping={"name": "mail", "timestamp": 5})
    with wired(admit(store, documented())) as wire:
        (row,) = looks(BULLMQ, wire, [("1", JobState.FAILED)], by_script=True)
    assert row is not None
    assert (row.name, row.state, row.is_one_moment) == ("mail", JobState.FAILED, False)


LISTS = [JobState.ACTIVE, JobState.WAITING]
SETS = [JobState.FAILED, JobState.COMPLETED, JobState.DELAYED]


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=FLAVOURS)
@pytest.mark.parametrize("state", [*LISTS, *SETS])
@pytest.mark.parametrize("oldest_first", [True, False], ids=["oldest first", "newest first"])
def test_a_page_by_scripts_is_the_page_by_commands(
    jobs: Bench, flavour: LibraryVersion, state: JobState, oldest_first: bool
) -> None:
    with wired(jobs.queues.url) as wire:
        pages = [
            reader(flavour).page(wire, REF, state, oldest_first=oldest_first, by_script=by_script)
            for by_script in (True, False)
        ]
    assert pages[0] == pages[1]
    assert pages[0].rows
    assert all(row.is_one_moment for row in pages[0].rows)


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.FAILED])
def test_every_page_of_many_scripts_has_its_jobs(bench: Bench, state: JobState) -> None:
    for number in range(130):
        (bench.orphan if state is JobState.ACTIVE else bench.failed)(f"{number}")
    read, cursor = [], ""
    with wired(bench.queues.url) as wire:
        while not read or cursor:
            page = reader(BULLMQ).page(wire, REF, state, cursor=cursor, size=60, oldest_first=True, by_script=True)
            read += page.rows
            cursor = page.next
    assert sorted(int(row.id) for row in read) == list(range(130))
    assert all(row.is_one_moment and row.name for row in read)


def test_a_job_that_moved_far_in_its_list_is_read_by_commands(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.orphan("moved")
    bench.orphan("there")
    monkeypatch.setattr(script_reads, "MARGIN", 0)
    monkeypatch.setattr(script_reads, "_stretch", lambda *_: ("l", 0, 0))
    with wired(bench.queues.url) as wire:
        page = reader(BULLMQ).page(wire, REF, JobState.ACTIVE, oldest_first=True, by_script=True)
    assert {row.id: row.is_one_moment for row in page.rows} == {"moved": False, "there": True}


def test_a_page_is_read_all_the_same_where_no_script_may_run(serve: Callable[..., Store]) -> None:
    store = serve()
    store.client.zadd(f"{BASE}:failed", {"1": 5})
    store.client.hset(f"{BASE}:1", mapping={"name": "mail", "timestamp": 5})
    with wired(admit(store, documented())) as wire:
        (row,) = reader(BULLMQ).page(wire, REF, JobState.FAILED, by_script=True).rows
    assert (row.name, row.is_one_moment) == ("mail", False)
