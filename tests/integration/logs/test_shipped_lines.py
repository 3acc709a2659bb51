"""Lines of many servers in one real store, read as one: in order, in time, within bounds."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
import redis

from recovery.domain.logs.line_batches import LineBatch
from recovery.domain.logs.types import LogLevel, LogQuery
from recovery.logs.base import LogResultPage
from recovery.logs.stream import search
from recovery.logs.stream import source as stream_source
from recovery.logs.stream import store as stream_store
from recovery.logs.stream.matching import SearchDeadline
from recovery.logs.stream.search import BackwardReader, Found
from recovery.logs.stream.store import ShippedEntry, StreamStore, entries_of
from recovery.stores.state import size_limits, state_keys
from tests.support.logs.log_writer import LogWriter
from tests.support.logs.shipped import (
    ALL,
    HOUR_MS,
    Sources,
    now_ms,
    put,
    read_all,
    search_all,
    settle,
    ship,
    sources_of,
    texts,
)
from tests.support.patience import patience
from tests.support.stores.stores import Store
from tests.support.waiting import until


@pytest.fixture
async def sources(state_store: Store) -> AsyncIterator[Sources]:
    async with sources_of(state_store) as sources:
        yield sources


# -- one order


async def test_many_servers_are_read_as_one_whoever_reads_and_wherever_it_is_cut(
    state_store: Store, sources: Sources
) -> None:
    chance = random.Random(7)
    begin = (await sources.new().read(ALL, after="")).after
    base = now_ms(state_store)
    written = []
    for turn in range(80):
        base += chance.choice((0, 0, 1))  # several servers, and entries of one, in the same millisecond
        server = f"eu-{chance.randrange(6)}"
        some = [f"{server} {turn} {number}" for number in range(chance.choice((1, 2, 12)))]
        with suppress(redis.ResponseError):  # the store gives no id twice
            ship(state_store, server, *some, id=f"{base}-{turn}")
            written += some
    until(lambda: now_ms(state_store) > base)
    whole, _ = await read_all(sources.new(), begin)
    assert sorted(texts(whole)) == sorted(written)
    assert texts((await search_all(sources.new(), ALL, 11))[0]) == texts(whole)
    source, place, cut = sources.new(), begin, []
    while len(cut) < len(whole):
        page = await source.read(ALL, after=place, limit=chance.choice((1, 5, 40)))
        cut += page.lines
        place = chance.choice((page.after, page.lines[-1].id))
        source = chance.choice((source, sources.new()))
    assert texts(cut) == texts(whole)
    for line, following in chance.sample(list(pairwise(whole)), 50):
        assert (await source.read(ALL, after=line.id, limit=1)).lines[0] == following


async def test_a_server_that_begins_to_ship_is_read_from_its_first_line(state_store: Store, sources: Sources) -> None:
    source = sources.new()
    place = (await source.read(ALL, after="")).after
    LogWriter(state_store, "eu-1").write("one")
    settle(state_store)
    page = await source.read(ALL, after=place)
    LogWriter(state_store, "eu-2").write("two", "three")
    settle(state_store)
    assert texts(page.lines) == ["one"]
    assert texts((await source.read(ALL, after=page.after)).lines) == ["two", "three"]


async def test_the_millisecond_that_still_runs_is_left_for_the_next_read(state_store: Store, sources: Sources) -> None:
    source = sources.new()
    place = (await source.read(ALL, after="")).after
    soon = now_ms(state_store) + 700
    ship(state_store, "eu-2", "of that moment", id=f"{soon}-0")
    page = await source.read(ALL, after=place)
    assert (list(page.lines), page.is_end) == ([], True)
    until(lambda: now_ms(state_store) > soon)
    ship(state_store, "eu-1", "late in it", id=f"{soon}-0")
    assert sorted(texts((await source.read(ALL, after=page.after)).lines)) == ["late in it", "of that moment"]


async def test_only_the_chosen_servers_are_asked(state_store: Store, sources: Sources) -> None:
    for number in range(3):
        LogWriter(state_store, f"eu-{number}").write(f"line {number}")
    settle(state_store)
    query = LogQuery(labels=(("server", frozenset(("eu-0", "eu-2"))),))
    assert sorted(texts((await search_all(sources.new(), query))[0])) == ["line 0", "line 2"]
    assert (
        sources.new().tap(LogQuery(labels=(*query.labels, ("container", frozenset(("x",)))), include=("a",))) == query
    )


# -- time and memory


async def test_a_search_comes_back_in_time_and_goes_on_from_there(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "SEARCH_S", 0.0)
    monkeypatch.setattr(search, "FIRST", 4)
    for number in range(40):
        ship(state_store, f"eu-{number % 3}", *(f"line {number} {part}" for part in range(200)))
    settle(state_store)
    lines, pages = await search_all(sources.new(), LogQuery(include=("line 7 13",)))
    assert texts(lines) == ["line 7 13", *(f"line 7 13{part}" for part in range(10))]
    assert pages >= 40


async def test_whoever_leaves_ends_the_work_for_him(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[SearchDeadline] = []

    class Watched(SearchDeadline):
        @property
        def is_over(self) -> bool:
            looks.append(self)
            return super().is_over

    monkeypatch.setattr(stream_source, "SearchDeadline", Watched)
    monkeypatch.setattr(stream_source, "SEARCH_S", 600.0)
    monkeypatch.setattr(search, "FIRST", 100)  # some seconds of work at once
    for _ in range(100):
        ship(state_store, "eu-1", *(f"{number} of many" for number in range(1000)))
    settle(state_store)
    leaving = asyncio.create_task(sources.new().search(LogQuery(exclude=("of many",))))
    async with asyncio.timeout(patience(20)):
        while not looks:
            await asyncio.sleep(0.001)
    leaving.cancel()
    await asyncio.wait((leaving,))
    assert leaving.cancelled()
    assert looks[0].is_over


async def test_a_task_that_was_ended_asks_no_more_whoever_forgot_it(state_store: Store, sources: Sources) -> None:
    """redis-py waits with a `wait_for` that can forget it, and a search would go on for nobody."""

    async def left() -> LogResultPage:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return await sources.new().search(ALL)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(left())


async def test_what_is_fetched_at_once_is_bounded_by_bytes_and_in_order(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "BYTES_AT_ONCE", 100_000)
    chance = random.Random(3)
    base = now_ms(state_store) - 100_000
    for number in range(300):
        server = f"eu-{min(chance.randrange(12), 4)}"  # one of them ships most
        put(state_store, server, {"labels": "{}", "count": 1, "body": chance.randbytes(3000)}, id=f"{base + number}-0")
    shipped = StreamStore(sources.client)
    head = await shipped.head(None)
    ends = {server: stream.last for server, stream in head.streams.items()}

    async def all_of(found: Found) -> dict[bytes, Sequence[ShippedEntry]]:
        return {server: entries_of(server, rows) for server, rows in found.items()}

    walk = BackwardReader(shipped, all_of, ends, 0)
    found, most = [], 0
    while some := await walk.some():
        found += some
        most = max(most, len(some))
    assert [entry.id[0] for entry in found] == list(range(base + 299, base - 1, -1))
    assert most < 100


async def test_a_search_of_a_range_does_not_go_back_behind_it(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "AHEAD_MS", 1000)
    now = now_ms(state_store)
    for ago in (100_000, 50_000, 0):
        ship(state_store, "eu-1", f"of {ago}", id=f"{now - ago}-0")
    settle(state_store)
    page = await sources.new().search(LogQuery(start=(now - 10_000) * 10**6))
    assert (texts(page.lines)[-1], page.is_end, page.looked_at) == ("of 0", True, 1)


async def test_a_search_of_a_range_begins_with_what_was_shipped_in_its_time(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was shipped late is found behind it, and nothing twice, wherever the pages are cut."""
    monkeypatch.setattr(search, "LATE_MS", 1000)
    now = now_ms(state_store)
    at = (now - 100_000) * 10**6
    for server in ("eu-1", "eu-2"):
        for place in range(3):
            rows = [(at + place, f"{server} in time {place}".encode())]
            put(state_store, server, LineBatch(tuple(rows), {}).encode(), id=f"{now - 100_000 + place}-0")
        LogWriter(state_store, server).write("of another time")
        LogWriter(state_store, server).write(f"{server} late", at=at)
    settle(state_store)
    query = LogQuery(start=at, end=at + 10**9)
    first = await sources.new().search(query, limit=6)
    assert len(first.lines) == first.looked_at == 6
    assert all("in time" in text for text in texts(first.lines))
    for limit in (1, 2, 5, 100):
        lines, _ = await search_all(sources.new(), query, limit)
        assert sorted(texts(lines)[:2]) == ["eu-1 late", "eu-2 late"]
        assert texts(lines)[2:] == texts(first.lines)


