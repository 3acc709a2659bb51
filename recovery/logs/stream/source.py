"""Source `servers`: the lines that monitors ship into the state store, one capped stream a server.

All streams are read as one (places.py says in which order), so one place stands for all servers, also for those that
begin to ship later. Nothing is written, and unfolding and judging is done in threads: the loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import attrgetter

import redis.asyncio

from recovery.config.logs import LogSource
from recovery.domain.logs.sanitize import line_prefilter
from recovery.domain.logs.types import LogQuery
from recovery.errors import Missing
from recovery.logs.base import LogGap, LogLabels, LogResultPage
from recovery.logs.stream import cursors
from recovery.logs.stream import search as stream_search
from recovery.logs.stream.cursors import AHEAD_MS, StreamCursor
from recovery.logs.stream.matching import MatchRequest, SearchDeadline, StreamMatcher, StreamMatches
from recovery.logs.stream.positions import StreamPosition, mark_of, parse_id
from recovery.logs.stream.store import (
    FIELDS,
    NewerEntries,
    Row,
    ShippedEntry,
    StreamStore,
    entries_of,
    labels_of,
    short,
)
from recovery.stores import thread_pool

# -- prefilter
# Passes over small parcels by the dozen: an hour of quiet files has forty thousand, most without a hit. To look at
# each of them costs more than to decompress it. So many are decompressed as one text, and where that cannot hold what
# is looked for they become one entry that stands for all of them. It lies where the oldest of them does: a search
# that stops before it begins with them again.


AT_ONCE = 64  # entries
SMALL = 512  # bytes of a body, compressed, on average: all expand to 34 MB at the very worst, and to 60 KB mostly
_LABELS, _FIRST, _LAST, _BODY = (2 * FIELDS.index(name) + 1 for name in (b"labels", b"first", b"last", b"body"))

Sift = Callable[[bytes, Sequence[Row]], Sequence[ShippedEntry]]  # of a server


def prefilter_for(query: LogQuery) -> Sift:
    """Returns the prefilter of a query. One that lets an empty text through asks for no text: every parcel is read."""
    return entries_of if line_prefilter(query)(b"") else _Sifting(query)


class _Sifting:
    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._may_match = line_prefilter(query)
        self._may_match_text = line_prefilter(replace(query, levels=frozenset()))

    def __call__(self, server: bytes, rows: Sequence[Row]) -> Sequence[ShippedEntry]:
        found: list[ShippedEntry] = []
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            passed = self._passed(server, some)
            found += entries_of(server, some) if passed is None else (passed,)
        return found

    def _passed(self, server: bytes, rows: Sequence[Row]) -> ShippedEntry | None:
        """Returns one entry for all; None to read each: they may match, are large, or not as we write them."""
        if any(fields[::2] != FIELDS for _, fields in rows):
            return None
        try:
            held = [fields for _, fields in rows if self._may_hold(server, fields)]
            if any(self._query.beside(labels_of(server, short(fields[_LABELS]))) is not self._query for fields in held):
                return None
            bodies = [fields[_BODY] for fields in held]
            if sum(map(len, bodies)) > SMALL * AT_ONCE:
                return None
            text = b"\n".join(map(zlib.decompress, bodies))
        except (ValueError, zlib.error):
            return None
        is_told = bool(self._query.levels) and any(_may_tell(fields[_LABELS]) for _, fields in rows)
        if bodies and (self._may_match_text if is_told else self._may_match)(text):
            return None
        lines = text.count(b"\n") + 1 if bodies else 0
        order = parse_id(rows[-1][0]), mark_of(server)
        return ShippedEntry(order, server, (b"{}", b"%d" % lines, b"", b"", b""), passed=len(rows))

    def _may_hold(self, server: bytes, fields: Sequence[bytes]) -> bool:
        query = self._query
        return (
            (query.start is None or int(fields[_LAST]) >= query.start)
            and (query.end is None or int(fields[_FIRST]) < query.end)
            and (not query.labels or query.has(labels_of(server, short(fields[_LABELS]))))
        )


def _may_tell(labels: bytes) -> bool:
    """Returns True if labels may have the level of the lines, whatever these say of themselves."""
    return b"level" in labels or b"\\u" in labels


# -- source


# -- ordering
# Orders the entries after a reader's place, over all servers, as far as the order is certain.


_ORDER = attrgetter("order")


def in_order(newer: NewerEntries) -> list[ShippedEntry]:
    """Returns entries up to where some server has more that was not asked for: it may belong between the rest."""
    ends = [newer.entries[server][-1].order for server in newer.cut]
    end = min(ends, default=None)
    settled = [entry for server in newer.entries for entry in _settled(newer, server)]
    return sorted((entry for entry in settled if end is None or entry.order <= end), key=_ORDER)


def _settled(newer: NewerEntries, server: bytes) -> Iterator[ShippedEntry]:
    """Yields entries before the current millisecond: another server may yet ship within it. The rest is for later."""
    for entry in newer.entries[server]:
        if newer.now <= entry.id[0] <= newer.now + AHEAD_MS:
            return
        yield entry


# -- source


SEARCH_S = 0.8  # of work for one page of a search: with the ways to and fro it comes within a second
READ_S = 1.0
PACE_S = 0.2  # as the monitors fill their parcels
SEARCHERS = 2  # threads: the machine has more to do than to search
READERS = 1  # and one of their own for those who wait for what comes
SETS_LIMIT = 10_000  # sets of labels that are looked at
NAMES_LIMIT = 64
VALUES_LIMIT = 1000  # of one name: more than a page can offer
ENTRIES = (8, 64)  # asked for at once by a reader, beginning with few: a thousand lines may lie in one
_NS = 1_000_000  # in a millisecond

Names = frozenset[str] | None  # of servers; None: all


class StreamSource:
    def __init__(self, spec: LogSource, client: redis.asyncio.Redis) -> None:
        self.name = spec.name
        self.label = spec.label
        self.server_label = spec.server_label
        self.pace = PACE_S
        self._shipped = StreamStore(client)
        self._marks = cursors.StreamCursors()
        self._searchers = thread_pool.start_pool(SEARCHERS, f"search-{spec.name}")
        self._readers = thread_pool.start_pool(READERS, f"read-{spec.name}")

    async def labels(self, start: int, end: int) -> LogLabels:
        """Returns labels of lines that came since `start`. When a set first came is unknown, so `end` cuts nothing."""
        sets, is_cut = await self._shipped.label_sets(SETS_LIMIT)
        found: dict[str, set[str]] = {}
        pairs = (pair for labels, last in sets if last * _NS >= start for pair in labels.items())
        for name, value in pairs:
            values = found.get(name, set())
            if len(found) - (name in found) >= NAMES_LIMIT or len(values) - (value in values) >= VALUES_LIMIT:
                is_cut = True
            else:
                found.setdefault(name, values).add(value)
        return LogLabels({name: sorted(found[name]) for name in sorted(found)}, is_cut)

    def tap(self, query: LogQuery) -> LogQuery:
        """Returns a query for the same servers: their readers share what is read of them."""
        return LogQuery(labels=tuple(pair for pair in query.labels if pair[0] == self.server_label))

    async def search(self, query: LogQuery, *, before: str = "", limit: int = 500) -> LogResultPage:
        names, wanted = self._names(query), MatchRequest(query, limit, SearchDeadline(SEARCH_S))
        spot = StreamPosition.parse(before)
        if before and spot is None:
            raise Missing("This log position is unknown.")
        mark = cursors.cursor_at_head(await self._shipped.head(names))
        return await self._searched(mark, spot, wanted, before or self._marks.keep(mark, names))

    async def read(self, query: LogQuery, *, after: str, limit: int = 1000) -> LogResultPage:
        names = self._names(query)
        mark = self._marks.get(after, names) if after else None
        if mark is None:
            mark = cursors.cursor_at_head(await self._shipped.head(names))
            return LogResultPage(
                after=self._marks.keep(mark, names), gap=cursors.UNKNOWN if after else None, is_end=True
            )
        return await self._read(mark, names, MatchRequest(query, limit, SearchDeadline(READ_S)))

    async def around(self, id: str, query: LogQuery, *, lines: int = 50) -> LogResultPage:
        query = LogQuery(labels=query.labels, is_revealed=query.is_revealed)
        spot, names = StreamPosition.parse(id), self._names(query)
        if spot is None or not await self._is_there(spot):
            raise Missing("This line is past its retention.")
        mark = cursors.cursor_at_head(await self._shipped.head(names))
        older = await self._searched(mark, spot, MatchRequest(query, lines + 1, SearchDeadline(SEARCH_S)), "")
        newer = await self._read(StreamCursor(spot), names, MatchRequest(query, lines, SearchDeadline(SEARCH_S)))
        looked_at = older.looked_at + newer.looked_at
        gap = _both(older.gap, newer.gap)
        return LogResultPage((*older.lines, *newer.lines), older.before, newer.after, gap, newer.is_end, looked_at)

    async def close(self) -> None:
        """Shuts the threads down. What still works in one ends by itself: its time is short."""
        for executor in (self._searchers, self._readers):
            executor.shutdown(wait=False, cancel_futures=True)

    def _names(self, query: LogQuery) -> Names:
        """Returns the servers that a query asks for."""
        asked = [values for name, values in query.labels if name == self.server_label]
        return frozenset.intersection(*asked) if asked else None

    async def _is_there(self, spot: StreamPosition) -> bool:
        """Returns True if the line that a place lies behind is still there."""
        servers = await self._shipped.servers()
        server = next((server for server in servers if mark_of(server) == spot.mark), None)
        entry = await self._shipped.entry(server, spot.entry) if server else None
        return entry is not None and (0 < spot.taken <= entry.size)

    async def _searched(
        self, mark: StreamCursor, spot: StreamPosition | None, wanted: MatchRequest, after: str
    ) -> LogResultPage:
        """Searches backwards. At least one entry is read each time: a reader that asks again gets on."""
        sifted = partial(_sifted, self._searchers, prefilter_for(wanted.query))
        walk = stream_search.walk_for(self._shipped, sifted, wanted.query, mark.ids, spot)
        found = StreamMatches(spot=spot)
        while entries := await walk.some():
            judge = StreamMatcher(wanted, len(found.lines))
            found.add(await _judged(self._searchers, wanted, partial(judge.backwards, entries, found.spot)))
            if len(found.lines) >= wanted.limit or wanted.patience.is_over:
                break
        is_end = not entries
        return LogResultPage(
            lines=found.lines[::-1],
            before="" if is_end or found.spot is None else str(found.spot),
            after=after,
            gap=_unreadable(found),
            is_end=is_end,
            looked_at=found.looked_at,
            reached=_reached(found.spot, wanted.query),
        )

    async def _read(self, mark: StreamCursor, names: Names, wanted: MatchRequest) -> LogResultPage:
        """Reads bit by bit, until there are lines enough, or time is over. A gap is told before what is behind it."""
        found, gap, is_end = StreamMatches(), None, False
        few, most = ENTRIES
        while not is_end and len(found.lines) < wanted.limit:
            newer = await self._newer(mark, names, few)
            whole, lost = cursors.resume(mark, newer)
            if lost and found.lines:
                break
            gap = gap or lost
            if lost is cursors.CLOCK:
                mark, is_end = whole, True
                break
            entries, judge = in_order(newer), StreamMatcher(wanted, len(found.lines))
            judged = await _judged(self._readers, wanted, partial(judge.forwards, entries, whole.spot))
            found.add(judged)
            is_end = judged.entries == len(entries) and not (newer.cut and entries)
            had = {entry.server: entry.id for entry in entries[: judged.entries]}
            mark = cursors.advance(whole, newer, had, None if is_end else judged.spot)
            if wanted.patience.is_over:
                break
            few = min(few * 4, most)
        after = self._marks.keep(mark, names)
        return LogResultPage(found.lines, "", after, _both(gap, _unreadable(found)), is_end, found.looked_at)

    async def _newer(self, mark: StreamCursor, names: Names, count: int) -> NewerEntries:
        """Reads newer entries; with the streams as they are at the same moment, if they may have been cut or lost."""
        with_streams = mark.is_text or mark.is_old(mark.now) or self._shipped.was_away(mark.now)
        newer = await self._shipped.newer(names, mark.after, count, with_streams=with_streams)
        if with_streams or not mark.is_old(newer.now):
            return newer
        return await self._shipped.newer(names, mark.after, count, with_streams=True)


async def _sifted(
    executor: ThreadPoolExecutor, sift: Sift, found: stream_search.Found
) -> Mapping[bytes, Sequence[ShippedEntry]]:
    """Prefilters in a thread: it is some ms of work."""

    def work() -> Mapping[bytes, Sequence[ShippedEntry]]:
        return {server: sift(server, rows) for server, rows in found.items()}

    return await asyncio.get_running_loop().run_in_executor(executor, work)


async def _judged(
    executor: ThreadPoolExecutor, wanted: MatchRequest, work: Callable[[], StreamMatches]
) -> StreamMatches:
    """Matches in a thread, and ends it when its reader leaves."""
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, work)
    except asyncio.CancelledError:
        wanted.patience.end()
        raise


def _reached(spot: StreamPosition | None, query: LogQuery) -> int | None:
    if spot is None:
        return None
    return query.start if stream_search.is_late(spot, query) else spot.ms * _NS


def _unreadable(judged: StreamMatches) -> LogGap | None:
    return LogGap("Shipped lines cannot be decompressed.", judged.unreadable) if judged.unreadable else None


def _both(one: LogGap | None, other: LogGap | None) -> LogGap | None:
    """Joins two gaps. How many lines are lost is told for both, when it is known of both."""
    if one is None or other is None:
        return one or other
    count = None if one.count is None or other.count is None else one.count + other.count
    return LogGap(f"{one.reason} {other.reason}", count)
