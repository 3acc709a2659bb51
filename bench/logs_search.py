"""Searches among ten million shipped lines of a day: how long until something is there, and what it costs in memory.

Once in large parcels, as a busy worker's lines come, and once in small ones, as many quiet workers send them; there
once more with all that is rare at one moment, so that a search goes through nearly an hour before it finds anything.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import redis

from bench.measure import Result, memory_of_ours, percentile
from recovery.config import load
from recovery.config.logs import SHIPPED
from recovery.domain.logs.line_batches import LineBatch, Raw
from recovery.domain.logs.types import LogLevel, LogQuery
from recovery.logs.base import LogResultPage
from recovery.logs.stream.source import StreamSource
from recovery.stores.state import state_keys
from recovery.stores.state.async_client import state_client
from tests.support.stores.stores import Store

LINES = 10_000_000
SERVERS = 10
SPREAD, AT_ONCE = "each server's rare lines at another time", "all rare lines 55 minutes back"
LAYOUTS = ((1000, SPREAD), (10, SPREAD), (10, AT_ONCE))  # lines of a parcel, and where the rare ones lie
RARE_BACK_MS = 55 * 60_000  # before the end of each of the hours that are asked for
FILLERS = 2  # processes
ROUNDS = 5
RARE = 50_000  # one line in so many has a text of its own, when they are spread
FIRST_S = 1.0
GROWTH_MB = 64.0
LIMIT = 500  # lines of a page
_DAY_MS, _HOUR_MS, _NS = 86_400_000, 3_600_000, 1_000_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Search:
    """One question, asked page by page. `first`: seconds until lines were there, or until it was sure that none are."""

    pages: tuple[float, ...]
    first: float
    lines: int


@dataclass(frozen=True, slots=True)
class Day:
    """What each server ships: its end (ms), entries of so many lines, and where the rare lines lie."""

    end: int
    entries: int
    size: int
    layout: str

    @property
    def step(self) -> float:
        return _DAY_MS / self.entries

    def lines(self, at: int, entry: int, first: int) -> Iterator[Raw]:
        """Of one entry. `first`: the number of the first line of the first entry."""
        numbers = range(first + entry * self.size, first + (entry + 1) * self.size)
        is_moment = (self.end - at) % _HOUR_MS // self.step == RARE_BACK_MS // self.step
        spread, together = range(RARE // 2, numbers.stop, RARE), numbers[: int(is_moment)]
        rares = together if self.layout == AT_ONCE else spread
        return (_line(at * _NS + place, number, is_rare=number in rares) for place, number in enumerate(numbers))


def run(*, quick: bool) -> Result:
    lines = LINES // 20 if quick else LINES
    result = Result("logs-search", f"Searching {lines:,} log lines of a day, shipped by {SERVERS} servers")
    result.setting = {"lines": lines, "servers": SERVERS, "layouts": LAYOUTS, "rounds": ROUNDS}
    longest, firsts, growth = 0.0, 0.0, 0.0
    for size, layout in LAYOUTS:
        title = f"{size} a parcel, {layout}" if layout == AT_ONCE else f"{size} a parcel"
        with Store("valkey") as store:
            end = _fill(store, lines, size, layout)
            taken = store.client.info("memory")["used_memory"] / _MIB
            result.row(f"{title}: in the store", taken, "MB", f"{lines // size:,} entries")
            found, grown = asyncio.run(_measure(store, end))
        for name, searches in found.items():
            first = [search.first * 1000 for search in searches]
            pages = [len(search.pages) for search in searches]
            told = f"worst {max(first):,.0f} ms; {max(pages)} pages, {searches[-1].lines:,} lines"
            result.row(f"{title}: {name}", percentile(first, 0.5), "ms", told)
            longest = max(longest, *(max(search.pages) for search in searches))
            if name != _WHOLE:
                firsts = max([firsts, *(search.first for search in searches if search.lines)])
        growth = max(growth, grown)
    result.row("longest page of any search", longest * 1000, "ms", "after that it says how far it has come")
    result.goal(f"an hour, the last one or another: first results ≤ {FIRST_S:g} s, worst of all", firsts, most=FIRST_S)
    result.goal(f"memory of whoever searches: growth ≤ {GROWTH_MB:g} MB", growth, most=GROWTH_MB)
    return result


_HOURS = {
    "last hour, newest lines": LogQuery(),
    "last hour, a rare text": LogQuery(include=("needle",)),
    "last hour, errors": LogQuery(levels=frozenset((LogLevel.ERROR,))),
    "last hour, a text that no line has": LogQuery(include=("no such text",)),
}
_EARLIER = "an hour, twelve hours ago: a rare text"
_WHOLE = "all of the day: a text that no line has"


async def _measure(store: Store, end: int) -> tuple[dict[str, list[Search]], float]:
    client = state_client(load({"UNSTALL_STATE_URL": store.url}))
    hour = _HOUR_MS * _NS
    asked = {name: (replace(query, start=end - hour), ROUNDS) for name, query in _HOURS.items()}
    middle = end - 12 * hour
    asked[_EARLIER] = LogQuery(include=("needle",), start=middle - hour, end=middle), ROUNDS
    asked[_WHOLE] = LogQuery(include=("no such text",), start=end - 25 * hour), 1
    found: dict[str, list[Search]] = {}
    source = StreamSource(SHIPPED, client)
    await source.search(LogQuery(), limit=1)
    with memory_of_ours() as sizes:
        for name, (query, rounds) in asked.items():
            found[name] = [await _searched(source, query) for _ in range(rounds)]
    await source.close()
    await client.aclose()
    return found, max(sizes) - sizes[0]


async def _searched(source: StreamSource, query: LogQuery) -> Search:
    """To its end when nothing is found, else until there are lines."""
    pages: list[float] = []
    before = ""
    started = time.perf_counter()
    while True:
        begun = time.perf_counter()
        page: LogResultPage = await source.search(query, before=before, limit=LIMIT)
        pages.append(time.perf_counter() - begun)
        before = page.before
        if page.lines or not before:
            return Search(tuple(pages), time.perf_counter() - started, len(page.lines))


def _fill(store: Store, lines: int, size: int, layout: str) -> int:
    """A day's lines up to now, which is told (ns), written by other processes: this one's memory is measured."""
    end = int(time.time() * 1000) - 1000
    context = multiprocessing.get_context("spawn")
    entries = lines // size // SERVERS
    with context.Pool(FILLERS) as pool:
        pool.starmap(_ship, [(store.url, number, Day(end, entries, size, layout)) for number in range(SERVERS)])
    return end * _NS


def _ship(url: str, number: int, day: Day) -> None:
    """What one server's monitor shipped in the day, evenly."""
    client, server = redis.Redis.from_url(url, protocol=2), f"eu-{number}"
    labels = [{"server": server, "container": name} for name in ("mail", "report", "resize")]
    pipeline = client.pipeline(transaction=False)
    for entry in range(day.entries):
        at = day.end - _DAY_MS + int(entry * day.step) + number
        rows = tuple(day.lines(at, entry, number * RARE // SERVERS))
        pipeline.xadd(state_keys.logs(server), dict(LineBatch(rows, labels[entry % 3]).encode()), id=f"{at + 1}-0")
        if len(pipeline) * day.size >= 20_000 or entry == day.entries - 1:
            pipeline.execute()
    client.zadd(state_keys.SHIPPING, {server: day.end})
    client.close()


def _line(at: int, number: int, *, is_rare: bool) -> Raw:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 10**9))
    said = "ERROR connect ECONNREFUSED 10.0.0.7:25" if number % 97 == 0 else "INFO sent"
    word = "needle " if is_rare else ""
    text = f"{moment}.{at // 10**6 % 1000:03d}Z {said} {word}job={number:x} person={number * 7919 % 100_003}"
    return at, f"{text} took {number % 977} ms".encode()
