"""What a reader fetches is bounded, whatever applications put into their jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from recovery.backends.base import LOAD_LIMIT, TEXT_LIMIT
from recovery.backends.redis_common import job_rows
from recovery.backends.redis_common import reader as redis_reader
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

REF = QueueRef("main", "bull:q")
OURS = reader(LibraryVersion(QueueLibrary.BULLMQ, 5))
MEGABYTE = 1024 * 1024


@pytest.fixture
def keys(valkey: Store) -> redis.Redis:
    return valkey.client


@pytest.fixture
def pipe(valkey: Store) -> Iterator[Pipe]:
    opened = Pipe(valkey.client)
    yield opened
    opened.close()


def put(keys: redis.Redis, id: str, state: str = "completed", **fields: str | bytes) -> None:
    keys.hset(f"bull:q:{id}", mapping={"name": "send", "data": "{}", "timestamp": "1795000156536", **fields})
    if state == "active":
        keys.lpush("bull:q:active", id)
    else:
        keys.zadd(f"bull:q:{state}", {id: 1795000156536})


def test_a_page_of_huge_results_is_small(keys: redis.Redis, pipe: Pipe) -> None:
    for number in range(20):
        put(keys, str(number), returnvalue="x" * 5 * MEGABYTE, failedReason="y" * MEGABYTE)
    page = OURS.page(pipe, REF, JobState.COMPLETED, size=100)
    assert len(page.rows) == 20
    assert pipe.weight < 100_000
    assert page.rows[0].result == "(5,242,880 bytes, too long to show here)"
    assert page.rows[0].reason == "(1,048,576 bytes, too long to show here)"


def test_a_page_of_long_results_keeps_to_its_budget(keys: redis.Redis, pipe: Pipe) -> None:
    long = "x" * job_rows.TEXT_BYTES
    for number in range(100):
        put(keys, str(number), returnvalue=long, failedReason=long)
    page = OURS.page(pipe, REF, JobState.COMPLETED, size=100)
    assert len(page.rows) == 100
    assert pipe.weight < job_rows.PAGE_BYTES + 100_000
    assert page.rows[0].result.startswith("xxx")
    assert page.rows[-1].result.endswith("too long to show here)")


def test_a_long_payload_is_fetched_only_when_it_is_asked_for(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7", data="x" * 5 * MEGABYTE)
    job = OURS.job(pipe, REF, "7")
    assert pipe.weight < 10_000
    assert (job.data.value, job.data.size, job.data.is_cut) == ("", 5 * MEGABYTE, True)
    whole = OURS.job(pipe, REF, "7", limit=LOAD_LIMIT)
    assert not whole.data.is_cut


def test_even_all_of_a_job_has_a_limit(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7", data="x" * 5 * MEGABYTE, returnvalue="y" * 5 * MEGABYTE, opts="z" * 9 * MEGABYTE)
    job = OURS.job(pipe, REF, "7", limit=100 * MEGABYTE)
    assert pipe.weight < LOAD_LIMIT + 10_000
    assert (job.data.is_cut, job.result.is_cut, job.options.is_cut) == (False, True, True)


def test_a_payload_of_any_bytes_is_shown(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7", data=b"\x00\xff<script>\r\n", name=b"\xfe", opts=b"{broken", stacktrace=b"not json")
    job = OURS.job(pipe, REF, "7")
    assert job.data.value == "\x00�<script>\r\n"
    assert not job.data.is_cut
    assert job.row.name == "\udcfe"
    assert (job.row.attempts_limit, job.stack) == (1, ("not json",))


def test_a_hash_of_thousands_of_fields_is_read_by_the_known_names(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7")
    keys.hset("bull:q:7", mapping={f"field-{number}": "x" * 1000 for number in range(5000)})
    job = OURS.job(pipe, REF, "7")
    assert pipe.weight < 10_000
    assert job.data.value == "{}"


def test_logs_are_cut_by_line_and_by_page(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7")
    keys.rpush("bull:q:7:logs", *["x" * 10_000] * 300)
    page = OURS.logs(pipe, REF, "7", size=1000)
    assert page.total == 300
    assert 0 < len(page.lines) < 300
    assert pipe.weight < redis_reader.PAGE_BYTES + 50 * 10_000 + 1000
    assert max(map(len, page.lines)) == redis_reader.LINE + 1
    following = OURS.logs(pipe, REF, "7", start=len(page.lines), size=10)
    assert following.start == len(page.lines)
    assert len(following.lines) == 10


def test_a_search_says_how_many_payloads_it_could_not_compare(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "long", data="needle" + "x" * TEXT_LIMIT)
    put(keys, "short", data="a needle")
    found = OURS.search(pipe, REF, JobState.COMPLETED, data="needle")
    assert ([row.id for row in found.rows], found.skipped, found.examined) == (["short"], 1, 2)
    assert pipe.weight < 10_000


def test_a_search_finds_what_a_writer_of_json_escaped(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7", data='{"to":"Zo\\u00eb"}')
    assert [row.id for row in OURS.search(pipe, REF, JobState.COMPLETED, data="Zoë").rows] == ["7"]


def test_what_children_returned_is_not_fetched(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7")
    keys.hset("bull:q:7:processed", mapping={f"bull:q:{number}": "x" * 100_000 for number in range(50)})
    family = OURS.family(pipe, REF, "7")
    assert (len(family.children), family.total) == (50, 50)
    assert pipe.weight < 20_000


def test_of_thousands_of_children_that_are_done_some_are_listed(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7")
    keys.hset("bull:q:7:processed", mapping={f"bull:q:{number}": "x" * 1000 for number in range(5000)})
    family = OURS.family(pipe, REF, "7")
    assert (len(family.children), family.total) == (100, 5000)
    assert {child.outcome for child in family.children} == {"processed"}
    assert pipe.weight < 20_000


def test_of_thousands_of_children_that_are_pending_some_are_listed(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7")
    keys.sadd("bull:q:7:dependencies", *(f"bull:q:p{number}" for number in range(3000)))
    keys.hset("bull:q:7:processed", "bull:q:1", "{}")
    family = OURS.family(pipe, REF, "7")
    assert (len(family.children), family.total) == (100, 3001)
    assert pipe.weight < 20_000


def test_a_page_of_a_long_active_list_costs_three_round_trips(keys: redis.Redis, pipe: Pipe) -> None:
    keys.lpush("bull:q:active", *(f"job-{number}" for number in range(100_000)))
    for number in range(25):
        keys.set(f"bull:q:job-{number}:lock", "token:1", px=30_000)
        keys.hset(f"bull:q:job-{number}", mapping={"name": "send", "data": "{}"})
    page = OURS.page(pipe, REF, JobState.ACTIVE)
    assert [row.id for row in page.rows] == [f"job-{number}" for number in range(25)]
    assert page.total == 100_000
    assert pipe.trips == 3
    assert all(row.lock for row in page.rows)


def test_no_read_of_a_page_asks_for_more_than_the_page(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7")
    OURS.page(pipe, REF, JobState.COMPLETED, size=1_000_000)
    assert set(pipe.commands) <= {"ZCARD", "ZREVRANGE", "HMGET", "HSTRLEN"}
    assert len([name for name in pipe.commands if name == "ZREVRANGE"]) == 1


def test_a_failed_job_without_a_time_ended_when_its_score_says(keys: redis.Redis, pipe: Pipe) -> None:
    put(keys, "7", "failed", failedReason="job stalled more than allowable limit")
    assert OURS.row(pipe, REF, "7").finished_at == 1795000156536
    assert OURS.page(pipe, REF, JobState.FAILED).rows[0].finished_at == 1795000156536
