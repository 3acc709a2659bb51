"""A Loki read along: lines that come late or all in one moment, lines without a common label, its limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LOKI, LogSource
from recovery.domain.logs.types import LogLevel, LogLine, LogQuery
from recovery.errors import Missing
from recovery.logs.base import LogGap
from recovery.logs.loki import LokiSource
from recovery.logs.loki import source as module
from tests.support.logs.loki_double import LokiDouble
from tests.support.patience import patience

SECOND = 10**9
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
MAIL = {"app": "mail"}
ALL = LogQuery()
OF_MAIL = LogQuery(labels=(("app", frozenset(("mail",))),))


@pytest.fixture
def double() -> Iterator[LokiDouble]:
    with LokiDouble() as running:
        yield running


Make = Callable[..., LokiSource]


@pytest.fixture
async def make(double: LokiDouble) -> Iterator[Make]:  # type: ignore[misc]
    made: list[LokiSource] = []

    def of(*, settled: float = 0, **chosen: object) -> LokiSource:
        spec = LogSource("loki", "Loki", LOKI, HttpEndpoint(double.url), timeout=20)
        made.append(LokiSource(replace(spec, **chosen), settled=settled))  # type: ignore[arg-type]
        return made[-1]

    yield of
    for source in made:
        await source.close()


@pytest.fixture(autouse=True)
def looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read of a test is a look of its own, however soon it comes."""
    monkeypatch.setattr(module, "_FRESH_NS", 0)


async def taken(
    source: LokiSource, query: LogQuery, place: str, *, limit: int = 1000
) -> tuple[list[LogLine], str, list[LogGap]]:
    """All that is there behind a place now, each page checked."""
    lines: list[LogLine] = []
    gaps: list[LogGap] = []
    while True:
        page = await source.read(query, after=place, limit=limit)
        assert len(page.lines) <= limit
        lines += page.lines
        gaps += [page.gap] if page.gap else []
        place = page.after
        if page.is_end:
            return lines, place, gaps


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


async def test_a_line_that_comes_late_is_told_once_to_all_who_read_along(double: LokiDouble, make: Make) -> None:
    source, at = make(), time.time_ns()
    start = (await source.read(OF_MAIL, after="")).after
    double.push(MAIL, (time.time_ns(), "one"))
    first, place, _ = await taken(source, OF_MAIL, start)
    assert texts(first) == ["one"]
    double.push(MAIL, (first[0].at - 1, "late"), (time.time_ns(), "two"))
    second, end, _ = await taken(source, OF_MAIL, place)
    assert texts(second) == ["late", "two"]
    assert at - MINUTE < second[0].at < first[0].at
    # Whoever is behind meets them in the same order, from every place, however small his pages are.
    for limit in (1, 2, 1000):
        again, _, _ = await taken(source, OF_MAIL, start, limit=limit)
        assert [line.id for line in again] == [line.id for line in (*first, *second)]
    assert texts((await taken(source, OF_MAIL, second[0].id))[0]) == ["two"]
    assert (await taken(source, OF_MAIL, end))[0] == []


async def test_a_search_shows_no_line_that_is_told_after_it(double: LokiDouble, make: Make) -> None:
    source = make()
    place = (await source.read(OF_MAIL, after="")).after
    double.push(MAIL, (time.time_ns(), "one"))
    lines, place, _ = await taken(source, OF_MAIL, place)
    double.push(MAIL, (lines[0].at + 1, "late"))
    page = await source.search(replace(OF_MAIL, start=lines[0].at - MINUTE))
    assert texts(page.lines) == ["one"]
    assert texts((await taken(source, OF_MAIL, page.after))[0]) == ["late"]
    after = await source.search(replace(OF_MAIL, start=lines[0].at - MINUTE))
    assert texts(after.lines) == ["one", "late"]


