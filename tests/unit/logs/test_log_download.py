"""A range of lines as a file: what stands in it, where it is cut, and what it costs."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from dashboard.live import hub
from dashboard.live.events import StreamEnding
from dashboard.logs.live import download
from recovery.domain.logs.types import LogLevel, LogLine, LogQuery
from recovery.errors import Unreachable
from recovery.logs.base import LogGap, LogResultPage
from tests.support.logs.log_asgi import LogHouse, Request, log_house
from tests.support.logs.log_lines import Memory

FILE = "/live/logs/download"
RANGE = "from=0&to=9000000000000"
SECOND = 10**9


async def lines_of(house: LogHouse, query: str = RANGE) -> list[str]:
    answer = await house.answer(f"{FILE}?{query}")
    assert answer.status == 200
    assert answer.is_whole
    return answer.body.decode().splitlines()


async def test_a_file_has_time_level_labels_and_text_of_each_line_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    labels = {"server": "eu-1", "file": "a\tb.log"}
    memory.lines = [
        LogLine("m.1", 1_700_000_000 * SECOND + 1, "it began", labels, LogLevel.INFO),
        LogLine("m.2", 1_700_000_000 * SECOND + 2, "and <b>went</b>\ton", left_out=4096),
    ]
    async with log_house(monkeypatch, memory) as house:
        answer = await house.answer(f"{FILE}?{RANGE}")
    head, *rows = answer.body.decode().splitlines()
    assert head == (
        "# memory, from 1970-01-01T00:00:00.000000000Z to 2255-03-14T16:00:00.000000000Z: time, level, labels, text"
    )
    assert rows == [
        "2023-11-14T22:13:20.000000001Z\tinfo\tfile=a b.log server=eu-1\tit began",
        "2023-11-14T22:13:20.000000002Z\t-\t\tand <b>went</b>\ton … 4,096 more bytes omitted",
        "# End: 2 lines.",
    ]
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    name = answer.headers["content-disposition"].removeprefix('attachment; filename="').removesuffix('"')
    assert name.startswith("logs-")
    assert name.removesuffix(".txt").replace("-", "").isalnum()


async def test_many_pages_and_sources_are_one_file_in_the_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    odd, even = Memory("odd"), Memory("even")
    for number in range(1, 3001):
        (odd if number % 2 else even).write(f"line {number}", at=number)
    async with log_house(monkeypatch, odd, even) as house:
        found = await lines_of(house)
    assert [line.rpartition("\t")[2] for line in found[1:-1]] == [f"line {number}" for number in range(1, 3001)]
    assert found[-1] == "# End: 3,000 lines."


async def test_a_file_has_what_was_asked_for_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, other = Memory(), Memory("other")
    memory.write("an error", "a known error", "fine", labels={"server": "eu-1"})
    memory.write("an error elsewhere", labels={"server": "eu-2"})
    memory.write("an error too late", at=10**7, labels={"server": "eu-1"})
    other.write("an error of another source")
    async with log_house(monkeypatch, memory, other) as house:
        query = "source=memory&label=server%3Deu-1&include=error&exclude=known&from=0&to=5"
        found = await lines_of(house, query)
    assert [line.rpartition("\t")[2] for line in found[1:]] == ["an error", "# End: 1 line."]
    assert other.asked == ["close"]


async def test_without_a_range_it_is_the_last_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 5000 * SECOND)
    memory = Memory()
    memory.write("old", at=1399 * SECOND)
    memory.write("young", at=1400 * SECOND)
    async with log_house(monkeypatch, memory) as house:
        found = await lines_of(house, "")
    assert [line.rpartition("\t")[2] for line in found[1:-1]] == ["young"]


@pytest.mark.parametrize(("limit", "most"), [("LINES", 800), ("TEXT_BYTES", 20_000)])
async def test_a_file_that_would_be_too_large_keeps_the_newest_and_says_so_at_its_end(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(download, limit, most)
    monkeypatch.setattr(download, "PAGE_LINES", 300)
    memory = Memory()
    memory.write(*(f"line {number}" for number in range(5000)))
    async with log_house(monkeypatch, memory) as house:
        found = await lines_of(house)
    texts = [line.rpartition("\t")[2] for line in found[1:-2]]
    assert texts == [f"line {number}" for number in range(5000 - len(texts), 5000)]
    assert 0 < len(texts) <= 800
    assert found[-2:] == [
        f"# {len(texts):,} lines.",
        f"# memory: Cut: a file contains only the newest {len(texts):,} lines of this source.",
    ]


async def test_a_search_that_takes_too_long_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(download, "PAGE_LINES", 10)
    memory = Memory()
    memory.write(*(f"line {number}" for number in range(50)))
    async with log_house(monkeypatch, memory) as house:
        found = await lines_of(house)
    assert found[-1] == "# memory: Cut: the search took too long; older lines were not searched."


class Failing(Memory):
    """Answers so many questions."""

    answers = 1

    async def search(self, query: LogQuery, *, before: str = "", limit: int = 500) -> LogResultPage:
        if not self.answers:
            raise Unreachable("redis://10.0.0.9:6379", "refused\nreally")
        self.answers -= 1
        return replace(await super().search(query, before=before, limit=limit), gap=LogGap("Some lines were lost."))


async def test_a_source_in_trouble_is_said_and_what_was_found_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAGE_LINES", 10)
    failing, well = Failing("failing"), Memory("well")
    failing.write(*(f"line {number}" for number in range(50)))
    well.write("fine")
    async with log_house(monkeypatch, failing, well) as house:
        found = await lines_of(house)
    assert len(found) == 1 + 10 + 1 + 3
    assert found[-3:] == [
        "# 11 lines.",
        "# failing: Some lines were lost.",
        f"# failing: Cut: redis://10.0.0.9:6379: refused really {Unreachable.advice}",
    ]


async def under_way(house: LogHouse, memory: Memory) -> Request:
    asked = house.ask(f"{FILE}?{RANGE}")
    async with asyncio.timeout(10):
        while not memory.under_way:
            await asyncio.sleep(0)
    return asked


async def restarted(house: LogHouse, _: Request) -> None:
    await house.hub.close()


async def signed_out(house: LogHouse, _: Request) -> None:
    for stream in house.hub._streams:
        stream.end(StreamEnding.LOGGED_OUT)


async def left(_: LogHouse, request: Request) -> None:
    request.leave()


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (restarted, "# Cut: the server restarted. Download again."),
        (signed_out, "# Cut: you are logged out."),
        (left, ""),
    ],
)
async def test_a_file_ends_while_it_is_searched_for(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[LogHouse, Request], Awaitable[None]], words: str
) -> None:
    monkeypatch.setattr(download, "ANSWER_SECONDS", 1000.0)
    memory = Memory()
    memory.delay = 1000
    async with log_house(monkeypatch, memory) as house:
        asked = await under_way(house, memory)
        assert len(house.hub) == 1
        await end(house, asked)
        await asked.whole()
        assert not memory.under_way
        assert not len(house.hub)
        assert asked.body.decode().splitlines()[1:] == ([words] if words else [])


async def test_a_file_ends_while_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "CHUNK_BYTES", 1000)
    memory = Memory()
    memory.write(*(f"line {number}" for number in range(2000)))
    async with log_house(monkeypatch, memory) as house:
        asked = house.ask(f"{FILE}?{RANGE}")
        await asked.until(lambda: asked.body.count(b"\n") > 100)
        for stream in house.hub._streams:
            stream.end(StreamEnding.RESTARTING)
        await asked.whole()
        rows = asked.body.decode().splitlines()
        assert rows[-1] == "# Cut: the server restarted. Download again."
        assert 100 < len(rows) < 2000


async def test_a_reader_that_takes_nothing_holds_little_and_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "SEND_SECONDS", 0.3)
    monkeypatch.setattr(hub, "WATCH_TURN", 0.1)
    memory = Memory()
    memory.write(*("Connection to the database was lost, trying again. " * 20 for _ in range(6_000)))
    async with log_house(monkeypatch, memory) as house:
        asked = house.ask(f"{FILE}?{RANGE}")
        await asked.until(lambda: asked.body)
        asked.may_take.clear()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            async with asyncio.timeout(60):
                while len(memory.asked) < 12:
                    await asyncio.sleep(0.001)
            assert tracemalloc.get_traced_memory()[0] - before < 2 * 1024 * 1024  # of 6 MB
        finally:
            tracemalloc.stop()
        async with asyncio.timeout(60):
            while len(house.hub):
                await asyncio.sleep(0.001)


async def test_files_under_way_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "AT_ONCE", 1)
    memory = Memory()
    memory.delay = 60
    async with log_house(monkeypatch, memory) as house:
        asked = await under_way(house, memory)
        refused = await house.answer(FILE, "bob")
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 10
        asked.leave()
        await asked.whole()
        memory.delay = 0
        assert (await house.answer(FILE, "bob")).status == 200
