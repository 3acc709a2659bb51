"""Keeps the feeds of this process: one for each source and tap while it has readers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from dashboard.live.hub import LiveLimitReached
from dashboard.logs.live.feed import LogFeed
from dashboard.server.fair_semaphore import FairSemaphore
from recovery.domain.logs.types import LogQuery
from recovery.logs.base import LogReader

FEEDS_LIMIT = 64  # each may hold 4 MB
FEEDS_EACH = 16  # of one person: a quarter, so that other users get feeds too
IDLE_SECONDS = 10.0  # a reloaded page finds its feed still there
SEARCHES_AT_ONCE = 4  # of one source: more of them would only make each other slow
SEARCHES_EACH = 2  # of one person

Key = tuple[str, LogQuery]


class UserFeeds:
    """Access of one user to feeds and searches, within the limits for one user."""

    def __init__(self, feeds: FeedRegistry, person: int) -> None:
        self.sources = feeds.sources
        self._feeds = feeds
        self._person = person

    def turn(self, source: LogReader) -> AbstractAsyncContextManager[None]:
        """Returns the context manager that limits searches of a source; hold it during a search."""
        return self._feeds.turn(source, self._person)

    def claim(self, source: LogReader, query: LogQuery) -> LogFeed:
        """Returns a feed that has all lines of this query; give it back with `release`. Raises Full."""
        return self._feeds.claim(source, query, self._person)

    def release(self, feed: LogFeed) -> None:
        self._feeds.release(feed, self._person)


class FeedRegistry:
    """Registry of the feeds of this process. Only the event loop uses it."""

    def __init__(self, sources: Mapping[str, LogReader]) -> None:
        self.sources = sources
        self._feeds: dict[Key, LogFeed] = {}
        self._idle: dict[Key, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._claims: Counter[tuple[int, Key]] = Counter()
        self._turns = {name: FairSemaphore(SEARCHES_AT_ONCE, SEARCHES_EACH) for name in sources}

    def __len__(self) -> int:
        return len(self._feeds)

    def of(self, person: int) -> UserFeeds:
        return UserFeeds(self, person)

    def turn(self, source: LogReader, person: int) -> AbstractAsyncContextManager[None]:
        return self._turns[source.name].one(f"user {person}")

    def claim(self, source: LogReader, query: LogQuery, person: int) -> LogFeed:
        key = (source.name, source.tap(query))
        if (person, key) not in self._claims and sum(who == person for who, _ in self._claims) >= FEEDS_EACH:
            raise LiveLimitReached(f"You follow {FEEDS_EACH} log selections, the limit for one user. Close some tabs.")
        feed = self._feeds.get(key) or self._begin(key)
        feed.claims += 1
        self._claims[person, key] += 1
        if timer := self._idle.pop(key, None):
            timer.cancel()
        return feed

    def release(self, feed: LogFeed, person: int) -> None:
        feed.claims -= 1
        key = (feed.source.name, feed.tap)
        self._claims[person, key] -= 1
        if not self._claims[person, key]:
            del self._claims[person, key]
        if not feed.claims and self._feeds.get(key) is feed:
            self._idle[key] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end, key)

    async def close(self) -> None:
        for key in tuple(self._feeds):
            self._end(key)
        if self._ending:
            await asyncio.wait(self._ending)
        for source in self.sources.values():
            await source.close()

    def _begin(self, key: Key) -> LogFeed:
        if len(self._feeds) >= FEEDS_LIMIT and self._idle:
            self._end(next(iter(self._idle)))
        if len(self._feeds) >= FEEDS_LIMIT:
            raise LiveLimitReached(
                f"This process follows {FEEDS_LIMIT} log selections, its limit. Run one more web process."
            )
        feed = self._feeds[key] = LogFeed(self.sources[key[0]], key[1])
        feed.start()
        return feed

    def _end(self, key: Key) -> None:
        if timer := self._idle.pop(key, None):
            timer.cancel()
        ending = asyncio.create_task(self._feeds.pop(key).stop())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
