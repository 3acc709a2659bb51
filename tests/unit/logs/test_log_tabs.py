"""/live/logs as one application: what a tab may ask, which of its wishes counts, and what is refused with words."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote, urlencode

import pytest

from dashboard.live import hub
from dashboard.logs.live import cursor, json_endpoints
from recovery.errors import TimedOut, Unreachable
from tests.support.logs.log_asgi import log_house
from tests.support.logs.log_lines import Memory

STREAM = "/live/logs"


def waits(memory: Memory, questions: int = 1) -> bool:
    return memory.under_way >= questions


async def settled(memory: Memory) -> None:
    async with asyncio.timeout(10):
        while memory.under_way:
            await asyncio.sleep(0.001)


async def test_a_slow_answer_to_an_old_filter_never_shows_under_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(pace=60)  # what is under way is searches alone, once the feed has read
    memory.write("an old line", "a new line")
    async with log_house(monkeypatch, memory) as house:
        memory.delay = 60
        old = house.ask(f"{STREAM}?g=1&tab=t&from=0&include=old")
        async with asyncio.timeout(10):
            while not waits(memory, 2):
                await asyncio.sleep(0.001)
        memory.delay = 0.0
        new = house.ask(f"{STREAM}?g=2&tab=t&from=0&include=new")
        await old.whole()
        await new.until(lambda: new.browser.lines)
        assert new.browser.lines == ["a new line"]
        assert {detail["g"] for detail in new.browser.details if "g" in detail} == {2}
        assert not old.browser.lines
        assert old.is_whole
        assert memory.under_way <= 1  # the older search is stopped; the feed is shared


async def test_the_search_of_a_reader_that_left_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    async with log_house(monkeypatch, memory) as house:
        memory.delay = 60
        asked = house.ask(f"{STREAM}?to=5")  # a range, so that no feed reads
        async with asyncio.timeout(10):
            while not waits(memory):
                await asyncio.sleep(0.001)
        asked.leave()
        await asked.whole()
        await settled(memory)
        assert not len(house.hub)


async def test_an_older_wish_of_a_tab_is_refused_and_those_of_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with log_house(monkeypatch, Memory()) as house:
        newest = house.ask(f"{STREAM}?g=5&tab=t")
        await newest.until(lambda: newest.status == 200)
        assert (await house.answer(f"{STREAM}?g=4&tab=t")).status == 409
        others = [house.ask(f"{STREAM}?g=4&tab=u"), house.ask(f"{STREAM}?g=4&tab=t", "bob"), house.ask(STREAM)]
        for other in others:
            await other.until(lambda other=other: "hello" in other.browser.events)  # type: ignore[misc]
        assert not newest.is_whole
        again = house.ask(f"{STREAM}?g=5&tab=t")  # as a browser comes back by itself
        await newest.whole()
        await again.until(lambda: "hello" in again.browser.events)


async def test_the_header_says_where_to_go_on_before_the_address_does(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.write("one", "two", "three")
    async with log_house(monkeypatch, memory) as house:
        back = house.ask(f"{STREAM}?from=0&last={quote('memory=m.1')}", last="memory=m.2")
        await back.until(lambda: back.browser.lines)
        assert back.browser.lines == ["three"]


@pytest.mark.parametrize(
    "last", ["memory", "memory=", "memory=a%20b%20c", "memory=%00", "x" * 5000, "a=1&b=1&c=1&d=1&e=1"]
)
async def test_a_cursor_that_nobody_wrote_is_no_reason_to_show_nothing(
    monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    memory = Memory()
    memory.write("one")
    async with log_house(monkeypatch, memory) as house:
        asked = house.ask(f"{STREAM}?{urlencode({'from': '0', 'last': last})}")
        await asked.until(lambda: asked.browser.lines)
        assert asked.browser.lines == ["one"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("source=nowhere", "There are: memory."),
        (urlencode({"source": "<script>" * 100}), "There are: memory."),
        ("&".join(f"source=s{number}" for number in range(5)), "at most 4"),
        ("&".join(f"label=l{number}=1" for number in range(11)), "at most 10 names"),
        ("&".join(f"label=l={number}" for number in range(51)), "at most 10 names with 50 values"),
        ("label=server", "NAME=VALUE"),
        ("label=%3Dx", "NAME=VALUE"),
        (f"label=server={'x' * 1001}", "NAME=VALUE"),
        ("level=loud", "there are trace"),
        ("g=-1", "not a number from 0"),
        ("g=1e3", "not a number"),
        ("g=%C2%B2", "not a number"),
        ("g=99999999999999999999", "not a number"),
        ("from=99999999999999999999", "not a number"),
        ("from=5&to=5", "must be before"),
        ("&".join(f"include={number}" for number in range(11)), "at most 10 texts"),
        (f"exclude={'x' * 201}", "at most 200 characters"),
        (f"tab={'x' * 65}", "at most 64"),
        ("tab=%0A", "at most 64"),
        ("&".join("a=1" for _ in range(201)), "at most 200 parameters"),
        (f"x={'y' * 40_000}", "at most 32 KB"),
    ],
)
async def test_what_cannot_be_asked_like_that_is_refused_with_words(
    monkeypatch: pytest.MonkeyPatch, query: str, words: str
) -> None:
    async with log_house(monkeypatch, Memory()) as house:
        answer = await house.answer(f"{STREAM}?{query}")
        assert answer.status == 400
        assert words in answer.body.decode()
        assert not len(house.hub)


@pytest.mark.parametrize("query", ["source=nowhere", "source=memory&label=x", "source=memory&from=x", "&" * 40_000])
async def test_questions_beside_the_stream_are_refused_the_same_way(
    monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    memory = Memory()
    async with log_house(monkeypatch, memory) as house:
        for name in ("older", "labels", "download"):
            assert (await house.answer(f"{STREAM}/{name}?{query}")).status == 400
        assert not memory.asked


@pytest.mark.parametrize(
    ("path", "person", "method", "status"),
    [
        (STREAM, "", "GET", 401),
        (STREAM, "mallory", "GET", 401),
        (f"{STREAM}/labels", "", "GET", 401),
        (f"{STREAM}/download", "", "GET", 401),
        (STREAM, "anne", "POST", 405),
        (f"{STREAM}/download", "anne", "HEAD", 405),
        (f"{STREAM}/nothing", "anne", "GET", 404),
        (f"{STREAM}x", "anne", "GET", 404),
    ],
)
async def test_strangers_and_strange_addresses_are_refused(
    monkeypatch: pytest.MonkeyPatch, path: str, person: str, method: str, status: int
) -> None:
    async with log_house(monkeypatch, Memory()) as house:
        answer = await house.answer(path, person, method=method)
        assert answer.status == status
        assert answer.headers["cache-control"] == "no-store"
        assert answer.body


async def test_streams_of_lines_count_as_live_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PERSON_LIMIT", 2)
    async with log_house(monkeypatch, Memory()) as house:
        first, second = house.ask(STREAM), house.ask(STREAM)
        await second.until(lambda: second.status == 200)
        refused = await house.answer(STREAM)
        assert refused.status == 503
        assert 10 <= int(refused.headers["retry-after"]) <= 30
        other = house.ask(STREAM, "bob")
        await other.until(lambda: other.status == 200)
        first.leave()
        await first.whole()
        again = house.ask(STREAM)
        await again.until(lambda: again.status == 200)


async def test_a_server_that_stops_says_farewell_to_streams_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.delay = 60
    async with log_house(monkeypatch, memory) as house:
        asked = house.ask(STREAM)
        await asked.until(lambda: "hello" in asked.browser.events)
        await house.hub.close()
        await asked.whole()
        assert asked.browser.events[-1] == "bye"
        assert asked.browser.details[-1]["reason"] == "restarting"
        assert (await house.answer(STREAM)).status == 503


async def test_older_lines_come_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.write(*(f"line {number}" for number in range(1, 26)), labels={"server": "eu-1"})
    async with log_house(monkeypatch, memory) as house:
        found: list[str] = []
        before = ""
        for _ in range(3):
            answer = await house.answer(f"{STREAM}/older?source=memory&limit=10&before={before}")
            told = json.loads(answer.body)
            found[:0] = [line[4] for line in told["lines"]]
            assert told["sets"] == [{"server": "eu-1"}]
            before = told["before"]
        assert found == [f"line {number}" for number in range(1, 26)]
        assert before == ""


async def test_an_answer_is_cut_by_its_bytes_and_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_endpoints, "ANSWER_BYTES", 5_000)
    memory = Memory()
    memory.write(*(f"{number:02} {'x' * 1000}" for number in range(20)))
    async with log_house(monkeypatch, memory) as house:
        found: list[str] = []
        before = ""
        while before or not found:
            answer = await house.answer(f"{STREAM}/older?source=memory&before={before}")
            assert len(answer.body) < 6_000
            told = json.loads(answer.body)
            found[:0] = [line[4][:2] for line in told["lines"]]
            before = told["before"]
        assert found == [f"{number:02}" for number in range(20)]


async def test_lines_around_one_and_labels_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.write(*(f"line {number}" for number in range(1, 10)), labels={"server": "eu-1"})
    async with log_house(monkeypatch, memory) as house:
        told = json.loads((await house.answer(f"{STREAM}/around?source=memory&id=m.5&lines=2")).body)
        assert [line[0] for line in told["lines"]] == ["m.3", "m.4", "m.5", "m.6", "m.7"]
        told = json.loads((await house.answer(f"{STREAM}/labels?source=memory")).body)
        assert told == {"labels": {"server": ["eu-1"]}, "is_cut": False}
        gone = await house.answer(f"{STREAM}/around?source=memory&id=m.99")
        assert gone.status == 404
        assert json.loads(gone.body)["error"] == "this line is gone"


@pytest.mark.parametrize(
    ("trouble", "status"), [(Unreachable("redis://s:1", "refused"), 502), (TimedOut("redis://s:1", "silence"), 504)]
)
async def test_a_source_that_gives_no_answer_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, trouble: Unreachable, status: int
) -> None:
    memory = Memory()
    memory.trouble = trouble
    async with log_house(monkeypatch, memory) as house:
        for name in ("older", "labels", "around"):
            answer = await house.answer(f"{STREAM}/{name}?source=memory&id=m.1")
            assert answer.status == status
            assert json.loads(answer.body) == {"error": str(trouble), "advice": trouble.advice}


async def test_a_source_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_endpoints, "ANSWER_SECONDS", 0.02)
    memory = Memory()
    memory.delay = 60
    async with log_house(monkeypatch, memory) as house:
        assert (await house.answer(f"{STREAM}/older?source=memory")).status == 504
        await settled(memory)


async def test_questions_beside_the_streams_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_endpoints, "AT_ONCE", 1)
    memory = Memory()
    memory.delay = 60
    async with log_house(monkeypatch, memory) as house:
        first = house.ask(f"{STREAM}/older?source=memory")
        async with asyncio.timeout(10):
            while not waits(memory):
                await asyncio.sleep(0.001)
        refused = await house.answer(f"{STREAM}/older?source=memory")
        assert refused.status == 503
        assert "retry-after" in refused.headers
        assert first.task
        first.task.cancel()
        house.requests.remove(first)


@pytest.mark.parametrize("place", ["a b", "\x00", "ü", "x" * 201])
async def test_a_place_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    async with log_house(monkeypatch, Memory()) as house:
        answer = await house.answer(f"{STREAM}/older?{urlencode({'source': 'memory', 'before': place})}")
        assert answer.status == 400
        assert b"not a valid path" in answer.body


def test_a_cursor_of_four_sources_fits() -> None:
    places = {f"{'s' * 39}{number}": "%" * 200 for number in range(4)}
    text = b"&".join(
        cursor.encode_part(name, cursor.LogCursorPosition(place, place)) for name, place in places.items()
    ).decode()
    assert len(text) <= cursor.LONGEST
    assert {name: spot.place for name, spot in cursor.decode(text).items()} == places