async def test_the_last_second_is_left_to_those_who_are_slow(double: LokiDouble, make: Make) -> None:
    source, now = make(settled=60), time.time_ns()
    double.push(MAIL, (now - 61 * SECOND, "settled"), (now - SECOND, "fresh"))
    page = await source.search(replace(OF_MAIL, start=now - HOUR))
    assert texts(page.lines) == ["settled"]
    assert (await taken(source, OF_MAIL, page.after))[0] == []


async def test_five_thousand_lines_of_one_moment_come_each_once(double: LokiDouble, make: Make) -> None:
    place, at = (await make().read(OF_MAIL, after="")).after, time.time_ns()
    written = [f"burst {number}" for number in range(5000)]
    double.push(MAIL, (at, "before"))  # of the same moment, from another stream
    double.push({**MAIL, "pod": "2"}, *((at, text) for text in written[1:]))
    double.push(MAIL, (at + 1, "after"))
    source = make()
    lines, _, gaps = await taken(source, OF_MAIL, place, limit=700)
    assert sorted(texts(lines)) == sorted(["before", *written[1:], "after"])
    assert texts(lines)[-1] == "after"
    assert gaps == []
    for number in (0, 2500, 4999):
        assert (await taken(make(), OF_MAIL, lines[number].id))[0] == lines[number + 1 :]


async def test_of_more_lines_in_one_moment_it_is_said_how_many_are_missing(double: LokiDouble, make: Make) -> None:
    place, at = (await make().read(OF_MAIL, after="")).after, time.time_ns()
    double.push(MAIL, *((at, f"burst {number}") for number in range(5012)), (at + 1, "after"))
    lines, _, gaps = await taken(make(), OF_MAIL, place, limit=900)
    assert (len(lines), lines[-1].text) == (5001, "after")
    assert [gap.count for gap in gaps] == [12]
    assert "5,000 lines per timestamp" in gaps[0].reason
    before, found, told = "", [], []
    while True:
        page = await make().search(replace(OF_MAIL, start=at - MINUTE), before=before, limit=2000)
        found = [*page.lines, *found]
        told += [page.gap] if page.gap else []
        before = page.before
        if not before:
            break
    assert len({line.id for line in found}) == len(found) == 5001
    assert [gap.count for gap in told] == [12]


async def test_when_it_gives_fewer_lines_at_once_fewer_are_asked_for(make: Make, double: LokiDouble) -> None:
    double.most = 7
    start = time.time_ns() - MINUTE
    double.push(MAIL, *((start + number, f"line {number}") for number in range(40)))
    source = make()
    page = await source.search(replace(OF_MAIL, start=start))
    lines = list(page.lines)
    while page.before:
        page = await source.search(replace(OF_MAIL, start=start), before=page.before)
        lines = [*page.lines, *lines]
    assert texts(lines) == [f"line {number}" for number in range(40)]
    assert texts((await taken(source, OF_MAIL, str(start)))[0]) == texts(lines)


async def test_lines_without_a_common_label_are_all_read(double: LokiDouble, make: Make) -> None:
    source, now = make(), time.time_ns()
    place = (await source.read(ALL, after="")).after
    double.push({"app": "mail"}, (now - 4, "a"))
    double.push({"app": "shop", "pod": "1"}, (now - 3, "b"))
    double.push({"unit": "cron"}, (now - 2, "c"))
    double.push({"host": "eu-1"}, (now - 1, "d"))
    page = await source.search(LogQuery(start=now - MINUTE))
    assert texts(page.lines) == ["a", "b", "c", "d"]
    assert (await taken(source, ALL, place))[0] == []
    new = time.time_ns()
    double.push({"unit": "cron"}, (new, "e"))
    double.push({"app": "mail"}, (new + 1, "f"))
    assert texts((await taken(source, ALL, place))[0]) == ["e", "f"]
    assert all(asked.query.count("{}") == 0 for asked in double.asked if asked.path.endswith("query_range"))


