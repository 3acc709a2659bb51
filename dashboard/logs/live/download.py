"""Sends a range of log lines as a text file.

A download counts as a stream and ends as one: when the browser disconnects, when the user loses the right to read, when
the server stops. The last line says whether the file is complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from dashboard.live import hub
from dashboard.live.asgi import PLAIN, Headers, Send, send_chunk
from dashboard.live.events import StreamEnding
from dashboard.live.session import Visitor
from dashboard.logs.live import export, request
from dashboard.logs.live.export import SourceExport
from dashboard.logs.live.feed_registry import FeedRegistry
from recovery.domain.logs.types import LogQuery
from recovery.logs.base import LogReader

PATH = "/live/logs/download"
AT_ONCE = 4  # in this process: each may hold some MB of lines
EACH = 2  # of one person
CHUNK_BYTES = 64 * 1024
_WHY = {
    StreamEnding.RESTARTING: "Cut: the server restarted. Download again.",
    StreamEnding.LOGGED_OUT: "Cut: you are logged out.",
    StreamEnding.ROLE_CHANGED: "Cut: your role was changed. Download again.",
}


class LogDownload(hub.LiveStream):
    """Download in progress."""

    __slots__ = ("_feeds", "_query", "_search", "_sources")

    def __init__(
        self,
        visitor: Visitor,
        cut: Callable[[], None],
        sources: Sequence[LogReader],
        query: LogQuery,
        feeds: FeedRegistry,
    ) -> None:
        super().__init__(visitor, cut)
        self._sources = sources
        self._query = query
        self._feeds = feeds
        self._search: asyncio.Task[Sequence[SourceExport]] | None = None

    def offer(self, event: bytes) -> None:
        """Ignores ticks: a file has none."""

    def end(self, ending: StreamEnding) -> None:
        super().end(ending)
        self._stop()

    def depart(self) -> None:
        super().depart()
        self._stop()

    async def write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _headers()})
        await send_chunk(self, send, self._head())
        found = await self._found()
        for some in _chunks(export.merge_by_time(found)):
            if self.is_over:
                break
            await send_chunk(self, send, some)
            await asyncio.sleep(0)  # decompressing takes CPU: let other tasks run in between
        await send_chunk(self, send, self._foot(found), more=False)

    async def _found(self) -> Sequence[SourceExport]:
        """Searches the sources; returns nothing if the download ends before the search does."""
        self._search = asyncio.create_task(
            export.collect_lines(self._sources, self._query, self._feeds.of(self.visitor.id))
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
        start, end = (export.moment(at or 0) for at in (self._query.start, self._query.end))
        return f"# {names}, from {start} to {end}: time, level, labels, text\n".encode()

    def _foot(self, found: Sequence[SourceExport]) -> bytes:
        if self.ending:
            return f"# {_WHY[self.ending]}\n".encode()
        remarks = [remark for one in found for remark in one.remarks]
        count = sum(one.count for one in found)
        told = f"{'' if remarks else 'End: '}{count:,} {'line' if count == 1 else 'lines'}."
        return "".join(f"# {' '.join(text.split())}\n" for text in (told, *remarks)).encode("utf-8", "replace")


def opened(visitor: Visitor, cut: Callable[[], None], query: bytes, feeds: FeedRegistry) -> LogDownload:
    """Returns the download that a URL requests; a range without start is the hour before its end. Raises Refused."""
    fields = request.UrlFields(query)
    asked, sources = request.parse_query(fields), request.select_sources(fields, feeds.sources)
    end = asked.end or time.time_ns()
    start = end - request.HOUR if asked.start is None else asked.start
    whole = LogQuery(asked.labels, asked.include, asked.exclude, asked.levels, start=max(0, start), end=end)
    return LogDownload(visitor, cut, tuple(sources.values()), whole, feeds)


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
