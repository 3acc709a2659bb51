"""The feeds of this process: one for each source and tap that somebody reads, ended when nobody does any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dashboard.live.feed import Feed
from dashboard.live.hub import Full
from recovery.domain.lines import Query
from recovery.logs.base import Source

FEEDS_LIMIT = 64  # each may hold 4 MB
IDLE_SECONDS = 10.0  # a page that is loaded anew finds its feed still there
SEARCHES_AT_ONCE = 4  # of one source: more of them would only make each other slow

Key = tuple[str, Query]


class Feeds:
    """Used from the event loop only."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self._feeds: dict[Key, Feed] = {}
        self._idle: dict[Key, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._turns = {name: asyncio.Semaphore(SEARCHES_AT_ONCE) for name in sources}

    def __len__(self) -> int:
        return len(self._feeds)

    def turn(self, source: Source) -> asyncio.Semaphore:
        """To be held while a source is searched."""
        return self._turns[source.name]

    def claim(self, source: Source, query: Query) -> Feed:
        """The feed that lets through what this query wants; give it back with `release`. Raises Full."""
        key = (source.name, source.tap(query))
        feed = self._feeds.get(key) or self._begin(key)
        feed.claims += 1
        if timer := self._idle.pop(key, None):
            timer.cancel()
        return feed

    def release(self, feed: Feed) -> None:
        feed.claims -= 1
        key = (feed.source.name, feed.tap)
        if not feed.claims and self._feeds.get(key) is feed:
            self._idle[key] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end, key)

    async def close(self) -> None:
        for key in tuple(self._feeds):
            self._end(key)
        if self._ending:
            await asyncio.wait(self._ending)
        for source in self.sources.values():
            await source.close()

    def _begin(self, key: Key) -> Feed:
        if len(self._feeds) >= FEEDS_LIMIT and self._idle:
            self._end(next(iter(self._idle)))
        if len(self._feeds) >= FEEDS_LIMIT:
            raise Full(f"This process follows {FEEDS_LIMIT} selections of logs, its limit. Run one more web process.")
        feed = self._feeds[key] = Feed(self.sources[key[0]], key[1])
        feed.start()
        return feed

    def _end(self, key: Key) -> None:
        if timer := self._idle.pop(key, None):
            timer.cancel()
        ending = asyncio.create_task(self._feeds.pop(key).stop())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