async def test_what_is_configured_as_match_is_in_every_question(double: LokiDouble, make: Make) -> None:
    now = time.time_ns()
    double.push({"env": "live", "app": "mail"}, (now - 2, "seen"))
    double.push({"env": "test", "shed": "x"}, (now - 1, "not seen"))
    source = make(match='env="live"')
    page = await source.search(LogQuery(start=now - MINUTE))
    assert texts(page.lines) == ["seen"]
    assert texts((await source.around(page.lines[0].id, ALL)).lines) == ["seen"]
    labels = await source.labels(now - MINUTE, now + MINUTE)
    assert labels.values == {"app": ["mail"], "env": ["live"]}


async def test_a_label_may_be_wanted_away(double: LokiDouble, make: Make) -> None:
    now = time.time_ns()
    double.push({"app": "mail"}, (now - 2, "without"))
    double.push({"app": "mail", "pod": "1"}, (now - 1, "with"))
    none, one = frozenset(("",)), frozenset(("", "1"))
    source = make()
    for values, expected in ((none, ["without"]), (one, ["without", "with"])):
        query = LogQuery(labels=(("pod", values),), start=now - MINUTE)
        assert texts((await source.search(query)).lines) == expected
    odd = LogQuery(labels=(('x"} or {y', frozenset(("1",))),), start=now - MINUTE)
    assert texts((await source.search(odd)).lines) == []


async def test_very_many_labels_are_cut_and_that_is_said(double: LokiDouble, make: Make) -> None:
    now = time.time_ns()
    for number in range(70):
        double.push({f"label_{number:02}": "x", "__internal__": "y"}, (now - 1, "x"))
    labels = await make().labels(0, now)
    assert labels.is_cut
    assert list(labels.values)[:2] == ["label_00", "label_01"]
    assert "__internal__" not in labels.values


async def test_a_tenant_and_its_login_are_sent_and_are_asked_for_otherwise(make: Make, double: LokiDouble) -> None:
    double.tenant, double.token = "team-a", "open sesame"
    now = time.time_ns()
    double.push(MAIL, (now - 1, "mine"))
    endpoint = HttpEndpoint(double.url, token="open sesame")
    page = await make(tenant="team-a", endpoint=endpoint).search(replace(OF_MAIL, start=now - MINUTE))
    assert texts(page.lines) == ["mine"]


async def test_what_loki_knows_of_a_level_counts_and_what_it_does_not_is_judged_here(
    double: LokiDouble, make: Make
) -> None:
    now = time.time_ns()
    double.push(MAIL, (now - 3, "plain", {"detected_level": "critical"}), (now - 2, "INFO: fine"), (now - 1, "neither"))
    source = make()
    page = await source.search(replace(OF_MAIL, start=now - MINUTE))
    assert [line.level for line in page.lines] == [LogLevel.FATAL, LogLevel.INFO, None]
    assert all(set(line.labels) == {"app"} for line in page.lines)
    fatal = await source.search(replace(OF_MAIL, start=now - MINUTE, levels=frozenset((LogLevel.FATAL,))))
    assert texts(fatal.lines) == ["plain"]


