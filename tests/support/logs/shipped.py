"""Lines in the state store, and sources that read them: what tests of shipped lines have in common."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import redis.asyncio

from recovery.config import load
from recovery.config.logs import SHIPPED
from recovery.domain.logs.line_batches import LineBatch
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.logs.base import LogResultPage
from recovery.logs.stream.source import StreamSource
from recovery.stores.state import state_keys
from recovery.stores.state.async_client import state_client
from tests.support.stores.stores import Store
from tests.support.waiting import until

ALL = LogQuery()
HOUR_MS = 3_600_000


class Sources:
    """`new()` is as after a restart: it remembers nothing."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self.client = client
        self._made: list[StreamSource] = []

    def new(self) -> StreamSource:
        self._made.append(StreamSource(SHIPPED, self.client))
        return self._made[-1]

    async def close(self) -> None:
        for source in self._made:
            await source.close()
        with suppress(redis.RedisError):
            await self.client.aclose()


@asynccontextmanager
async def sources_of(store: Store) -> AsyncIterator[Sources]:
    sources = Sources(state_client(load({"UNSTALL_STATE_URL": store.url})))
    try:
        yield sources
    finally:
        await sources.close()


def now_ms(store: Store) -> int:
    seconds, micros = store.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def settle(store: Store) -> None:
    """Until the millisecond is over in which something was shipped: before nobody reads it."""
    at = now_ms(store)
    until(lambda: now_ms(store) > at)


def ship(store: Store, server: str, *texts: str, id: str = "*") -> None:
    """An entry whose id is chosen."""
    parcel = LineBatch(tuple((time.time_ns(), text.encode()) for text in texts), {})
    put(store, server, parcel.encode(), id)


def put(store: Store, server: str, fields: Any, id: str = "*") -> None:
    store.client.zadd(state_keys.SHIPPING, {server: now_ms(store)})
    store.client.xadd(state_keys.logs(server), fields, id=id)


async def read_all(source: StreamSource, place: str, limit: int = 1000) -> tuple[list[LogLine], LogResultPage]:
    """And the last page."""
    lines: list[LogLine] = []
    while True:
        page = await source.read(ALL, after=place, limit=limit)
        lines += page.lines
        place = page.after
        if page.is_end:
            return lines, page


async def search_all(source: StreamSource, query: LogQuery, limit: int = 500) -> tuple[list[LogLine], int]:
    """And of how many pages."""
    lines: list[LogLine] = []
    before, pages = "", 0
    while pages == 0 or before:
        page = await source.search(query, before=before, limit=limit)
        lines = [*page.lines, *lines]
        before, pages = page.before, pages + 1
    return lines, pages


def texts(lines: Sequence[LogLine]) -> list[str]:
    return [line.text for line in lines]
