"""Streams of lines over sources in memory, opened and read within a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlencode

from dashboard.live.session import Visitor
from dashboard.logs.live import request
from dashboard.logs.live.feed_registry import FeedRegistry
from dashboard.logs.live.stream import LogStream
from tests.support.logs.log_lines import Browser, Memory
from tests.support.patience import patience

ANNE = Visitor(1, "session-of-anne")
NOW = 10**18


@asynccontextmanager
async def feeds_of(*sources: Memory) -> AsyncIterator[FeedRegistry]:
    shared = FeedRegistry({source.name: source for source in sources})
    try:
        yield shared
    finally:
        await shared.close()


def opened(shared: FeedRegistry, last: str = "", **asked: str) -> LogStream:
    """From the first line on unless told otherwise."""
    wish = request.parse_log_request(urlencode({"g": "1", "from": "0", **asked}).encode(), last, shared.sources, NOW)
    stream = LogStream(ANNE, lambda: None, wish, shared)
    stream.start()
    return stream


async def follow(stream: LogStream, browser: Browser, until: Callable[[], bool]) -> None:
    async with asyncio.timeout(patience(60)):
        while not until():
            some = await stream.next()
            assert some is not None
            browser.take(some)


async def until_cut(stream: LogStream, browser: Browser, size: int, seconds: float) -> bool:
    """So many bytes, or what comes in so many seconds; whether an event was under way when the connection was cut."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while size > 0 and (some := await stream.next()):
                browser.take(some[:size])
                size -= len(some)
    stream.depart()
    stream.close()
    return browser.reconnect()


def numbers(browser: Browser) -> list[int]:
    return [int(id.partition(".")[2]) for id in browser.ids]