async def test_a_long_search_comes_back_in_time_and_goes_on(
    double: LokiDouble, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEARCH_S", 0.0)  # one span at a time
    source, now = make(), time.time_ns()
    double.push(MAIL, (now - 30 * HOUR, "old"))
    query, before, pages = replace(OF_MAIL, start=now - 40 * HOUR), "", []
    while not pages or before:
        pages.append(await source.search(query, before=before))
        before = pages[-1].before
    assert len(pages) > 1
    assert pages[0].lines == []
    assert not pages[0].is_end
    reached = [page.reached or 0 for page in pages]
    assert reached == sorted(reached, reverse=True)
    assert texts(line for page in pages for line in page.lines) == ["old"]


async def test_a_search_that_is_too_much_at_once_is_asked_in_parts(double: LokiDouble, make: Make) -> None:
    now = time.time_ns()
    double.longest = 24 * HOUR
    double.push(MAIL, (now - 80 * HOUR, "old"))
    source, before, lines = make(), "", []
    while True:
        page = await source.search(replace(OF_MAIL, start=now - 100 * HOUR), before=before)
        lines += page.lines
        before = page.before
        if not before:
            break
    assert texts(lines) == ["old"]
    assert (await source.labels(now - 100 * HOUR, now)).values == {}
    assert texts((await taken(source, OF_MAIL, str(now - 100 * HOUR)))[0]) == ["old"]


async def test_lines_of_one_moment_lie_around_each_other(double: LokiDouble, make: Make) -> None:
    at = time.time_ns() - MINUTE
    double.push(MAIL, *((at, f"line {number:02}") for number in range(30)), (at + 1, "after"), (at - 1, "before"))
    source = make()
    lines = list((await source.search(replace(OF_MAIL, start=at - MINUTE))).lines)
    assert [line.text for line in lines] == ["before", *(f"line {number:02}" for number in range(30)), "after"]
    for number in (0, 1, 15, 30, 31):
        page = await source.around(lines[number].id, OF_MAIL, lines=3)
        assert list(page.lines) == lines[max(0, number - 3) : number + 4]
    with pytest.raises(Missing):
        await source.around(lines[3].id, LogQuery(labels=(("app", frozenset(("shop",))),)))
    with pytest.raises(Missing):
        await source.around(str(at), OF_MAIL)


async def test_a_cut_off_question_leaves_the_source_as_it_was(double: LokiDouble, make: Make) -> None:
    """The server stops the older query when a filter changes."""
    source, now = make(), time.time_ns()
    double.push(MAIL, (now - 1, "here"))
    double.hold('app="mail"', 60)
    asked = asyncio.create_task(source.search(replace(OF_MAIL, start=now - MINUTE)))
    while not double.asked_for('app="mail"'):
        await asyncio.sleep(0.01)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    async with asyncio.timeout(patience(5)):
        while double.abandoned != double.asked_for('app="mail"'):
            await asyncio.sleep(0.01)
    double.hold('app="mail"', 0)
    assert texts((await source.search(replace(OF_MAIL, start=now - MINUTE))).lines) == ["here"]


async def test_many_who_read_the_same_ask_once(double: LokiDouble, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FRESH_NS", HOUR)
    source = make()
    place = (await source.read(OF_MAIL, after="")).after
    double.push(MAIL, *((time.time_ns(), f"line {number}") for number in range(10)))
    monkeypatch.setattr(module, "_FRESH_NS", 0)
    await source.read(OF_MAIL, after=place, limit=1)
    monkeypatch.setattr(module, "_FRESH_NS", HOUR)
    double.asked.clear()
    found = await asyncio.gather(*(taken(source, OF_MAIL, place, limit=3) for _ in range(20)))
    assert all(len(lines) == 10 for lines, _, _ in found)
    assert double.asked == []


async def test_a_line_that_is_older_than_the_first_look_is_late_too(double: LokiDouble, make: Make) -> None:
    source, now = make(), time.time_ns()
    double.push(MAIL, (now - 5 * SECOND, "there already"))
    page = await source.search(replace(OF_MAIL, start=now - MINUTE))
    lines, place, _ = await taken(source, OF_MAIL, page.after)
    assert lines == []
    double.push(MAIL, (now - 4 * SECOND, "late"))
    assert texts((await taken(source, OF_MAIL, place))[0]) == ["late"]


async def test_a_search_after_a_pause_of_those_who_read_along_is_of_now(
    double: LokiDouble, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ACTIVE_NS", SECOND)
    monkeypatch.setattr(module.LokiSource, "_now", lambda _: at)
    source, at = make(), time.time_ns()
    place = (await source.read(OF_MAIL, after="")).after
    at += SECOND
    assert (await taken(source, OF_MAIL, place))[0] == []
    double.push(MAIL, (at - 1, "late"), (at + SECOND, "new"))
    at += 2 * SECOND
    page = await source.search(replace(OF_MAIL, start=at - MINUTE))
    assert texts(page.lines) == ["late", "new"]
    assert (await taken(source, OF_MAIL, page.after))[0] == []
