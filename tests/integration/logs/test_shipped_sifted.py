"""Small parcels that are passed over by the dozen: nothing is missed, and what is no parcel is still said."""

from __future__ import annotations

import random
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from recovery.domain.logs import line_batches
from recovery.domain.logs.line_batches import LineBatch
from recovery.domain.logs.types import LogLevel, LogQuery
from recovery.logs.base import LogResultPage
from recovery.logs.stream import source
from recovery.logs.stream.store import Row
from tests.support.logs.shipped import ALL, Sources, now_ms, put, search_all, settle, sources_of
from tests.support.stores.stores import Store

RARE = ("needle", "Nadelöhr", "\x1b[31mnee\x1b[0mdle", "password=needle", "ERROR all is lost", "WARN not quite")
COMMON = ("INFO sent", "DEBUG looked", "gesendet nach Köln", "sent without a word")
LABELS = ({"container": "mail"}, {"container": "report"}, {"unit": "n8n", "level": "error"})


@pytest.fixture
async def sources(state_store: Store) -> AsyncIterator[Sources]:
    async with sources_of(state_store) as sources:
        yield sources


def ship_many(store: Store, chance: random.Random, count: int) -> int:
    """Some of them with a rare line, some shipped late, in the order of time otherwise; the first moment (ns)."""
    base = now_ms(store) - 10 * count
    for number in range(count):
        at = (base + number) * 10**6 - chance.choice((0, 0, 0, 40 * 10**6))
        texts = [f"{chance.choice(COMMON)} {number}.{line}" for line in range(chance.choice((1, 3, 10)))]
        if number % 29 == 0:
            texts[chance.randrange(len(texts))] = f"{chance.choice(RARE)} {number}"
        rows = tuple((at + place * 2_000_000, text.encode()) for place, text in enumerate(texts))
        put(store, f"eu-{number % 3}", LineBatch(rows, chance.choice(LABELS)).encode(), id=f"{base + number}-0")
    settle(store)
    return base * 10**6


def queries(begin: int, count: int) -> Iterator[LogQuery]:
    texts = ("needle", "nadelöhr", "[redacted]", "word", "no such text")
    yield from (LogQuery(include=(text,)) for text in texts)
    yield from (LogQuery(levels=frozenset({level})) for level in (LogLevel.ERROR, LogLevel.WARN, LogLevel.FATAL))
    middle = begin + count // 2 * 10**6
    for query in (LogQuery(include=("needle",)), LogQuery(levels=frozenset({LogLevel.WARN}))):
        yield replace(query, start=middle)
        yield replace(query, start=begin, end=middle)
        yield replace(query, labels=(("container", frozenset({"mail"})),))


@pytest.mark.parametrize("pace", [(0.0, 100, 7), (60.0, 600, 3), (60.0, 600, 500)])
async def test_a_search_finds_what_matches_and_nothing_else(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch, pace: tuple[float, int, int]
) -> None:
    """The measure is all lines, each asked by itself. Pages are cut by lines, and with no time at all wherever."""
    seconds, count, limit = pace  # of a page; parcels; lines of a page
    begin = ship_many(state_store, random.Random(11), count)
    whole, _ = await search_all(sources.new(), ALL, 1000)
    monkeypatch.setattr(source, "SEARCH_S", seconds)
    hits = 0
    for query in queries(begin, count):
        wanted = [line.id for line in whole if query.matches(line)]
        hits += len(wanted)
        found, _ = await search_all(sources.new(), query, limit)
        assert sorted(line.id for line in found) == sorted(wanted), query
    assert hits > 50


async def test_what_cannot_be_unfolded_among_small_ones_is_said(state_store: Store, sources: Sources) -> None:
    ship_many(state_store, random.Random(3), 200)
    put(state_store, "eu-1", {**LineBatch(((1, b"x"),)).encode(), "first": 0, "last": 1 << 62, "body": b"rubbish"})
    settle(state_store)
    page: LogResultPage = await sources.new().search(LogQuery(include=("no such text",)))
    assert page.gap is not None
    assert page.gap.count == 1
    assert page.is_end


def rows_of(*bodies: bytes) -> list[Row]:
    fields = [LineBatch(((number, body),), {"container": "mail"}).encode() for number, body in enumerate(bodies)]
    return [
        (b"%d-0" % (1000 - number), [part for name, value in one.items() for part in (name.encode(), _raw(value))])
        for number, one in enumerate(fields)
    ]


def _raw(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def test_many_small_ones_become_one_that_lies_where_the_oldest_does() -> None:
    rows = rows_of(*(b"line %d" % number for number in range(source.AT_ONCE + 3)))
    found = source.prefilter_for(LogQuery(include=("no such text",)))(b"eu-1", rows)
    assert [(entry.passed, entry.size, entry.id) for entry in found] == [
        (source.AT_ONCE, source.AT_ONCE, (1000 - source.AT_ONCE + 1, 0)),
        (3, 3, (1000 - source.AT_ONCE - 2, 0)),
    ]


@pytest.mark.parametrize(
    ("start", "end", "passed"), [(None, 50, 0), (50, None, 0), (None, 10, 1), (101, None, 1), (10, 101, 0)]
)
def test_a_parcel_that_reaches_into_the_time_asked_for_is_looked_at(
    start: int | None, end: int | None, passed: int
) -> None:
    fields = LineBatch(((10, b"needle one"), (100, b"needle two"))).encode()
    row = b"1000-0", [part for name, value in fields.items() for part in (name.encode(), _raw(value))]
    (entry,) = source.prefilter_for(LogQuery(include=("needle",), start=start, end=end))(b"eu-1", [row])
    assert entry.passed == passed


def test_large_ones_are_not_unfolded_together() -> None:
    noise = random.Random(5).randbytes(source.SMALL * 2).hex().encode()
    found = source.prefilter_for(LogQuery(include=("no such text",)))(
        b"eu-1", rows_of(*(noise for _ in range(source.AT_ONCE)))
    )
    assert len(found) == source.AT_ONCE


def test_who_asks_for_no_text_is_given_every_parcel() -> None:
    rows = rows_of(b"one", b"two")
    assert len(source.prefilter_for(LogQuery(exclude=("one",)))(b"eu-1", rows)) == 2


def test_nothing_is_folded_so_tightly_that_a_small_body_unfolds_to_more_than_may_be() -> None:
    tightest = zlib.compress(bytes(line_batches.LARGEST), 9)
    assert len(tightest) > line_batches.SURE
