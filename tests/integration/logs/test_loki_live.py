"""A stream of lines from a Loki, cut off at any byte: every line once, late ones too, troubles are told, and nobody is
asked for what is not wanted any more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from dashboard.logs.live import feed, feed_registry, source_reader
from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LOKI, LogSource
from recovery.logs.loki import LokiSource
from recovery.logs.loki import source as module
from tests.support.logs.log_asgi import log_house
from tests.support.logs.log_lines import Browser
from tests.support.logs.log_streams import feeds_of, follow, opened, until_cut
from tests.support.logs.loki_double import Asked, LokiDouble
from tests.support.patience import patience

_LONG = 300.0  # seconds: whoever waits for an answer does not give up by itself within a test
STREAMS = ({"app": "mail"}, {"app": "mail", "pod": "1"})


@pytest.fixture
async def double() -> AsyncIterator[LokiDouble]:
    with LokiDouble() as running:
        yield running


@pytest.fixture
async def source(double: LokiDouble) -> AsyncIterator[LokiSource]:
    made = LokiSource(LogSource("loki", "Loki", LOKI, HttpEndpoint(double.url), timeout=_LONG), settled=0.05)
    made.pace = 0.05
    yield made
    await made.close()


async def test_a_reader_that_is_cut_anywhere_gets_every_line_once(
    double: LokiDouble, source: LokiSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FRESH_NS", 10**7)
    chance, browser, written = random.Random(3), Browser(), []
    for _ in range(20):
        double.push(STREAMS[0], (time.time_ns() - 10**9, f"early {len(written)}"))
        written.append(f"early {len(written)}")
    async with feeds_of(source) as shared:
        beside, other = opened(shared), Browser()
        await follow(beside, other, lambda: bool(other.said("caught-up")))
        for _ in range(40):
            for number in range(chance.choice((1, 3, 30))):
                late = chance.choice((0, 0, 3 * 10**8))
                text = f"line {len(written)}"
                double.push(chance.choice(STREAMS), (time.time_ns() - late + number, text))
                written.append(text)
            size = chance.randrange(1, chance.choice((300, 3_000, 60_000)))
            await until_cut(opened(shared, browser.last), browser, size, chance.choice((0.01, 0.05, 0.2)))
        stream = opened(shared, browser.last)
        await follow(stream, browser, lambda: len(browser.lines) >= len(written))
        stream.close()
        beside.close()
    assert sorted(browser.lines) == sorted(written)


async def test_trouble_is_told_once_and_so_is_its_end(double: LokiDouble, source: LokiSource) -> None:
    browser = Browser()
    double.push(STREAMS[0], (time.time_ns() - 10**9, "before"))
    async with feeds_of(source) as shared:
        stream = opened(shared)
        await follow(stream, browser, lambda: browser.lines == ["before"] and browser.said("caught-up"))
        double.answers = [(500, {"Content-Type": "text/plain"}, b"broken")] * 3
        await follow(stream, browser, lambda: browser.said("recovered"))
        double.push(STREAMS[0], (time.time_ns(), "after"))
        await follow(stream, browser, lambda: browser.lines == ["before", "after"])
        stream.close()
    [trouble] = browser.said("trouble")
    assert "500 Internal Server Error: broken" in trouble["text"]
    assert trouble["advice"]


@pytest.mark.parametrize("leaves", [False, True], ids=["asks for something newer", "leaves"])
async def test_what_a_tab_does_not_want_any_more_is_given_up_at_the_source(
    double: LokiDouble, source: LokiSource, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """Its connection to the tab stays open when it asks for something newer: that alone must do."""
    monkeypatch.setattr(source_reader, "ANSWER_SECONDS", _LONG)
    double.push(STREAMS[0], *((time.time_ns() - 10**9, line) for line in ("tortoise", "hare")))
    double.hold("tortoise", _LONG)
    async with log_house(monkeypatch, source) as house:
        old = house.ask("/live/logs?g=1&tab=t&label=app%3Dmail&include=tortoise")
        await met(lambda: kinds(double.asked_for("tortoise")) == {"backward", "forward"})  # a search, and a feed
        if leaves:
            old.leave()
        new = house.ask("/live/logs?g=2&tab=t&label=app%3Dmail&include=hare")
        await new.until(lambda: new.browser.lines == ["hare"])
        await old.whole()
        await met(lambda: "backward" in kinds(double.abandoned))
        assert not old.browser.lines


async def test_a_feed_that_nobody_reads_any_more_asks_no_more(
    double: LokiDouble, source: LokiSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_registry, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(feed, "READ_SECONDS", _LONG)
    double.hold("tortoise", _LONG)
    async with feeds_of(source) as shared:
        stream = opened(shared, label="app=mail", include="tortoise")
        await met(lambda: "forward" in kinds(double.asked_for("tortoise")))
        stream.close()
        await met(lambda: "forward" in kinds(double.abandoned))
        assert not len(shared)


def kinds(asked: Iterable[Asked]) -> set[str]:
    """A reader's own search goes backward; a feed reads forward."""
    return {one.params["direction"] for one in list(asked) if "direction" in one.params}


async def met(condition: Callable[[], object]) -> None:
    """By a stand-in with threads of its own, which wakes nobody here."""
    async with asyncio.timeout(patience(10)):
        while not condition():
            await asyncio.sleep(0.005)
