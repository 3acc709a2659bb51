"""What is lost of shipped lines is said, and what is left is read: streams that were cut, an emptied store, rubbish."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

import pytest

from recovery.errors import Missing, StoreError
from recovery.logs.stream import source as stream_source
from recovery.logs.stream.cursors import CLOCK
from recovery.logs.stream.source import in_order
from recovery.logs.stream.store import NewerEntries, ShippedEntry
from recovery.stores.state import state_keys
from tests.support.logs.log_writer import LogWriter
from tests.support.logs.shipped import ALL, HOUR_MS, Sources, now_ms, put, read_all, settle, ship, sources_of, texts
from tests.support.stores.stores import Store


@pytest.fixture
async def sources(state_store: Store) -> AsyncIterator[Sources]:
    async with sources_of(state_store) as sources:
        yield sources


async def test_a_stream_that_was_cut_behind_the_place_is_said_and_read_from_what_is_left(
    state_store: Store, sources: Sources
) -> None:
    writer = LogWriter(state_store, "eu-1")
    old = now_ms(state_store) - 60_000
    for number in range(10):
        ship(state_store, "eu-1", f"line {number}", id=f"{old + number}-0")
    whole, _ = await read_all(sources.new(), str(old - 1))
    remembering = sources.new()
    place = (await remembering.read(ALL, after=str(old - 1), limit=3)).after
    writer.trim(4)
    for source in (remembering, sources.new()):
        page = await source.read(ALL, after=place)
        assert page.gap is not None
        assert "eu-1" in page.gap.reason
        assert texts(page.lines) == texts(whole)[6:]
        assert (await source.read(ALL, after=page.after)).gap is None
    writer.trim(0)
    page = await sources.new().read(ALL, after=place)
    assert page.gap is not None
    assert list(page.lines) == []


async def test_a_loss_is_said_behind_the_lines_that_came_before_it(
    state_store: Store, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is cut while a page is read, after its first entry."""
    old = now_ms(state_store) - 60_000
    for number in range(10):
        ship(state_store, "eu-1", f"line {number}", id=f"{old + number}-0")

    def cut(newer: NewerEntries) -> list[ShippedEntry]:
        LogWriter(state_store, "eu-1").trim(2)
        return in_order(newer)

    monkeypatch.setattr(stream_source, "ENTRIES", (1, 1))
    monkeypatch.setattr(stream_source, "in_order", cut)
    source = sources.new()
    page = await source.read(ALL, after=str(old - 1))
    assert (texts(page.lines), page.gap) == (["line 0"], None)
    page = await source.read(ALL, after=page.after)
    assert page.gap is not None
    assert texts(page.lines) == ["line 8", "line 9"]


async def test_a_cut_that_took_only_what_was_read_is_no_loss(state_store: Store, sources: Sources) -> None:
    old = now_ms(state_store) - 60_000
    for number in range(4):
        ship(state_store, "eu-1", f"a {number}", f"b {number}", id=f"{old + number}-0")
    place = (await sources.new().read(ALL, after=str(old - 1), limit=3)).after
    LogWriter(state_store, "eu-1").trim(3)
    page = await sources.new().read(ALL, after=place)
    assert page.gap is None
    assert texts(page.lines) == ["b 1", "a 2", "b 2", "a 3", "b 3"]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_emptied_store_is_said_once_and_what_comes_then_is_read(
    state_store: Store, sources: Sources, is_restarted: bool
) -> None:
    LogWriter(state_store).write("before")
    settle(state_store)
    source = sources.new()
    place = (await source.search(ALL)).after
    state_store.flush()
    source = sources.new() if is_restarted else source
    page = await source.read(ALL, after=place)
    assert page.gap is not None
    assert "flushed" in page.gap.reason
    LogWriter(state_store, "eu-2").write("after that")
    settle(state_store)
    source = sources.new() if is_restarted else source
    following = await source.read(ALL, after=page.after)
    assert (texts(following.lines), following.gap) == (["after that"], None)


async def test_servers_that_are_silent_for_long_are_not_taken_for_lost(state_store: Store, sources: Sources) -> None:
    now = now_ms(state_store)
    ship(state_store, "eu-1", "long ago", id=f"{now - 3 * HOUR_MS}-0")
    place = (await sources.new().search(ALL)).after
    state_store.client.delete(state_keys.logs("eu-1"))  # it expired
    state_store.client.zadd(state_keys.SHIPPING, {"eu-1": now_ms(state_store) + 5})  # its monitor lives
    assert (await sources.new().read(ALL, after=place)).gap is None


async def test_a_store_that_never_had_lines_is_not_taken_for_an_emptied_one(
    state_store: Store, sources: Sources
) -> None:
    place = (await sources.new().search(ALL)).after
    LogWriter(state_store).write("the first ever")
    settle(state_store)
    page = await sources.new().read(ALL, after=place)
    assert (texts(page.lines), page.gap) == (["the first ever"], None)


