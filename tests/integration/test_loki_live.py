"""A stream of lines from a Loki, cut off at any byte: every line once, late ones too, and troubles are told."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from recovery.config.endpoints import Endpoint
from recovery.config.logs import LOKI, LogSource
from recovery.logs.loki import LokiSource
from recovery.logs.loki import source as module
from tests.log_lines import Browser
from tests.log_streams import feeds_of, follow, opened
from tests.loki_double import LokiDouble

STREAMS = ({"app": "mail"}, {"app": "mail", "pod": "1"})


@pytest.fixture
async def double() -> AsyncIterator[LokiDouble]:
    with LokiDouble() as running:
        yield running


@pytest.fixture
async def source(double: LokiDouble) -> AsyncIterator[LokiSource]:
    made = LokiSource(LogSource("loki", "Loki", LOKI, Endpoint(double.url), timeout=30), settled=0.05)
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
            stream, left = opened(shared, browser.last), chance.randrange(1, chance.choice((300, 3_000, 60_000)))
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.choice((0.01, 0.05, 0.2))):
                    while left > 0 and (some := await stream.next()):
                        browser.take(some[:left])
                        left -= len(some)
            stream.depart()
            stream.close()
            browser.reconnect()
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
