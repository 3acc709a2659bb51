"""A stream of lines over a source in memory: what a reader gets, in which order, exactly once, and at what cost."""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from dashboard.live import events, hub
from dashboard.live.hub import LiveLimitReached
from dashboard.logs.live import cursor, feed, feed_registry
from dashboard.logs.live.feed_registry import FeedRegistry
from recovery.domain.logs.types import LogQuery
from recovery.logs.base import LogResultPage
from tests.support.logs.log_lines import Browser, Memory
from tests.support.logs.log_streams import feeds_of, follow, numbers, opened, until_cut

KB = 1024


async def test_a_reader_gets_what_is_there_and_then_what_comes() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one", "two")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: "older" in browser.events)
        memory.write("three")
        await follow(stream, browser, lambda: len(browser.lines) == 3)
        assert browser.lines == ["one", "two", "three"]
        assert browser.details[browser.events.index("older")] == {"g": 1, "source": "memory", "before": ""}
        stream.close()


async def test_one_person_leaves_feeds_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distinct selections count, and not the tabs that follow the same one."""
    monkeypatch.setattr(feed_registry, "FEEDS_EACH", 2)
    memory = Memory()
    monkeypatch.setattr(memory, "tap", lambda query: query)
    async with feeds_of(memory) as shared:
        streams = [opened(shared, label=f"app={number}") for number in (1, 2, 2)]
        with pytest.raises(LiveLimitReached, match="You follow 2"):
            opened(shared, label="app=3")
        shared.of(2).claim(memory, LogQuery(labels=(("app", frozenset({"3"})),)))
        streams.pop(0).close()
        streams.append(opened(shared, label="app=4"))
        for stream in streams:
            stream.close()


async def test_searches_of_one_person_leave_turns_to_the_others() -> None:
    memory = Memory()
    async with feeds_of(memory) as shared, AsyncExitStack() as searching:
        for _ in range(feed_registry.SEARCHES_EACH):
            await searching.enter_async_context(shared.of(1).turn(memory))
        one_more = shared.of(1).turn(memory)
        third = asyncio.create_task(one_more.__aenter__())
        async with asyncio.timeout(10), shared.of(2).turn(memory):
            for _ in range(10):
                await asyncio.sleep(0)
            assert not third.done()
        third.cancel()


async def test_who_was_told_of_a_lost_place_can_come_back_with_the_cursor() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one", "two")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: "older" in browser.events)
        memory.write("three")
        await follow(stream, browser, lambda: len(browser.lines) == 3)
        memory.lines.clear()  # the feed's place is none any more, and nothing is behind it
        await follow(stream, browser, lambda: bool(browser.said("gap")))
        stream.offer(b"event: tick\ndata: {}\n\n")
        await follow(stream, browser, lambda: "tick" in browser.events)
        assert cursor.decode(browser.last)["memory"].place
        stream.close()


async def read_through_cuts(shared: FeedRegistry, memory: Memory, cuts: int, seed: int) -> Browser:
    """A reader whose connection is cut at any byte, again and again, while lines come in bursts of one nanosecond."""
    chance, browser, is_over, broken = random.Random(seed), Browser(), False, 0
    beside = opened(shared)  # somebody else keeps the feed going

    async def write() -> None:
        while not is_over:
            [size] = chance.choices((1, 3, 40, 5000), (50, 50, 50, 1))
            memory.write(*(f"line {len(memory.lines) + number}" for number in range(size)), at=len(memory.lines))
            await asyncio.sleep(chance.choice((0.0005, 0.002, 0.01)))

    writing = asyncio.create_task(write())
    for _ in range(cuts):
        size = chance.randrange(1, chance.choice((300, 3_000, 60_000)))
        broken += await until_cut(opened(shared, browser.last), browser, size, chance.choice((0.0005, 0.002, 0.01)))
    assert broken > cuts / 10, "many of the cuts are in the middle of an event"
    is_over = True
    await writing
    stream = opened(shared, browser.last)
    await follow(stream, browser, lambda: browser.last.endswith(f".{len(memory.lines)}"))
    stream.close()
    beside.close()
    return browser


async def survive(cuts: int, seed: int) -> None:
    memory = Memory(pace=0.002)
    memory.write(*(f"early {number}" for number in range(700)))
    async with feeds_of(memory) as shared:
        browser = await read_through_cuts(shared, memory, cuts, seed)
    found = numbers(browser)
    assert len(found) > cuts
    assert found == list(range(found[0], len(memory.lines) + 1))
    assert not browser.notes or {note["kind"] for note in browser.notes} == {"caught-up"}


@pytest.mark.parametrize("ring", [2_000, 4 * KB * KB])
async def test_a_reader_that_is_cut_anywhere_gets_every_line_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, ring: int
) -> None:
    """Also when next to nothing is kept for those who come back."""
    monkeypatch.setattr(feed, "RING_BYTES", ring)
    await survive(1_000, seed=5)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
async def test_a_reader_that_is_cut_two_thousand_times_gets_every_line_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(feed, "RING_BYTES", (2_000, 200_000, 4 * KB * KB)[seed % 3])
    await survive(2_000, seed)


async def test_five_thousand_lines_of_one_nanosecond_come_once_and_in_order_through_a_cut() -> None:
    memory, browser = Memory(), Browser()
    memory.write("first")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: len(browser.lines) == 1)
        memory.write(*(f"burst {number}" for number in range(5000)), at=77)
        await follow(stream, browser, lambda: len(browser.lines) > 1000)
        stream.close()
        stream = opened(shared, browser.last)
        await follow(stream, browser, lambda: len(browser.lines) >= 5001)
        stream.close()
    assert numbers(browser) == list(range(1, 5002))


async def test_two_sources_have_a_place_each_in_one_cursor() -> None:
    one, two, browser = Memory("one"), Memory("two"), Browser()
    one.write("a")
    two.write("b")
    async with feeds_of(one, two) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: browser.events.count("older") == 2)
        assert sorted(browser.last.split("&")) == ["one=m.1", "two=m.1"]
        stream.close()
        one.write("c")
        two.write("d", "e")
        stream = opened(shared, browser.last)
        await follow(stream, browser, lambda: len(browser.lines) == 5)
        stream.close()
    assert sorted(browser.lines) == ["a", "b", "c", "d", "e"]


async def test_ticks_come_between_the_lines_and_take_no_place_away() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: "older" in browser.events)
        stream.offer(events.event("tick", {"number": 7}, id="7"))
        await follow(stream, browser, lambda: "tick" in browser.events)
        assert browser.details[-1] == {"number": 7}
        assert browser.last == "memory=m.1"
        stream.close()


async def test_a_range_ends_and_goes_on_behind_what_was_shown() -> None:
    memory, browser = Memory(), Browser()
    memory.write(*(f"line {number} {'x' * 300}" for number in range(400)))
    async with feeds_of(memory) as shared:
        stream = opened(shared, to="1")
        await follow(stream, browser, lambda: bool(browser.lines))
        assert len(browser.lines) < 400
        stream.close()
        memory.write("later", at=2_000_000)
        stream = opened(shared, browser.last, to="1")
        await follow(stream, browser, lambda: "end" in browser.events)
        assert numbers(browser) == list(range(1, 401))
        stream.close()
        assert not len(shared)


async def test_a_reader_gets_its_own_filter_alone_out_of_what_all_share() -> None:
    memory, all_of_it, errors = Memory(), Browser(), Browser()
    async with feeds_of(memory) as shared:
        first, second = opened(shared), opened(shared, include="ERROR", exclude="known")
        await follow(first, all_of_it, lambda: "older" in all_of_it.events)
        await follow(second, errors, lambda: "older" in errors.events)
        for _ in range(5):
            memory.write("fine", "an error", "a known error")
        memory.write("last error")
        await follow(second, errors, lambda: "last error" in errors.lines)
        await follow(first, all_of_it, lambda: "last error" in all_of_it.lines)
        assert errors.lines == ["an error"] * 5 + ["last error"]
        assert len(all_of_it.lines) == 16
        assert len(shared) == 1
        first.close()
        second.close()


async def test_a_hundred_readers_ask_the_source_as_often_as_one_and_hold_no_task() -> None:
    memory = Memory(pace=0.01)
    async with feeds_of(memory) as shared:
        streams, browsers = [opened(shared) for _ in range(100)], [Browser() for _ in range(100)]
        for stream, browser in zip(streams, browsers, strict=True):
            await follow(stream, browser, lambda browser=browser: "older" in browser.events)  # type: ignore[misc]
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > 2:  # this one, and the feed
                await asyncio.sleep(0.001)
        memory.asked.clear()
        memory.write("one")
        for stream, browser in zip(streams, browsers, strict=True):
            await follow(stream, browser, lambda browser=browser: browser.lines == ["one"])  # type: ignore[misc]
        assert len(asyncio.all_tasks()) == 2
        assert 1 <= len(memory.asked) < 50
        for stream in streams:
            stream.close()


async def test_a_slow_reader_is_told_how_many_lines_it_missed_and_others_miss_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "RING_BYTES", 200_000)
    memory, slow, quick = Memory(), Browser(), Browser()
    async with feeds_of(memory) as shared:
        sleeping, reading = opened(shared), opened(shared)
        await follow(sleeping, slow, lambda: "older" in slow.events)
        await follow(reading, quick, lambda: "older" in quick.events)
        for _ in range(50):
            memory.write(*(f"line {number}" for number in range(100)))
            await follow(reading, quick, lambda: len(quick.lines) == len(memory.lines))
        await follow(sleeping, slow, lambda: slow.last == quick.last)
        [note] = slow.said("dropped")
        assert note["count"] > 1000
        assert f"{note['count']:,} lines were skipped" in note["text"]
        had = slow.details[slow.details.index(note) + 1]["lines"][0][0]  # the first after the note
        first = int(had.partition(".")[2])
        assert numbers(slow) == [*range(1, first - note["count"]), *range(first, 5001)]
        assert not quick.said("dropped")
        sleeping.close()
        reading.close()


class Fresh(Memory):
    """Its lines are new objects for each who asks, as those of a real source."""

    async def search(self, query: LogQuery, *, before: str = "", limit: int = 500) -> LogResultPage:
        return _fresh(await super().search(query, before=before, limit=limit))

    async def read(self, query: LogQuery, *, after: str, limit: int = 1000) -> LogResultPage:
        return _fresh(await super().read(query, after=after, limit=limit))


def _fresh(page: LogResultPage) -> LogResultPage:
    return replace(page, lines=[replace(line, text=line.text[:1] + line.text[1:]) for line in page.lines])


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_reader_that_takes_nothing_costs_half_a_megabyte_at_most(is_back: bool) -> None:
    """Both who just comes and who comes back to lines that are far behind; with lines of 16 KB."""
    memory = Fresh(pace=60)
    memory.write(*(chr(97 + number % 26) * 16 * KB for number in range(300)))
    async with feeds_of(memory) as shared:
        warm = opened(shared)
        await follow(warm, Browser(), lambda: True)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            streams = [opened(shared, "memory=m.0" if is_back else "") for _ in range(8)]
            for stream in streams:
                async with asyncio.timeout(60):
                    await stream.next()
            idle = 0
            while idle < 100:  # turns of the loop in which nobody reads any more
                idle = 0 if memory.under_way else idle + 1
                await asyncio.sleep(0)
            cost = (tracemalloc.get_traced_memory()[0] - before) / len(streams)
        finally:
            tracemalloc.stop()
        assert 32 * KB < cost < 512 * KB
        for stream in (*streams, warm):
            stream.close()


async def test_a_closed_stream_stops_its_search_and_gives_its_feed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_registry, "IDLE_SECONDS", 0.01)
    memory = Memory()
    memory.delay = 60
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        async with asyncio.timeout(10):
            while memory.under_way < 2:  # the search, and the feed
                await asyncio.sleep(0)
            stream.close()
            while memory.under_way or len(shared):
                await asyncio.sleep(0.001)


async def test_what_is_followed_at_once_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_registry, "FEEDS_LIMIT", 1)
    one, two = Memory("one"), Memory("two")
    async with feeds_of(one, two) as shared:
        first = opened(shared, source="one")
        with pytest.raises(LiveLimitReached, match="follows 1 log selections"):
            opened(shared, source="two")
        first.close()
        second = opened(shared, source="two")
        second.close()


async def test_a_quiet_stream_beats_and_nothing_else_is_said() -> None:
    async with feeds_of(Memory()) as shared:
        stream = opened(shared)
        async with asyncio.timeout(10):
            while b"older" not in (await stream.next() or b""):
                pass
            stream.watch(time.monotonic() + hub.BEAT_SECONDS)
            assert await stream.next() == events.KEEP_ALIVE
        stream.close()
