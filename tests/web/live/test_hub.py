"""The hub in this process: slots, places, farewells. Who may watch is tested with a real web process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from dashboard.live import events, session
from dashboard.live import hub as hubs
from dashboard.live.events import StreamEnding
from dashboard.live.hub import Hub, LiveLimitReached, LiveStream
from dashboard.live.session import Visitor
from recovery.domain.redaction.secret_names import name_kind
from recovery.processes import malloc

ANNE = Visitor(1, "session-of-anne")
BOB = Visitor(2, "session-of-bob")


def _nothing() -> None:
    pass


async def test_a_slow_reader_gets_the_newest_event_and_none_of_the_older() -> None:
    hub = Hub()
    stream = hub.open(ANNE, _nothing)
    for number in range(1000):
        hub.publish(f"event {number}".encode())
    assert await stream.next() == b"event 999"


async def test_a_new_stream_gets_the_newest_event_at_once() -> None:
    hub = Hub()
    hub.publish(b"old")
    hub.publish(b"new")
    assert await hub.open(ANNE, _nothing).next() == b"new"


async def test_a_quiet_stream_beats() -> None:
    stream = Hub().open(ANNE, _nothing)
    now = time.monotonic()
    for _ in range(2):
        stream.watch(now + hubs.BEAT_SECONDS)
        assert await stream.next() == events.KEEP_ALIVE


async def test_a_stream_that_has_just_sent_does_not_beat() -> None:
    stream = Hub().open(ANNE, _nothing)
    await stream.send(asyncio.sleep(0))
    stream.watch(time.monotonic() + hubs.BEAT_SECONDS - 1)
    assert not stream._bell.is_set()


async def test_all_streams_are_watched_by_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "WATCH_TURN", 0.01)
    monkeypatch.setattr(hubs, "BEAT_SECONDS", 0.05)
    hub = Hub()
    hub.start()
    async with asyncio.timeout(10):
        assert set(await asyncio.gather(*(hub.open(ANNE, _nothing).next() for _ in range(20)))) == {events.KEEP_ALIVE}
    await hub.close()


async def test_whoever_takes_nothing_is_given_up_and_who_takes_late_is_not() -> None:
    stream, never = Hub().open(ANNE, _nothing), asyncio.Event()
    taken = asyncio.create_task(_written(stream, never))
    await asyncio.sleep(0)
    stream.watch(time.monotonic() + hubs.SEND_SECONDS - 1)
    await asyncio.sleep(0)
    assert not taken.done()
    stream.watch(time.monotonic() + hubs.SEND_SECONDS)
    stream.watch(time.monotonic() + hubs.SEND_SECONDS)  # while it is being given up
    with pytest.raises(TimeoutError):
        await taken
    stream.watch(time.monotonic() + hubs.SEND_SECONDS)  # and afterwards


async def _written(stream: LiveStream, reader: asyncio.Event) -> None:
    async with stream.limit:
        await stream.send(_taken(reader))


async def _taken(reader: asyncio.Event) -> None:
    await reader.wait()


async def test_publishing_starts_no_task() -> None:
    hub = Hub()
    for _ in range(30):
        hub.open(ANNE, _nothing)
    before = len(asyncio.all_tasks())
    hub.publish(b"event")
    assert len(asyncio.all_tasks()) == before


async def test_one_person_has_a_limit_and_another_still_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "PERSON_LIMIT", 2)
    hub = Hub()
    first = hub.open(ANNE, _nothing)
    hub.open(ANNE, _nothing)
    with pytest.raises(LiveLimitReached, match="You have 2"):
        hub.open(ANNE, _nothing)
    hub.open(BOB, _nothing)
    hub.leave(first)
    hub.open(ANNE, _nothing)


async def test_the_process_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "PROCESS_LIMIT", 2)
    hub = Hub()
    hub.open(ANNE, _nothing)
    hub.open(BOB, _nothing)
    with pytest.raises(LiveLimitReached, match="This process has 2"):
        hub.open(BOB, _nothing)


async def test_closing_says_farewell_and_cuts_who_does_not_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "PARTING_SECONDS", 0.1)
    hub = Hub()
    cut: list[str] = []
    goes = hub.open(ANNE, lambda: cut.append("goes"))
    stays = hub.open(BOB, _leaves_when_cut(hub, cut))
    reading = asyncio.create_task(_read(hub, goes))
    await hub.close()
    assert await reading == StreamEnding.RESTARTING
    assert cut == ["stays"]
    assert stays.ending == StreamEnding.RESTARTING
    with pytest.raises(LiveLimitReached, match="stopping"):
        hub.open(ANNE, _nothing)


async def test_a_reader_that_leaves_ends_its_stream() -> None:
    stream = Hub().open(ANNE, _nothing)
    stream.depart()
    assert await stream.next() is None
    assert stream.ending is None


def _leaves_when_cut(hub: Hub, cut: list[str]) -> Callable[[], None]:
    return lambda: cut.append("stays")


async def _read(hub: Hub, stream: LiveStream) -> StreamEnding | None:
    while await stream.next() is not None:
        pass
    hub.leave(stream)
    return stream.ending


@pytest.mark.parametrize(("leaving", "given_back"), [(100, 1), (99, 0)])
async def test_once_many_have_left_their_memory_is_given_back_a_while_later(
    monkeypatch: pytest.MonkeyPatch, leaving: int, given_back: int
) -> None:
    given: list[int] = []
    turns = 0
    monkeypatch.setattr(hubs, "RECHECK_TURN", 0.0)
    monkeypatch.setattr(malloc, "trim", lambda: given.append(turns))
    monkeypatch.setattr(hubs, "PERSON_LIMIT", 100)
    name_kind("order")
    hub = Hub()
    streams = [hub.open(ANNE, _nothing) for _ in range(leaving)]
    hub.start()
    for stream in streams:
        hub.leave(stream)
    while turns < 20:
        await asyncio.sleep(0)
        turns += 1
    await hub.close()
    assert len(given) == given_back
    assert (name_kind.cache_info().currsize == 0) is bool(given_back)
    assert all(turn >= hubs.TIDY_TURNS for turn in given)


async def test_who_lost_the_right_is_ended_however_many_sessions_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was locked out could keep their stream by sending made-up cookies without end."""
    is_over = threading.Event()
    monkeypatch.setattr(hubs, "RECHECK_TURN", 0.01)
    monkeypatch.setattr(session, "visitor", lambda _: is_over.wait(20) and None)
    monkeypatch.setattr(session, "find_endings", lambda visitors: dict.fromkeys(visitors, StreamEnding.LOGGED_OUT))
    hub = Hub()
    hub.start()
    strangers = [asyncio.create_task(hub.visitor(f"unstall-session={number}")) for number in range(20)]
    try:
        stream = hub.open(ANNE, _nothing)
        async with asyncio.timeout(10):
            assert await stream.next() is None
        assert stream.ending is StreamEnding.LOGGED_OUT
        assert not any(task.done() for task in strangers)
    finally:
        is_over.set()
        hub.leave(stream)
        await asyncio.gather(*strangers)
        await hub.close()
