"""What a reader of lines is told between them: of troubles, of lines that are missing, of labels that nothing has."""

from __future__ import annotations

import asyncio

import pytest

from recovery.errors import TimedOut, Unreachable
from tests.support.logs.log_lines import Browser, Memory
from tests.support.logs.log_streams import feeds_of, follow, numbers, opened


async def test_a_source_in_trouble_is_said_once_with_what_to_do_and_so_is_its_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dashboard.logs.live.notices.FIRST_PAUSE", 0.01)
    memory, browser = Memory(), Browser()
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: "older" in browser.events)
        memory.trouble = Unreachable("redis://10.0.0.9:6379", "refused")
        await follow(stream, browser, lambda: bool(browser.said("trouble")))
        asked = len(memory.asked)
        async with asyncio.timeout(10):
            while len(memory.asked) < asked + 5:
                await asyncio.sleep(0.001)
        memory.write("meanwhile")
        memory.trouble = None
        await follow(stream, browser, lambda: browser.lines == ["meanwhile"])
        [note] = browser.said("trouble")
        assert note["text"] == "redis://10.0.0.9:6379: refused"
        assert note["advice"] == Unreachable.advice
        assert [note["kind"] for note in browser.notes] == ["caught-up", "trouble", "recovered"]
        stream.close()


async def test_a_source_that_is_in_trouble_from_the_start_is_said_and_then_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dashboard.logs.live.notices.FIRST_PAUSE", 0.01)
    memory, browser = Memory(), Browser()
    memory.write("one")
    memory.trouble = TimedOut("redis://10.0.0.9:6379", "no answer")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: bool(browser.said("trouble")))
        memory.trouble = TimedOut("redis://10.0.0.9:6379", "no answer in 5 s")  # the same in other words
        memory.asked.clear()
        async with asyncio.timeout(10):
            while memory.asked.count("search") < 3:
                await asyncio.sleep(0.001)
        memory.trouble = Unreachable("redis://10.0.0.9:6379", "refused")
        await follow(stream, browser, lambda: len(browser.said("trouble")) == 2)
        memory.trouble = None
        await follow(stream, browser, lambda: browser.lines == ["one"] and bool(browser.said("recovered")))
        assert [note["text"] for note in browser.said("trouble")] == [
            "redis://10.0.0.9:6379: no answer",
            "redis://10.0.0.9:6379: refused",
        ]
        stream.close()


async def test_lines_that_were_cut_away_before_a_reader_came_back_are_a_gap_with_their_number() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one", "two")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: "older" in browser.events)
        stream.close()
    memory.write(*(f"line {number}" for number in range(3, 11)))
    memory.trimmed = 5
    async with feeds_of(memory) as shared:
        stream = opened(shared, browser.last)
        await follow(stream, browser, lambda: numbers(browser) == [1, 2, 6, 7, 8, 9, 10])
        [note] = browser.said("gap")
        assert note["count"] == 3
        assert browser.details[browser.details.index(note) + 1]["lines"][0][0] == "m.6"
        stream.close()


async def test_lines_that_were_cut_away_under_all_readers_are_a_gap_for_each() -> None:
    memory, browser = Memory(pace=5), Browser()
    memory.write("one")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: "older" in browser.events)
        memory.write(*(f"line {number}" for number in range(2, 11)))
        memory.trimmed = 8
        other = opened(shared)  # it makes the feed read now
        await follow(stream, browser, lambda: numbers(browser) == [1, 9, 10])
        assert [note["count"] for note in browser.said("gap")] == [7]
        stream.close()
        other.close()


async def test_a_place_that_is_none_any_more_is_said_and_the_page_begins_anew() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one")
    async with feeds_of(memory) as shared:
        stream = opened(shared, "memory=m.999")
        await follow(stream, browser, lambda: browser.lines == ["one"])
        assert "starts again" in browser.said("gap")[0]["text"]
        stream.close()


async def test_readers_go_on_when_their_common_place_is_none_any_more() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one", "two", "three")
    async with feeds_of(memory) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: "older" in browser.events)
        memory.lines.clear()  # as a store that was emptied
        await follow(stream, browser, lambda: bool(browser.said("gap")))
        memory.write("after")
        await follow(stream, browser, lambda: "after" in browser.lines)
        assert not browser.said("trouble")
        stream.close()


async def test_a_label_that_no_line_has_is_said_with_those_that_exist() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one", labels={"server": "eu-1", "file": "a.log"})
    memory.write("two", labels={"server": "eu-2"})
    async with feeds_of(memory) as shared:
        stream = opened(shared, label="server=eu-9")
        await follow(stream, browser, lambda: "older" in browser.events)
        [note] = browser.said("no-match")
        assert "server" in note["text"]
        assert note["labels"] == {"file": ["a.log"], "server": ["eu-1", "eu-2"]}
        stream.close()


async def test_labels_that_exist_are_no_news_when_only_the_text_matches_nothing() -> None:
    memory, browser = Memory(), Browser()
    memory.write("one", labels={"server": "eu-1"})
    async with feeds_of(memory) as shared:
        stream = opened(shared, label="server=eu-1", include="nowhere")
        await follow(stream, browser, lambda: "older" in browser.events)
        assert not browser.said("no-match")
        stream.close()
