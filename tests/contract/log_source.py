"""What every source of log lines promises (recovery/logs/base.py): each kind joins with a bench and a few lines.

class TestFiles(LogSourceContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = FilesBench(tmp_path)
        yield bench
        await bench.close()
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from recovery.domain.logs.types import LogLevel, LogLine, LogQuery
from recovery.errors import Missing
from recovery.logs.base import PLACE_LIMIT, LogReader, LogResultPage
from tests.support.patience import patience

MARK = "~"  # where the text of a line begins that the suite asked for; a bench may write a moment before it
MINUTE = 60 * 10**9
LONGEST = 30.0  # seconds for what may take a few reads

Raw = tuple[int, str]  # when (ns), and the text


class Bench:
    """What a kind of source brings along. Lines go to one of two origins (containers, files), told apart by a label."""

    label: str  # its name
    values: tuple[str, str]  # those of the two origins
    keeps_traces = True  # it knows which lines of an origin follow each other

    def __init__(self) -> None:
        self._made: list[LogReader] = []

    async def write(self, lines: Sequence[Raw], origin: int = 0) -> None:
        """Comes back when a search would find them. Their moments never go back."""
        raise AssertionError("each kind has its own")

    async def write_trace(self, at: int, texts: Sequence[str]) -> None:
        """Lines of which the first alone has a moment of its own, where lines have one."""
        await self.write([(at + number, text) for number, text in enumerate(texts)])

    async def forget(self) -> None:
        """All that was written is gone."""
        raise AssertionError("each kind has its own")

    def make(self) -> LogReader:
        """A new one over the same lines."""
        raise AssertionError("each kind has its own")

    def source(self) -> LogReader:
        """As after a restart: it remembers nothing. Ended with the bench."""
        self._made.append(self.make())
        return self._made[-1]

    async def close(self) -> None:
        for source in self._made:
            await source.close()

    # What the claims are made of.

    async def fill(self, count: int, *, origin: int = 0, ago: int = 10 * MINUTE, name: str = "line") -> list[str]:
        """Lines of some time ago, one after the other."""
        start = time.time_ns() - ago
        lines = [(start + number * 1000, f"{MARK}{name} {number}") for number in range(count)]
        await self.write(lines, origin)
        return [text for _, text in lines]

    async def add(self, *texts: str, origin: int = 0) -> list[str]:
        """Lines of now."""
        start = time.time_ns()
        await self.write([(start + number, f"{MARK}{text}") for number, text in enumerate(texts)], origin)
        return [f"{MARK}{text}" for text in texts]

    def of(self, *values: str) -> LogQuery:
        return LogQuery(labels=((self.label, frozenset(values)),))


class LogSourceContract:
    # -- labels

    async def test_labels_are_those_of_the_lines(self, bench: Bench) -> None:
        await bench.fill(3, origin=0)
        await bench.fill(3, origin=1)
        now = time.time_ns()
        labels = await bench.source().labels(now - 60 * MINUTE, now + MINUTE)
        assert set(bench.values) <= set(labels.values[bench.label])
        assert not labels.is_cut

    async def test_a_source_without_lines_has_neither_labels_nor_lines_and_no_error(self, bench: Bench) -> None:
        source, now = bench.source(), time.time_ns()
        labels = await source.labels(now - 60 * MINUTE, now + MINUTE)
        assert not labels.values.get(bench.label)
        page = await source.search(LogQuery(start=now - 60 * MINUTE))
        assert (list(page.lines), page.before, page.is_end) == ([], "", True)
        read = await source.read(LogQuery(), after=page.after)
        assert (list(read.lines), read.gap, read.is_end) == ([], None, True)

    async def test_lines_have_their_labels_and_a_label_chooses_lines(self, bench: Bench) -> None:
        first, second = await bench.fill(4, origin=0), await bench.fill(4, origin=1, name="other")
        for value, texts in zip(bench.values, (first, second), strict=True):
            lines = await _searched(bench.source(), bench.of(value))
            assert [_told(line) for line in lines] == texts
            assert {line.labels[bench.label] for line in lines} == {value}
        assert len(await _searched(bench.source(), bench.of(*bench.values))) == 8

    async def test_a_value_that_no_line_has_finds_nothing_and_is_no_error(self, bench: Bench) -> None:
        await bench.fill(3)
        for query in (bench.of("no such value"), LogQuery(labels=(("no_such_label", frozenset(("x",))),))):
            source = bench.source()
            assert await _searched(source, query) == []
            place = (await source.search(query)).after
            await bench.add("hidden from it")
            assert (await source.read(query, after=place)).lines == []

    # -- search

    async def test_a_search_begins_with_the_newest_and_goes_back_page_by_page(self, bench: Bench) -> None:
        texts = await bench.fill(50)
        source, before, pages = bench.source(), "", []
        while True:
            page = await source.search(LogQuery(start=time.time_ns() - 60 * MINUTE), before=before, limit=7)
            assert len(page.lines) <= 7
            pages.append(page)
            before = page.before
            if not before:
                break
            source = bench.source()  # a place says it all
        assert [_told(line) for page in reversed(pages) for line in page.lines] == texts
        assert [_told(line) for line in next(page for page in pages if page.lines).lines] == texts[-7:]
        assert pages[-1].is_end
        assert all(_is_place(page.before) and _is_place(page.after) for page in pages)

    async def test_what_a_search_ends_with_leads_on_to_what_comes(self, bench: Bench) -> None:
        await bench.fill(5)
        source = bench.source()
        page = await source.search(LogQuery())
        later = await bench.add("later 1", "later 2")
        assert _told_all(await _read(bench, LogQuery(), page.after, 2, source=source)) == later

    # -- read

    async def test_without_a_place_reading_begins_now(self, bench: Bench) -> None:
        await bench.fill(5)
        source = bench.source()
        page = await source.read(LogQuery(), after="")
        assert (list(page.lines), page.gap) == ([], None)
        later = await bench.add("later")
        assert _told_all(await _read(bench, LogQuery(), page.after, 1, source=source)) == later

    async def test_every_later_line_comes_once_and_in_order_across_pages_and_restarts(self, bench: Bench) -> None:
        await bench.fill(5)
        place = (await bench.source().search(LogQuery())).after
        texts = await bench.add(*(f"later {number}" for number in range(40)))
        texts += await bench.add(*(f"later still {number}" for number in range(3)))
        assert _told_all(await _read(bench, LogQuery(), place, 43, limit=7)) == texts
        assert _told_all(await _read(bench, LogQuery(), place, 43, source=bench.source())) == texts

    async def test_lines_of_both_origins_come_each_once(self, bench: Bench) -> None:
        place = (await bench.source().read(LogQuery(), after="")).after
        texts = []
        for number in range(6):
            texts += await bench.add(f"turn {number} a", f"turn {number} b", origin=number % 2)
        found = await _read(bench, LogQuery(), place, 12, limit=5)
        assert sorted(_told_all(found)) == sorted(texts)
        for origin in (0, 1):
            of_one = [line for line in found if line.labels[bench.label] == bench.values[origin]]
            assert _told_all(of_one) == [text for text in texts if int(text.split()[1]) % 2 == origin]

    async def test_thousands_of_lines_of_one_moment_come_each_once(self, bench: Bench) -> None:
        place = (await bench.source().read(LogQuery(), after="")).after
        at = time.time_ns()
        texts = [f"{MARK}burst {number}" for number in range(2000)]
        await bench.write([(at, text) for text in texts])
        last = await bench.add("the last one")
        read = _told_all(await _read(bench, LogQuery(), place, 2001, limit=300))
        assert sorted(read) == sorted(texts + last)
        assert read[-1:] == last
        assert [_told(line) for line in await _searched(bench.source(), LogQuery(start=at - MINUTE), limit=300)] == read

    async def test_the_id_of_a_line_is_a_place_behind_it(self, bench: Bench) -> None:
        texts = await bench.fill(9)
        lines = await _searched(bench.source(), LogQuery())
        assert len({line.id for line in lines}) == 9
        assert all(_is_place(line.id) and line.id for line in lines)
        assert _told_all(await _read(bench, LogQuery(), lines[3].id, 5, limit=2)) == texts[4:]

    async def test_a_place_that_is_none_is_said_and_reading_goes_on(self, bench: Bench) -> None:
        await bench.fill(3)
        for place in ("nonsense", "1", "~", "9" * PLACE_LIMIT, "-1.x.y", "1.2.3.4.5.6", "\u0661"):
            source = bench.source()
            try:
                page = await source.read(LogQuery(), after=place, limit=10)
            except Missing:
                continue
            assert page.after
            await source.read(LogQuery(), after=page.after)
            try:
                await source.search(LogQuery(), before=place)
                await source.around(place, LogQuery())
            except Missing:
                continue

    async def test_what_readers_share_lets_through_all_that_each_wants(self, bench: Bench) -> None:
        source = bench.source()
        place = (await source.read(LogQuery(), after="")).after
        await bench.add("one ERROR: x", "two INFO: y", origin=0)
        await bench.add("three ERROR: z", origin=1)
        for query in (
            bench.of(bench.values[0]),
            LogQuery(include=("error",)),
            LogQuery(levels=frozenset((LogLevel.ERROR,))),
        ):
            shared = source.tap(query)
            wanted = _told_all(await _read(bench, query, place, 2))
            assert len(wanted) == 2
            taken = await _read(bench, shared, place, 2, at_least=True)
            assert [_told(line) for line in taken if query.matches(line)] == wanted

    # -- what is chosen

    async def test_texts_levels_and_moments_choose_lines(self, bench: Bench) -> None:
        start = time.time_ns() - 10 * MINUTE
        words = ["INFO: begun", "ERROR: Refused by x", "INFO: refused by y", "WARN: slow", "ERROR: gone"]
        lines = [(start + number * 10**9, f"{MARK}{number} {word}") for number, word in enumerate(words)]
        await bench.write(lines)
        for query, numbers in (
            (LogQuery(include=("refused",)), [1, 2]),
            (LogQuery(include=("REFUSED", "by x")), [1]),
            (LogQuery(exclude=("refused",)), [0, 3, 4]),
            (LogQuery(include=("ref",), exclude=("BY Y",)), [1]),
            (LogQuery(include=("[r.*]",)), []),
            (LogQuery(levels=frozenset((LogLevel.ERROR,))), [1, 4]),
            (LogQuery(levels=frozenset((LogLevel.WARN, LogLevel.INFO)), exclude=("begun",)), [2, 3]),
            (LogQuery(start=lines[1][0], end=lines[3][0]), [1, 2]),
            (LogQuery(end=lines[1][0]), [0]),
            (LogQuery(start=lines[4][0] + 1), []),
        ):
            found = await _searched(bench.source(), replace(query, start=query.start or start - MINUTE))
            assert [_told(line) for line in found] == [lines[number][1] for number in numbers], query

    async def test_a_text_is_found_in_the_labels_of_a_line_too(self, bench: Bench) -> None:
        start = time.time_ns() - MINUTE
        await bench.write([(start, f"{MARK}1 charged"), (start + 1000, f"{MARK}2 failed")], origin=0)
        await bench.write([(start + 2000, f"{MARK}3 charged")], origin=1)
        own, other = (value.upper() for value in bench.values)
        for query, numbers in (
            (LogQuery(include=(own,)), "12"),
            (LogQuery(include=(other, "charged")), "3"),
            (LogQuery(include=(own, "3 charged")), ""),
            (LogQuery(include=(own,), exclude=("failed",)), "1"),
            (LogQuery(exclude=(own,)), "3"),
        ):
            found = await _searched(bench.source(), query)
            assert "".join(_told(line)[1] for line in found) == numbers, query

    async def test_a_level_brings_the_whole_trace(self, bench: Bench) -> None:
        if not bench.keeps_traces:
            pytest.skip("each line stands for itself there")
        texts = ["ERROR: failed", "Traceback (most recent call last):", '  File "w.py", line 1', "a.b.Declined: no"]
        await bench.write_trace(time.time_ns() - MINUTE, texts)
        await bench.write([(time.time_ns() - MINUTE // 2, "INFO: on")])
        for levels, found in (({LogLevel.ERROR}, texts), ({LogLevel.INFO}, ["INFO: on"]), ({LogLevel.WARN}, [])):
            lines = await _searched(bench.source(), LogQuery(levels=frozenset(levels)))
            assert [line.text.endswith(text) for line, text in zip(lines, found, strict=True)] == [True] * len(found)
        page = await bench.source().search(LogQuery(levels=frozenset({LogLevel.ERROR})), limit=1)
        assert [line.text for line in page.lines] == texts[3:]

    async def test_a_line_has_its_moment_and_its_level(self, bench: Bench) -> None:
        at = time.time_ns() - MINUTE
        await bench.write([(at, f"{MARK}1 ERROR: refused")])
        [line] = await _searched(bench.source(), LogQuery())
        assert (line.at, line.level) == (at, LogLevel.ERROR)

    async def test_reading_chooses_too_and_passes_over_the_rest(self, bench: Bench) -> None:
        place = (await bench.source().read(LogQuery(), after="")).after
        await bench.add(*(f"{number} {'ERROR: bad' if number % 10 == 0 else 'INFO: fine'}" for number in range(60)))
        query = LogQuery(include=("bad",), levels=frozenset((LogLevel.ERROR,)))
        found = await _read(bench, query, place, 6, limit=4)
        assert [int(_told(line)[len(MARK) :].split()[0]) for line in found] == [0, 10, 20, 30, 40, 50]

    async def test_a_secret_is_neither_shown_nor_found(self, bench: Bench) -> None:
        await bench.add("password=Zqhunter22abc", "harmless")
        lines = await _searched(bench.source(), LogQuery())
        assert len(lines) == 2
        assert not any("Zqhunter" in line.text for line in lines)
        assert await _searched(bench.source(), LogQuery(include=("Zqhunter",))) == []

    # -- around a line

    async def test_around_a_line_are_those_before_and_after_it(self, bench: Bench) -> None:
        texts = await bench.fill(30)
        lines = await _searched(bench.source(), LogQuery())
        for number, first, last in ((15, 10, 20), (0, 0, 5), (29, 24, 29)):
            page = await bench.source().around(lines[number].id, LogQuery(), lines=5)
            assert [_told(line) for line in page.lines] == texts[first : last + 1]
            assert lines[number].id in [line.id for line in page.lines]
        page = await bench.source().around(lines[15].id, LogQuery(), lines=5)
        older = await bench.source().search(LogQuery(), before=page.before, limit=3)
        assert [_told(line) for line in older.lines] == texts[7:10]
        assert _told_all(await _read(bench, LogQuery(), page.after, 9)) == texts[21:]

    async def test_around_a_line_are_only_lines_with_the_labels(self, bench: Bench) -> None:
        texts = await bench.fill(10)
        await bench.fill(10, origin=1, name="other")
        lines = await _searched(bench.source(), bench.of(bench.values[0]))
        page = await bench.source().around(lines[5].id, bench.of(bench.values[0]), lines=2)
        assert [_told(line) for line in page.lines] == texts[3:8]

    async def test_around_a_line_that_is_gone_is_missing(self, bench: Bench) -> None:
        await bench.fill(3)
        lines = await _searched(bench.source(), LogQuery())
        await bench.forget()
        with pytest.raises(Missing):
            await bench.source().around(lines[1].id, LogQuery())
        with pytest.raises(Missing):
            await bench.source().around("nonsense", LogQuery())

    async def test_what_was_read_and_is_gone_does_not_stop_the_reader(self, bench: Bench) -> None:
        await bench.fill(3)
        source = bench.source()
        place = (await source.search(LogQuery())).after
        await bench.forget()
        page = await source.read(LogQuery(), after=place)
        assert list(page.lines) == []
        await bench.add("after that")
        found = await _read(bench, LogQuery(), page.after, 1, source=source, is_gap_fine=True)
        assert _told_all(found) == [f"{MARK}after that"]


async def _searched(source: LogReader, query: LogQuery, limit: int = 500) -> list[LogLine]:
    """All pages of a search, oldest line first."""
    query = replace(query, start=query.start or time.time_ns() - 60 * MINUTE)
    lines: list[LogLine] = []
    before = ""
    async with asyncio.timeout(patience(LONGEST)):
        while True:
            page = await source.search(query, before=before, limit=limit)
            lines = [*page.lines, *lines]
            before = page.before
            if not before:
                return lines


async def _read(
    bench: Bench,
    query: LogQuery,
    place: str,
    count: int,
    *,
    limit: int = 1000,
    source: LogReader | None = None,
    at_least: bool = False,
    is_gap_fine: bool = False,
) -> Sequence[LogLine]:
    """So many lines behind a place, and no more of them. Without a source each page is read by a new one."""
    lines: list[LogLine] = []
    pace = (source or bench.source()).pace
    async with asyncio.timeout(patience(LONGEST)):
        while True:
            page = await _page(source or bench.source(), query, place, limit)
            assert is_gap_fine or page.gap is None
            lines += page.lines
            place = page.after
            if page.is_end and len(lines) >= count:
                break
            if page.is_end:
                await asyncio.sleep(pace / 10)
    assert at_least or len(lines) == count, [_told(line) for line in lines]
    return lines


async def _page(source: LogReader, query: LogQuery, place: str, limit: int) -> LogResultPage:
    page = await source.read(query, after=place, limit=limit)
    assert len(page.lines) <= limit
    assert _is_place(page.after)
    return page


def _told(line: LogLine) -> str:
    return line.text[line.text.index(MARK) :]


def _told_all(lines: Iterable[LogLine]) -> list[str]:
    return [_told(line) for line in lines]


def _is_place(text: str) -> bool:
    return len(text) <= PLACE_LIMIT and text.isascii() and text.isprintable() and " " not in text
