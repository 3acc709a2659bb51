"""Source of lines from a Loki: asks again and again for what is new, since its own stream ends by itself.

The last second is left alone until its lines have come from all senders. What comes later still is told to those who
read along (arrivals.py), and is found by a search.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from recovery.config.logs import LogSource
from recovery.domain.logs.types import LogQuery
from recovery.errors import Missing, StatementRefused, StoreError
from recovery.logs.base import LogLabels, LogResultPage
from recovery.logs.loki import batches, logql, positions
from recovery.logs.loki.batches import LokiBatch
from recovery.logs.loki.client import LokiClient, LokiEntry
from recovery.logs.loki.errors import LokiRangeTooWide
from recovery.logs.loki.late_lines import LATE_NS, ArrivalsCache, LokiArrivals, Step, entries_behind, place_of
from recovery.logs.loki.logql import is_name
from recovery.logs.loki.matching import match_lines
from recovery.logs.loki.positions import LokiPoint, LokiPosition
from recovery.logs.loki.search import HOUR, LONGEST, LokiSearch, fetch_span
from recovery.stores.http.http_errors import HttpResponseTooLong

# -- streams
# Finds the streams that a query is about, as selectors that Loki takes. Loki refuses a question that names no label
# at all. Then its own list of streams says by which labels all of them can be had: most often it is one that each
# stream has, and else a selector for each of a few.


_KEPT_SECONDS = 10.0  # streams with labels of their own that begin within it are met as late lines
_RECENT_NS = 6 * 3600 * 10**9
_MOST = 8  # labels that have to be asked for side by side


class LokiSelectors:
    def __init__(self, asking: LokiClient, match: str) -> None:
        self._asking = asking
        self._match = match
        self._kept: tuple[float, Sequence[str]] = 0.0, ()

    @property
    def every(self) -> str:
        """Returns the selector of all streams of this source; "" if `match` is empty or does not narrow."""
        return logql.selector([self._match]) if logql.narrows(self._match, LogQuery()) else ""

    async def of(self, question: LogQuery, start: int, end: int, *, is_kept: bool = False) -> list[str]:
        """Returns selectors; none at all when no stream can have these labels. `is_kept`: a recent answer will do."""
        if not all(values and ("" in values or logql.is_name(name)) for name, values in question.labels):
            return []
        parts, filters = logql.matchers(self._match, question), logql.filters(question)
        if logql.narrows(self._match, question):
            return [logql.selector(parts) + filters]
        names = await (self._names_kept() if is_kept else self._names(start, end))
        return [
            logql.selector([*parts, *map(logql.absent, names[:number]), logql.present(name)]) + filters
            for number, name in enumerate(names)
        ]

    async def _names_kept(self) -> Sequence[str]:
        """Returns the names of the last hours, kept for some seconds."""
        now = asyncio.get_running_loop().time()
        until, names = self._kept
        if not names or now > until:
            at = time.time_ns()
            names = await self._names(at - _RECENT_NS, at)
            self._kept = now + _KEPT_SECONDS, names
        return names

    async def _names(self, start: int, end: int) -> Sequence[str]:
        """Returns labels of which each stream has at least one."""
        try:
            streams = await self._asking.series(self.every, start, end)
        except HttpResponseTooLong as error:
            raise StatementRefused(
                self._asking.target,
                "it has too many streams to read them all",
                advice="Choose a label, or write match in this source of [[logs]].",
            ) from error
        return logql.cover([frozenset(filter(logql.is_name, names)) for names in streams], _MOST)


# -- source


# -- labels
# Reads the labels that a Loki has: by its own list of them, and no other.


NAMES_LIMIT = 64
VALUES_LIMIT = 1000  # of one name: more than a page can offer
_OWN = "__"  # what begins with it is Loki's own affair

T = TypeVar("T")


async def labels_of(asking: LokiClient, matchers: str, start: int, end: int) -> LogLabels:
    """Returns labels of streams that had lines between two moments; of a longer time than Loki looks at, its end."""
    names, start = await _shortened(lambda start: asking.labels(matchers, start, end), start, end)
    names = sorted(name for name in names if is_name(name) and not name.startswith(_OWN))
    shown = names[:NAMES_LIMIT]
    lists = await asyncio.gather(*(asking.values(name, matchers, start, end) for name in shown))
    values = {name: sorted(found)[:VALUES_LIMIT] for name, found in zip(shown, lists, strict=True) if found}
    return LogLabels(values, len(shown) < len(names) or any(len(found) > VALUES_LIMIT for found in lists))


async def _shortened(ask: Callable[[int], Awaitable[T]], start: int, end: int) -> tuple[T, int]:
    span = min(end - start, LONGEST)
    while True:
        try:
            return await ask(end - span), end - span
        except LokiRangeTooWide:
            if span <= HOUR:
                raise
            span = max(HOUR, span // 4)


# -- source


PACE_S = 1.0
SETTLED_S = 1.0  # what senders wait to send many lines at once
SEARCH_S = 0.8
READ_LINES = 1000  # of one question
_FRESH_NS = 10**8  # after a read so short ago it is not read again
_ACTIVE_NS = 3 * 10**9  # a search is content with a look that is not older
_OLDEST_NS = 366 * 24 * HOUR  # how far back a search goes that names no beginning
_AROUND = (HOUR // 4, 12 * HOUR, LONGEST)  # how far around a line its neighbours are looked for
_VALUES_SECONDS = 60.0  # for which the values of labels are taken for what they were
_VALUES_NS = 6 * HOUR
_UNKNOWN = "This log position is unknown."

Fetch = Callable[[LokiClient, Sequence[str], int, int, int], Awaitable[LokiBatch]]


@dataclass(frozen=True, slots=True)
class _News:
    """Lines that lie behind a place. `is_end`: as far as there is something."""

    batch: LokiBatch
    steps: Sequence[Step]
    is_end: bool


class LokiSource:
    def __init__(self, spec: LogSource, *, settled: float = SETTLED_S) -> None:
        self.name = spec.name
        self.label = spec.label
        self.server_label = spec.server_label
        self.pace = PACE_S
        self._settled = round(settled * 10**9)
        self._asking = LokiClient(spec)
        self._scope = LokiSelectors(self._asking, spec.match)
        self._known = ArrivalsCache()
        self._values: frozenset[str] = frozenset()  # of all labels, in one case
        self._values_until = 0.0

    async def labels(self, start: int, end: int) -> LogLabels:
        return await labels_of(self._asking, self._scope.every, start, end)

    def tap(self, query: LogQuery) -> LogQuery:
        """Returns what Loki judges itself. Of what is excluded it must not be asked (selector.py), nor of texts that
        stand in the value of a label: it looks for them in lines alone.
        """
        include = {term for term in query.include if not any(term.casefold() in value for value in self._values)}
        return LogQuery(query.labels, tuple(sorted(include)), levels=query.levels)

    async def search(self, query: LogQuery, *, before: str = "", limit: int = 500) -> LogResultPage:
        await self._learn(query)
        now, question = self._now(), self.tap(query)
        arrivals = None if before or query.end is not None else await self._followed(question, now)
        newest = now if query.end is None else query.end
        begun = _place(before).point if before else LokiPoint(arrivals.head if arrivals else newest)
        walk = LokiSearch(query, begun, max(query.start or 0, now - _OLDEST_NS), limit)

        async def fetch(start: int, end: int) -> LokiBatch:
            return await self._fetch(batches.backward, question, start, end, limit)

        def is_shown(entry: LokiEntry) -> bool:
            return arrivals is None or arrivals.is_before(entry, begun.at)

        await walk.go(fetch, is_shown, SEARCH_S)
        return LogResultPage(
            walk.lines[::-1],
            before="" if walk.is_over else str(positions.at_point(walk.point)),
            after=str(positions.at_point(begun)),
            gap=walk.gap,
            is_end=walk.is_over,
            looked_at=walk.looked_at,
            reached=walk.point.at,
        )

    async def read(self, query: LogQuery, *, after: str, limit: int = READ_LINES) -> LogResultPage:
        if not after:
            return LogResultPage(after=str(positions.front(self._now())), is_end=True)
        await self._learn(query)
        place = _place(after)
        news = await self._news(self.tap(query), place)
        found = await match_lines(news.steps, query, limit)
        is_all = found.looked_at == len(news.steps)
        behind = positions.front(news.batch.end) if is_all else place_of(news.steps[found.looked_at - 1])
        is_begun = not place.read.is_bare and place.read.at >= news.batch.end - 1
        return LogResultPage(
            found.lines,
            before=after,
            after=after if is_all and behind.read.at <= place.read.at else str(behind),
            gap=None if is_begun else news.batch.gap,
            is_end=news.is_end and is_all,
            looked_at=found.looked_at,
        )

    async def around(self, id: str, query: LogQuery, *, lines: int = 50) -> LogResultPage:
        point, question = _place(id).point, LogQuery(query.labels, is_revealed=query.is_revealed)
        if point.is_bare:
            raise Missing(_UNKNOWN)
        own = (await self._fetch(batches.forward, question, point.at, point.at + 1, self._asking.most)).entries
        rest = entries_behind(own, point)
        at = len(own) - len(rest) - 1
        if at < 0 or own[at].key != point.key:
            raise Missing("This line is gone, or has other labels.")
        older = await self._neighbours(question, point.at, lines - at, is_older=True)
        newer = await self._neighbours(question, point.at + 1, lines - len(rest), is_older=False)
        whole = [*older, *own, *newer]
        at += len(older)
        shown = whole[max(0, at - lines) : at + lines + 1]
        found = await match_lines([(None, entry) for entry in shown], question, len(shown))
        return LogResultPage(
            found.lines,
            before=str(positions.before(shown[0].key)),
            after=str(positions.behind(shown[-1].key)),
            looked_at=found.looked_at,
        )

    async def close(self) -> None:
        await self._asking.close()

    async def _learn(self, query: LogQuery) -> None:
        """Reads the values of labels, for queries with texts. While they cannot be had, what was known goes on."""
        at = asyncio.get_running_loop().time()
        if not query.include or at < self._values_until:
            return
        self._values_until = at + _VALUES_SECONDS
        now = time.time_ns()
        with suppress(StoreError):
            found = await self.labels(now - _VALUES_NS, now)
            self._values = frozenset(value.casefold() for values in found.values.values() for value in values)

    def _now(self) -> int:
        return time.time_ns() - self._settled

    # -- what is new

    async def _news(self, question: LogQuery, place: LokiPosition) -> _News:
        now = self._now()
        if place.read.at < now - _OLDEST_NS:
            place = positions.front(now - _OLDEST_NS)
        at = place.read.at
        arrivals = self._known.get(question)
        if arrivals is None or at - arrivals.head > LATE_NS:
            arrivals = self._known.keep(question, LokiArrivals.begun(at))
        async with arrivals.lock:
            if at >= arrivals.head and now - arrivals.head > _FRESH_NS:
                batch: LokiBatch | None = await self._look(arrivals, question, now)
            else:
                batch = arrivals.last
        if at >= arrivals.head:
            batch = LokiBatch((), at, at)
        elif batch is None or at < batch.start:
            batch = await self._from(question, at, arrivals.head)
        is_end = not batch.is_cut and batch.end >= arrivals.head and now - arrivals.head <= _FRESH_NS
        return _News(batch, list(arrivals.steps(batch, place)), is_end)

    async def _look(self, arrivals: LokiArrivals, question: LogQuery, now: int) -> LokiBatch:
        """Reads on from where the last read ended; and again what lies before it, as long as that is not too much."""
        if arrivals.look_from < arrivals.head and now - arrivals.head < LATE_NS:
            limit = READ_LINES + arrivals.looked_at_again
            batch = await self._fetch(batches.forward, question, arrivals.look_from, now, limit, is_kept=True)
            if not batch.is_cut:
                return arrivals.add(batch)
        return arrivals.add(await self._from(question, arrivals.head, now))

    async def _from(self, question: LogQuery, start: int, end: int) -> LokiBatch:
        """Reads the oldest lines of a span of any length."""

        async def ask(span: int) -> LokiBatch:
            until = min(end, start + span)
            return await self._fetch(batches.forward, question, start, until, READ_LINES, is_kept=True)

        return (await fetch_span(ask, LONGEST))[0]

    async def _fetch(
        self, way: Fetch, question: LogQuery, start: int, end: int, limit: int, *, is_kept: bool = False
    ) -> LokiBatch:
        selectors = await self._scope.of(question, start, end, is_kept=is_kept)
        return await way(self._asking, selectors, start, end, limit)

    async def _followed(self, question: LogQuery, now: int) -> LokiArrivals | None:
        """Returns the arrivals if a reader follows: what a search shows, and what is told after it, must be one."""
        arrivals = self._known.get(question)
        if arrivals is None or not 0 <= now - arrivals.head < LATE_NS:
            return None
        async with arrivals.lock:
            if now - arrivals.head >= _ACTIVE_NS:
                await self._look(arrivals, question, now)
        return arrivals if now - arrivals.head < _ACTIVE_NS else None

    # -- around a line

    async def _neighbours(self, question: LogQuery, at: int, count: int, *, is_older: bool) -> Sequence[LokiEntry]:
        way, found = batches.backward if is_older else batches.forward, tuple[LokiEntry, ...]()
        for reach in _AROUND if count > 0 else ():
            start, end = (max(0, at - reach), at) if is_older else (at, min(at + reach, time.time_ns()))
            if start >= end:
                break
            batch = await self._fetch(way, question, start, end, count + 1)
            if batch.is_cut and len(batch.entries) < count:  # the moment that it was cut in was left out
                batch = await self._fetch(way, question, start, end, self._asking.most)
            found = tuple(batch.entries)
            if batch.is_cut or len(found) >= count:
                break
        return found


def _place(text: str) -> LokiPosition:
    place = LokiPosition.parse(text)
    if place is None:
        raise Missing(_UNKNOWN)
    return place