# -- labels


async def test_labels_of_long_ago_are_left_out_and_rubbish_does_no_harm(state_store: Store, sources: Sources) -> None:
    now = now_ms(state_store)
    LogWriter(state_store).write("one", container="mail")
    key = state_keys.log_labels("eu-1")
    old = str(now - 10 * HOUR_MS)
    state_store.client.hset(key, mapping={'{"container":"old"}': old, "{{": str(now), '{"n": 5}': "never"})
    labels = await sources.new().labels((now - HOUR_MS) * 10**6, now * 10**6)
    assert labels.values == {"container": ["mail"], "server": ["eu-1"]}


async def test_too_many_values_are_cut_and_that_is_said(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "VALUES_LIMIT", 5)
    writer = LogWriter(state_store)
    for number in range(8):
        writer.write("one", container=f"mail {number}")
    labels = await sources.new().labels(0, time.time_ns())
    assert len(labels.values["container"]) == 5
    assert labels.is_cut


async def test_a_server_is_the_one_that_shipped_whatever_its_labels_say(state_store: Store, sources: Sources) -> None:
    LogWriter(state_store, "eu-1").write("one", server="eu-9")
    settle(state_store)
    assert [line.labels["server"] for line in (await sources.new().search(ALL)).lines] == ["eu-1"]