async def test_a_reader_stays_right_when_the_clock_of_the_store_goes_back(state_store: Store, sources: Sources) -> None:
    """A store goes on with the ids that it has; only new streams begin with those of the clock."""
    ahead = now_ms(state_store) + HOUR_MS
    source = sources.new()
    begin = (await source.read(ALL, after="")).after
    ship(state_store, "eu-1", "one", "two", id=f"{ahead}-0")
    page = await source.read(ALL, after=begin, limit=1)
    ship(state_store, "eu-1", "three", id=f"{ahead}-1")
    ship(state_store, "eu-2", "of a new server")
    settle(state_store)
    lines, last = await read_all(source, page.after)
    assert texts(page.lines) == ["one"]
    assert sorted(texts(lines)) == ["of a new server", "three", "two"]
    ship(state_store, "eu-1", "four", id=f"{ahead}-2")
    assert texts((await source.read(ALL, after=last.after)).lines) == ["four"]
    place = last.after
    for text in ("five", "six"):  # whoever does not remember cannot know what was read
        restarted = sources.new()
        resumed = await restarted.read(ALL, after=place)
        assert (list(resumed.lines), resumed.gap) == ([], CLOCK)
        again = await sources.new().read(ALL, after=resumed.after)
        assert (list(again.lines), again.gap) == ([], CLOCK)
        ship(state_store, "eu-1", text)
        page = await restarted.read(ALL, after=resumed.after)
        assert texts(page.lines) == [text]
        place = page.after


@pytest.mark.parametrize(
    "rubbish",
    [
        {"body": b"no parcel"},
        {"x": b"y"},
        {"labels": b"[[", "count": b"many", "first": b"?", "last": b"", "body": b""},
        {"labels": b'{"a": 1, "\xff": "\xfe"}', "count": b"-5", "body": b"\x78\x01"},
        {"labels": b"{}", "count": b"9" * 5000, "body": b"x"},
    ],
)
async def test_a_parcel_that_is_rubbish_is_passed_over_with_a_word(
    state_store: Store, sources: Sources, rubbish: dict[str, bytes]
) -> None:
    begin = (await sources.new().read(ALL, after="")).after
    LogWriter(state_store).write("before")
    put(state_store, "eu-1", dict(rubbish))
    LogWriter(state_store).write("behind")
    settle(state_store)
    read = await sources.new().read(ALL, after=begin)
    found = await sources.new().search(ALL)
    for page in (read, found):
        assert texts(page.lines) == ["before", "behind"]
        assert page.gap is not None
        assert page.gap.count
    assert read.is_end


async def test_a_row_without_a_moment_is_passed_over_and_the_others_are_read(
    state_store: Store, sources: Sources
) -> None:
    rows = b"1\tone\nrubbish\n-\tx\n" + b"9" * 30 + b"\ty\n2\ttwo"
    put(state_store, "eu-1", {"labels": "{}", "count": 5, "first": 1, "last": 2, "body": zlib.compress(rows)})
    settle(state_store)
    page = await sources.new().search(ALL)
    assert texts(page.lines) == ["one", "two"]
    assert page.gap is not None
    assert page.gap.count == 3


async def test_a_store_that_does_not_answer_is_an_error_that_says_so_and_passes(
    state_store: Store, sources: Sources
) -> None:
    LogWriter(state_store).write("one")
    settle(state_store)
    source = sources.new()
    place = (await source.search(ALL)).after
    state_store.stop()
    for question in (source.read(ALL, after=place), source.search(ALL), source.labels(0, 1), source.around("1", ALL)):
        with pytest.raises((StoreError, Missing)):
            await question
    with pytest.raises(StoreError):
        await sources.new().read(ALL, after="")
    state_store.start()
    assert (await source.read(ALL, after=place)).gap is not None  # nothing was saved


async def test_a_store_that_came_back_empty_is_said_though_all_have_shipped_again(
    state_store: Store, sources: Sources
) -> None:
    LogWriter(state_store, "eu-1").write("before")
    settle(state_store)
    source = sources.new()
    place = (await source.search(ALL)).after
    state_store.kill()
    with pytest.raises(StoreError):
        await source.read(ALL, after=place)
    state_store.start()
    LogWriter(state_store, "eu-1").write("after that")
    settle(state_store)
    page = await source.read(ALL, after=place)
    assert page.gap is not None
    assert "flushed" in page.gap.reason
    assert texts(page.lines) == ["after that"]
    assert (await source.read(ALL, after=page.after)).gap is None


async def test_a_store_that_was_away_and_lost_nothing_is_no_loss(state_store: Store, sources: Sources) -> None:
    LogWriter(state_store, "eu-1").write("before")
    settle(state_store)
    source = sources.new()
    place = (await source.search(ALL)).after
    state_store.client.save()
    state_store.kill()
    with pytest.raises(StoreError):
        await source.read(ALL, after=place)
    state_store.start()
    (state_store.directory / "dump.rdb").unlink()  # later tests lose theirs
    LogWriter(state_store, "eu-1").write("after that")
    settle(state_store)
    page = await source.read(ALL, after=place)
    assert (texts(page.lines), page.gap) == (["after that"], None)
