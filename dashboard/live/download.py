"""Sends a range of log lines as a text file.

A download counts as a stream and ends as one: when the browser disconnects, when the user loses the right to read, when
the server stops. The last line says whether the file is complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from dashboard.live import asking, gathered, hub
from dashboard.live.events import Ending
from dashboard.live.feeds import Feeds
from dashboard.live.gathered import Gathered
from dashboard.live.session import Visitor
from dashboard.live.stream import PLAIN, Headers, Send, chunk
from recovery.domain.lines import Query
from recovery.logs.base import Source

PATH = "/live/logs/download"
AT_ONCE = 4  # in this process: each may hold some MB of lines
EACH = 2  # of one person
CHUNK_BYTES = 64 * 1024
_WHY = {
    Ending.RESTARTING: "Cut: the server restarted. Download again.",
    Ending.LOGGED_OUT: "Cut: you are logged out.",
    Ending.ROLE_CHANGED: "Cut: your role was changed. Download again.",
}


class Download(hub.Stream):
    """Download in progress."""

    __slots__ = ("_feeds", "_query", "_search", "_sources")

    def __init__(
        self, visitor: Visitor, cut: Callable[[], None], sources: Sequence[Source], query: Query, feeds: Feeds
    ) -> None:
        super().__init__(visitor, cut)
        self._sources = sources
        self._query = query
        self._feeds = feeds
        self._search: asyncio.Task[Sequence[Gathered]] | None = None

    def offer(self, event: bytes) -> None:
        """Ignores ticks: a file has none."""

    def end(self, ending: Ending) -> None:
        super().end(ending)
        self._stop()

    def depart(self) -> None:
        super().depart()
        self._stop()

    async def write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _headers()})
        await chunk(self, send, self._head())
        found = await self._found()
        for some in _chunks(gathered.merged(found)):
            if self.is_over:
                break
            await chunk(self, send, some)
            await asyncio.sleep(0)  # decompressing takes CPU: let other tasks run in between
        await chunk(self, send, self._foot(found), more=False)

    async def _found(self) -> Sequence[Gathered]:
        """Searches the sources; returns nothing if the download ends before the search does."""
        self._search = asyncio.create_task(
            gathered.gathered(self._sources, self._query, self._feeds.of(self.visitor.id))
        )
        try:
            await asyncio.wait((self._search,))
        finally:
            self._stop()
        return () if self._search.cancelled() else self._search.result()

    def _stop(self) -> None:
        if self._search:
            self._search.cancel()

    def _head(self) -> bytes:
        names = ", ".join(source.label for source in self._sources)
        start, end = (gathered.moment(at or 0) for at in (self._query.start, self._query.end))
        return f"# {names}, from {start} to {end}: time, level, labels, text\n".encode()

    def _foot(self, found: Sequence[Gathered]) -> bytes:
        if self.ending:
            return f"# {_WHY[self.ending]}\n".encode()
        remarks = [remark for one in found for remark in one.remarks]
        count = sum(one.count for one in found)
        told = f"{'' if remarks else 'End: '}{count:,} {'line' if count == 1 else 'lines'}."
        return "".join(f"# {' '.join(text.split())}\n" for text in (told, *remarks)).encode("utf-8", "replace")


def opened(visitor: Visitor, cut: Callable[[], None], query: bytes, feeds: Feeds) -> Download:
    """Returns the download that a URL requests; a range without start is the hour before its end. Raises Refused."""
    fields = asking.Fields(query)
    asked, sources = asking.question(fields), asking.sources(fields, feeds.sources)
    end = asked.end or time.time_ns()
    start = end - asking.HOUR if asked.start is None else asked.start
    whole = Query(asked.labels, asked.include, asked.exclude, asked.levels, start=max(0, start), end=end)
    return Download(visitor, cut, tuple(sources.values()), whole, feeds)


def _chunks(rows: Iterator[bytes]) -> Iterator[bytes]:
    some: list[bytes] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row) + 1
        if size >= CHUNK_BYTES:
            yield b"\n".join((*some, b""))
            some, size = [], 0
    if some:
        yield b"\n".join((*some, b""))


def _headers() -> Headers:
    name = f"logs-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.txt"
    return [
        (b"content-type", PLAIN),
        (b"content-disposition", f'attachment; filename="{name}"'.encode("ascii")),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        (b"connection", b"close"),  # so that shutdown need not wait for it
    ]