async def test_what_the_journal_knows_of_a_lines_level_counts_before_what_it_says(
    state_store: Store, sources: Sources
) -> None:
    writer = LogWriter(state_store)
    writer.write("INFO: out of memory", "and no word of it", level="error")
    writer.write("INFO: fine", "ERROR: not fine")
    settle(state_store)
    errors = LogQuery(levels=frozenset({LogLevel.ERROR}))
    found, _ = await search_all(sources.new(), errors)
    assert texts(found) == ["INFO: out of memory", "and no word of it", "ERROR: not fine"]
    assert {line.level for line in found} == {LogLevel.ERROR}
    assert texts((await search_all(sources.new(), LogQuery(levels=frozenset({LogLevel.INFO}))))[0]) == ["INFO: fine"]


# -- a server that ships what cannot be read


async def test_a_server_whose_entry_is_too_large_is_left_out_and_the_others_are_read(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(size_limits, "REPLY_LIMIT", 2**20)
    source = sources.new()
    begin = (await source.read(ALL, after="")).after
    ship(state_store, "eu-1", "before")
    put(state_store, "evil", {"labels": "{}", "count": 1, "first": 1, "last": 1, "body": b"x" * 3 * 2**20})
    ship(state_store, "eu-2", "behind")
    settle(state_store)
    lines, page = await read_all(source, begin)
    assert texts(lines) == ["before", "behind"]
    assert page.is_end
    found, _ = await search_all(sources.new(), ALL)
    assert texts(found) == ["before", "behind"]
    assert "skipping the log lines of evil" in caplog.text
    state_store.client.hset(state_keys.log_labels("eu-1"), "x" * 3 * 2**20, "1")
    state_store.client.hset(state_keys.log_labels("eu-2"), "{}", str(now_ms(state_store)))
    assert (await sources.new().labels(0, 2**62)).values["server"] == ["eu-2"]


@pytest.mark.parametrize("command", [("SETRANGE", 0, "x"), ("HSET", "a", "b")], ids=["string", "hash"])
async def test_a_server_that_writes_something_else_in_place_of_its_lines_is_left_out(
    state_store: Store, sources: Sources, command: tuple[str, ...]
) -> None:
    """All of this a monitor may do with the keys of its own server."""
    name, *arguments = command
    source = sources.new()
    begin = (await source.read(ALL, after="")).after
    ship(state_store, "eu-1", "before")
    ship(state_store, "evil", "planted")
    state_store.client.delete(state_keys.logs("evil"))
    state_store.client.execute_command(name, state_keys.logs("evil"), *arguments)
    ship(state_store, "eu-2", "behind")
    settle(state_store)
    lines, page = await read_all(source, begin)
    assert texts(lines) == ["before", "behind"]
    assert page.is_end
    found, _ = await search_all(sources.new(), ALL)
    assert texts(found) == ["before", "behind"]
    state_store.client.execute_command("SETRANGE", state_keys.log_labels("evil"), 0, "x")
    state_store.client.hset(state_keys.log_labels("eu-2"), "{}", str(now_ms(state_store)))
    assert (await sources.new().labels(0, 2**62)).values["server"] == ["eu-2"]


def test_labels_that_no_monitor_writes_are_none_and_are_not_kept() -> None:
    for planted in (b'{"file":"' + b"x" * 2**20 + b'"}', b"[" * 60_000, b'{"a":' * 10_000):
        assert stream_store.labels_of(b"eu-1", stream_store.short(planted)) == {"server": "eu-1"}
    assert stream_store.labels_of(b"eu-1", b'{"server":"eu-2","file":"a.log"}') == {"server": "eu-1", "file": "a.log"}
