"""Lines of a real state store over a real web process: live, exactly once, redacted, and only for whom may read."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from recovery.stores.state import state_keys
from tests.support.logs.log_reading import Reading
from tests.support.logs.log_writer import LogWriter
from tests.support.patience import patience
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.web.streaming import web_over

LIMITS = {
    "dashboard.live.hub.RECHECK_TURN": 0.2,
    "dashboard.logs.live.feed.RING_BYTES": 400_000,
    "recovery.logs.stream.cursors.LOOK_MS": 0,  # a place is looked at anew however young it is
}
FILE = "/live/logs/download?source=servers&from=0&to=9000000000000"


@pytest.fixture(scope="module")
def state_store() -> Iterator[Store]:
    with Store("valkey") as store:
        yield store


@pytest.fixture(scope="module")
def web(state_store: Store) -> Iterator[WebProcess]:
    with web_over(state_store, LIMITS) as process:
        yield process


@pytest.fixture(scope="module")
def fragile() -> Iterator[tuple[Store, WebProcess]]:
    """A store and a process that are stopped and killed."""
    with Store("valkey") as store, web_over(store) as process:
        yield store, process


@pytest.fixture
def writer(state_store: Store, request: pytest.FixtureRequest) -> LogWriter:
    """A server of the test's own, so that readers of the same process do not see each other's lines."""
    return LogWriter(state_store, request.node.name[:60])


@asynccontextmanager
async def reading(
    web: WebProcess, writer: LogWriter, person: str = "viewer", *, is_small: bool = False, **asked: str
) -> AsyncIterator[Reading]:
    one = Reading(web, person, is_small=is_small, label=f"server={writer.server}", **asked)
    await one.open()
    try:
        yield one
    finally:
        one.cut()


async def test_lines_come_as_they_are_written_and_ticks_come_with_them(web: WebProcess, writer: LogWriter) -> None:
    writer.write("early", container="mail")
    async with reading(web, writer) as reader:
        await reader.until(lambda: "older" in reader.browser.events)
        assert "text/event-stream" in reader.headers
        assert "no-transform" in reader.headers
        writer.write("late <b>one</b>", container="mail")
        await reader.until(lambda: reader.browser.lines == ["early", "late <b>one</b>"])
        lines = next(detail for detail in reader.browser.details if "lines" in detail)
        assert lines["sets"] == [{"container": "mail", "server": writer.server}]
        assert lines["source"] == "servers"
        await reader.until(lambda: "tick" in reader.browser.events)


async def test_no_role_sees_a_secret(web: WebProcess, writer: LogWriter) -> None:
    writer.write("login with password=hunter2-and-more failed")
    for person in ("viewer", "admin"):
        async with reading(web, writer, person) as reader:
            await reader.until(lambda reader=reader: reader.browser.lines)  # type: ignore[misc]
            assert "login" in reader.browser.lines[0]
            assert "hunter2" not in reader.browser.lines[0]
        assert b"hunter2" not in (await asyncio.to_thread(web.get, FILE, person)).body


async def through_cuts(web: WebProcess, writer: LogWriter, cuts: int, seed: int) -> Reading:
    """Bursts of lines, many of one nanosecond, and a connection that is cut at any byte."""
    chance, written, broken = random.Random(seed), 0, 0
    reader = Reading(web, label=f"server={writer.server}")
    writer.write("0", at=0)
    await reader.open()
    await reader.until(lambda: reader.browser.lines == ["0"])
    for _ in range(cuts):
        for _ in range(chance.choice((0, 1, 3))):
            [size] = chance.choices((1, 2, 20, 60, 5000), (250, 250, 250, 250, 1))
            writer.write(*(str(written + number) for number in range(1, size + 1)), at=written, step=0)
            written += size
        await reader.some(chance.randrange(1, chance.choice((400, 4_000, 100_000))), chance.choice((0.001, 0.01, 0.03)))
        broken += reader.cut()
        await reader.open()
    assert broken > cuts / 10, "many of the cuts are in the middle of an event"
    await reader.until(lambda: len(reader.browser.lines) > written, 30)
    assert reader.browser.lines == [str(number) for number in range(written + 1)]
    assert len(set(reader.browser.ids)) == len(reader.browser.ids)
    return reader


async def test_a_connection_that_is_cut_anywhere_loses_and_doubles_no_line(web: WebProcess, writer: LogWriter) -> None:
    reader = await through_cuts(web, writer, 1_000, seed=3)
    assert {note["kind"] for note in reader.browser.notes} == {"caught-up"}
    reader.cut()


@pytest.mark.long
async def test_a_connection_that_is_cut_ten_thousand_times_loses_and_doubles_no_line(
    web: WebProcess, writer: LogWriter
) -> None:
    (await through_cuts(web, writer, 10_000, seed=4)).cut()


async def test_five_thousand_lines_of_one_nanosecond_come_once(web: WebProcess, writer: LogWriter) -> None:
    writer.write("first")
    async with reading(web, writer) as reader:
        await reader.until(lambda: reader.browser.lines)
        writer.write(*(str(number) for number in range(5000)), at=7, step=0)
        await reader.until(lambda: len(reader.browser.lines) > 2000)
        reader.cut()
        await reader.open()
        await reader.until(lambda: len(reader.browser.lines) > 5000)
        assert reader.browser.lines == ["first", *(str(number) for number in range(5000))]


async def test_a_new_wish_of_a_tab_ends_its_earlier_stream(web: WebProcess, writer: LogWriter) -> None:
    writer.write("an apple", "a pear")
    async with reading(web, writer, include="apple") as reader:
        await reader.until(lambda: reader.browser.lines)
        newer = Reading(web, label=f"server={writer.server}", include="pear")
        newer._generation = 1
        await newer.open()
        async with asyncio.timeout(patience(5)):
            while await reader.take():
                pass
        assert reader.is_over
        await newer.until(lambda: newer.browser.lines == ["a pear"])
        newer.cut()
    assert "without completing" not in web.log


async def test_lines_trimmed_away_behind_the_place_of_a_reader_are_a_gap(web: WebProcess, writer: LogWriter) -> None:
    writer.write("one")
    async with reading(web, writer) as reader:
        await reader.until(lambda: "older" in reader.browser.events)
        reader.cut()
        for text in ("two", "three", "four"):
            writer.write(text)
        writer.store.client.xtrim(state_keys.logs(writer.server), maxlen=1, approximate=False)
        await reader.open()
        await reader.until(lambda: reader.browser.lines == ["one", "four"])
        [note] = reader.browser.said("gap")
        assert writer.server in note["text"]


async def test_a_label_that_no_line_has_is_said_with_those_that_exist(web: WebProcess, writer: LogWriter) -> None:
    writer.write("one", container="mail")
    reader = Reading(web, label="container=male")
    await reader.open()
    await reader.until(lambda: reader.browser.said("no-match"))
    [note] = reader.browser.said("no-match")
    assert "mail" in note["labels"]["container"]
    reader.cut()


async def test_a_slow_reader_misses_lines_and_is_told_while_another_misses_none(
    web: WebProcess, writer: LogWriter
) -> None:
    async with (
        reading(web, writer, is_small=True, tab="slow") as slow,
        reading(web, writer, tab="quick") as quick,
    ):
        for one in (slow, quick):
            await one.until(lambda one=one: "older" in one.browser.events)  # type: ignore[misc]
        written = dropped = 0
        while not dropped and written < 4_000:  # one that has not caught up yet is sent everything, however slow it is
            for turn in range(12):  # 10 MB: more than any socket buffer on the way holds
                writer.write(*(f"{turn} {number} {'x' * 8000}" for number in range(100)))
                written += 100
                await quick.until(lambda so_far=written: len(quick.browser.lines) == so_far, 30)  # type: ignore[misc]
            writer.write(last := f"last of {written}")
            written += 1
            await slow.until(lambda last=last: last in slow.browser.lines, 60)  # type: ignore[misc]
            await quick.until(lambda last=last: last in quick.browser.lines)  # type: ignore[misc]
            dropped = sum(note["count"] for note in slow.browser.said("dropped"))
        assert dropped > 100
        assert len(slow.browser.lines) + dropped == written
        assert not quick.browser.said("dropped")


async def test_a_stream_of_lines_ends_when_the_right_is_gone(web: WebProcess, writer: LogWriter) -> None:
    async with reading(web, writer, "second") as reader, reading(web, writer, "admin") as other:
        await reader.until(lambda: "hello" in reader.browser.events)
        web.change("UPDATE dashboard_user SET is_active = 0 WHERE username = 'second'")
        await reader.until(lambda: "bye" in reader.browser.events, 5)
        assert reader.browser.details[-1]["reason"] == "logged-out"
        assert not await reader.take()
        writer.write("for who stays")
        await other.until(lambda: other.browser.lines)
        reader.cut()
        await reader.open()
        assert reader.status == 401
    assert web.get(FILE, "second").status == 401


def test_a_range_is_downloaded_as_a_file(web: WebProcess, writer: LogWriter) -> None:
    writer.write(*(f"line {number}" for number in range(3000)), container="mail")
    answer = web.get(f"{FILE}&label=server%3D{writer.server}", "viewer")
    assert answer.status == 200
    assert answer.headers["content-disposition"].startswith('attachment; filename="logs-')
    rows = answer.body.decode().splitlines()
    assert [row.rpartition("\t")[2] for row in rows[1:-1]] == [f"line {number}" for number in range(3000)]
    assert rows[-1] == "# End: 3,000 lines."


@pytest.mark.parametrize(
    ("path", "person", "method", "status"),
    [
        ("/live/logs", "", "GET", 401),
        ("/live/logs", "viewer", "POST", 405),
        ("/live/logs", "viewer", "HEAD", 405),
        ("/live/logs/download", "", "GET", 401),
        ("/live/logs/nothing", "viewer", "GET", 404),
        ("/live/logs?source=nowhere", "viewer", "GET", 400),
        ("/live/logs/labels?source=servers", "", "GET", 401),
        (f"/live/logs?x={'y' * 60_000}", "viewer", "GET", 400),
    ],
)
def test_what_is_no_stream_of_lines_is_refused(
    web: WebProcess, path: str, person: str, method: str, status: int
) -> None:
    answer = web.get(path, person, method=method)
    assert answer.status == status
    assert answer.headers["cache-control"] == "no-store"


async def test_a_new_version_ends_streams_at_once_and_they_go_on_with_nothing_lost_or_doubled(
    fragile: tuple[Store, WebProcess],
) -> None:
    store, web = fragile
    writer, readers = LogWriter(store), [Reading(web, tab=str(number)) for number in range(10)]
    writer.write("0")
    for reader in readers:
        await reader.open()
        await reader.until(lambda reader=reader: reader.browser.lines)  # type: ignore[misc]
    for start in range(1, 1001, 100):
        writer.write(*(str(number) for number in range(start, start + 100)))
        if start == 501:
            started = time.monotonic()
            web.signal(signal.SIGTERM)
    await asyncio.gather(*(to_the_end(reader) for reader in readers))
    assert time.monotonic() - started < patience(3)
    assert await asyncio.to_thread(web.wait, 5) == 0
    assert " error " not in web.log
    web.start()  # by this thread: with a thread of the loop it would die
    for reader in readers:
        await reader.open()
        await reader.until(lambda reader=reader: len(reader.browser.lines) == 1001)  # type: ignore[misc]
        assert reader.browser.lines == [str(number) for number in range(1001)]
        assert reader.browser.events.count("bye") == 1
        assert {note["kind"] for note in reader.browser.notes} == {"caught-up"}
        reader.cut()


async def to_the_end(reader: Reading) -> None:
    async with asyncio.timeout(patience(10)):
        while await reader.take():
            pass
    assert reader.is_over
    reader.cut()


async def test_a_state_store_that_is_away_is_said_and_lines_go_on_when_it_is_back(
    fragile: tuple[Store, WebProcess],
) -> None:
    store, web = fragile
    writer, reader = LogWriter(store), Reading(web)
    writer.write("before")
    await reader.open()
    await reader.until(lambda: "older" in reader.browser.events)
    await asyncio.to_thread(store.kill)
    await reader.until(lambda: reader.browser.said("trouble"))
    note = reader.browser.said("trouble")[0]
    assert store.url.partition("//")[2].partition("/")[0] in note["text"]
    assert note["advice"]
    store.start()
    await reader.until(lambda: reader.browser.said("recovered"), 30)
    writer.write("after")
    await reader.until(lambda: "after" in reader.browser.lines)
    assert reader.browser.said("gap")  # what was not read went with the store
    assert len(reader.browser.said("trouble")) <= 2  # away, and then maybe loading
    reader.cut()
