"""Sends a range of log lines as a text file.

A download counts as a stream and ends as one: when the browser disconnects, when the user loses the right to read, when
the server stops. The last line says whether the file is complete.
"""

from __future__ import annotations

import asyncio
import heapq
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dashboard.live import hub
from dashboard.live.asgi import PLAIN, Headers, Send, send_chunk
from dashboard.live.events import StreamEnding
from dashboard.live.session import Visitor
from dashboard.logs.live import notices, request
from dashboard.logs.live.feed_registry import FeedRegistry, UserFeeds
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.logs.base import LogReader, LogResultPage

# -- export
# Collects the lines of a range as text, oldest first, in little memory. Sources return their newest lines first. So
# each page is compressed as it arrives, and decompressed again, page by page, once the search is over.


LINES = 100_000  # of one file, over all of its sources
TEXT_BYTES = 16 * 1024 * 1024  # compressed, logs take a fifth of it
SEARCH_SECONDS = 45.0  # nothing is sent meanwhile, and proxies wait for 60
ANSWER_SECONDS = 20.0  # for one page; sources have limits of their own, far below
PAGE_LINES = 500
_FOLDING = 1  # of zlib: fast
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BREAKS = str.maketrans("\t\n\r", "   ")

Row = tuple[int, bytes]  # when (ns), and the line as it stands in the file


@dataclass(frozen=True, slots=True)
class ExportLimits:
    lines: int
    bytes: int
    until: float  # by the loop's clock


class SourceExport:
    """Lines of one source, compressed page by page."""

    def __init__(self, source: LogReader) -> None:
        self.source = source
        self.count = 0
        self.remarks: list[str] = []
        self._pages: list[bytes] = []  # newest first
        self._size = 0
        self._is_begun = False

    async def gather(self, query: LogQuery, feeds: UserFeeds, budget: ExportLimits) -> None:
        """Searches the source. Never raises for its failures: they become a remark, and lines found so far stay."""
        page = LogResultPage()
        try:
            while not page.is_end and (page.before or not self._is_begun):
                if self._is_used_up(budget):
                    break
                limit = min(PAGE_LINES, budget.lines - self.count)
                async with feeds.turn(self.source), asyncio.timeout(ANSWER_SECONDS):
                    page = await self.source.search(query, before=page.before, limit=limit)
                self._keep(page)
        except Exception as failure:  # noqa: BLE001 -- any failure becomes a remark in the file
            note = notices.failure_notice(failure)
            self._remark(f"Cut: {note.text} {note.advice}")

    def rows(self) -> Iterator[Row]:
        """Yields the lines, oldest first; frees each page once it was yielded."""
        while self._pages:
            for row in zlib.decompress(self._pages.pop()).split(b"\n"):
                at, _, text = row.partition(b" ")
                yield int(at), text

    def _is_used_up(self, budget: ExportLimits) -> bool:
        if self.count >= budget.lines or self._size >= budget.bytes:
            self._remark(f"Cut: a file contains only the newest {self.count:,} lines of this source.")
        elif asyncio.get_running_loop().time() >= budget.until:
            self._remark("Cut: the search took too long; older lines were not searched.")
        else:
            return False
        return True

    def _keep(self, page: LogResultPage) -> None:
        self._is_begun = True
        if page.gap:
            self._remark(page.gap.reason)
        if not page.lines:
            return
        rows = b"\n".join([b"%d %s" % (line.at, _written(line)) for line in page.lines])
        self._size += len(rows)
        self._pages.append(zlib.compress(rows, _FOLDING))
        self.count += len(page.lines)

    def _remark(self, text: str) -> None:
        self.remarks.append(f"{self.source.label}: {text}".rstrip())


async def collect_lines(sources: Sequence[LogReader], query: LogQuery, feeds: UserFeeds) -> Sequence[SourceExport]:
    """Searches all sources at the same time, each with an equal share of the limits."""
    until = asyncio.get_running_loop().time() + SEARCH_SECONDS
    share = max(1, len(sources))
    budget = ExportLimits(LINES // share, TEXT_BYTES // share, until)
    found = [SourceExport(source) for source in sources]
    await asyncio.gather(*(one.gather(query, feeds, budget) for one in found))
    return found


def merge_by_time(found: Iterable[SourceExport]) -> Iterator[bytes]:
    """Yields the lines of all sources by time; those of one source keep its order."""
    return (text for _, text in heapq.merge(*(one.rows() for one in found), key=_at))


def moment(at: int) -> str:
    """Formats a time to the nanosecond, in UTC."""
    try:
        return f"{_EPOCH + timedelta(seconds=at // 10**9):%Y-%m-%dT%H:%M:%S}.{at % 10**9:09d}Z"
    except OverflowError:
        return str(at)  # no calendar has it


def _written(line: LogLine) -> bytes:
    """Formats a line as time, level, labels and text between tabs; the text comes last, as it may hold tabs."""
    labels = " ".join(f"{name}={value}" for name, value in sorted(line.labels.items()))
    more = f" … {line.left_out:,} more bytes omitted" if line.left_out else ""
    row = f"{moment(line.at)}\t{line.level or '-'}\t{labels.translate(_BREAKS)}\t{line.text}{more}"
    return row.replace("\n", " ").encode("utf-8", "replace")


def _at(row: Row) -> int:
    return row[0]


# -- download


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
        for some in _chunks(merge_by_time(found)):
            if self.is_over:
                break
            await send_chunk(self, send, some)
            await asyncio.sleep(0)  # decompressing takes CPU: let other tasks run in between
        await send_chunk(self, send, self._foot(found), more=False)

    async def _found(self) -> Sequence[SourceExport]:
        """Searches the sources; returns nothing if the download ends before the search does."""
        self._search = asyncio.create_task(collect_lines(self._sources, self._query, self._feeds.of(self.visitor.id)))
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
        start, end = (moment(at or 0) for at in (self._query.start, self._query.end))
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
