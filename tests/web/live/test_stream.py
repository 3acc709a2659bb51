"""Streams of a real web process over a real Valkey: who gets one, what it says, when it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest

from dashboard.accounts.sessions import digest
from recovery import shared_clock
from recovery.domain.queues.types import DeploymentSample, Snapshot
from recovery.reads.queues import snapshot_store
from recovery.stores.state import state_keys
from tests.support.patience import patience
from tests.support.processes.web_process import Tab, WebProcess
from tests.support.stores.stores import Store
from tests.web.streaming import web_over

LIMITS = {
    "dashboard.live.hub.BEAT_SECONDS": 0.5,
    "dashboard.live.hub.WATCH_TURN": 0.1,
    "dashboard.live.hub.PERSON_LIMIT": 60,
    "dashboard.live.hub.PROCESS_LIMIT": 70,
}


numbers = count(1)


@pytest.fixture(scope="module")
def state_store() -> Iterator[Store]:
    with Store("valkey") as store:
        yield store


@pytest.fixture(scope="module")
def web(state_store: Store) -> Iterator[WebProcess]:
    """One process for all: each test takes a person of its own where it takes a right away."""
    with web_over(state_store, LIMITS) as process:
        yield process


def publish(store: Store) -> tuple[int, float]:
    """A new snapshot: its number, and the moment it was there."""
    now, number = shared_clock.now(), next(numbers)
    deployment = DeploymentSample(name="main", target="redis://127.0.0.1:6379", taken_at=now)
    snapshot_store.publish(store.client, Snapshot(number=number, taken_at=now, deployments=(deployment,), queues=()))
    return number, time.monotonic()


async def test_a_tick_arrives_within_a_second_of_the_snapshot(web: WebProcess, state_store: Store) -> None:
    async with web.tab() as tab:
        hello = await tab.next()
        assert hello.kind == "hello"
        number, published = publish(state_store)
        while (tick := await tab.next("tick")).detail["number"] != number:
            pass
        assert time.monotonic() - published < patience(1.0)
        assert tick.id == str(number)
        assert not tick.detail["stale"]


async def test_a_lost_message_delays_a_tick_by_two_seconds_at_most(web: WebProcess, state_store: Store) -> None:
    async with web.tab() as tab:
        await tab.next("tick")
        now, number = shared_clock.now(), next(numbers)
        packed = snapshot_store.encode(Snapshot(number=number, taken_at=now, deployments=(), queues=()))
        state_store.client.set(state_keys.SNAPSHOT, packed)
        async with asyncio.timeout(patience(3)):
            while (await tab.next("tick")).detail["number"] != number:
                pass


async def test_a_stream_cannot_be_cached_buffered_or_compressed_on_the_way(web: WebProcess) -> None:
    async with web.tab() as tab:
        await tab.next()
        assert tab.status == 200
        assert tab.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert tab.headers["cache-control"] == "no-store, no-transform"
        assert tab.headers["x-accel-buffering"] == "no"
        assert tab.comments
        assert tab.comments[0] == "unstall"
        assert tab.retry is not None
        assert "content-encoding" not in tab.headers


async def test_fifty_streams_hear_of_one_snapshot(web: WebProcess, state_store: Store) -> None:
    async with AsyncExitStack() as stack:
        tabs = [await stack.enter_async_context(web.tab()) for _ in range(50)]
        number, published = publish(state_store)

        async def hears(tab: Tab) -> float:
            while (await tab.next("tick")).detail["number"] != number:
                pass
            return time.monotonic() - published

        assert max(await asyncio.gather(*(hears(tab) for tab in tabs))) < patience(1.0)


@pytest.mark.parametrize(
    ("path", "person", "method", "status"),
    [
        ("/live/events", "", "GET", 401),
        ("/live/events", "viewer", "HEAD", 405),
        ("/live/events", "viewer", "POST", 405),
        ("/live/other", "viewer", "GET", 404),
        ("/live/", "viewer", "GET", 404),
    ],
)
def test_what_is_no_stream_is_refused(web: WebProcess, path: str, person: str, method: str, status: int) -> None:
    answer = web.get(path, person, method=method)
    assert answer.status == status
    assert answer.headers["cache-control"] == "no-store"


async def test_a_made_up_session_is_refused(web: WebProcess) -> None:
    web.cookies["nobody"] = "x" * 32
    async with web.tab("nobody") as tab:
        assert tab.status == 401


async def test_a_stream_ends_when_the_right_is_gone(web: WebProcess) -> None:
    async with web.tab("second") as tab, web.tab("viewer") as other:
        await tab.next("hello")
        web.change("UPDATE dashboard_user SET is_active = 0 WHERE username = 'second'")
        farewell = await tab.next("bye", seconds=5)
        assert farewell.detail["reason"] == "logged-out"
        assert await tab.ended()
        await other.next("hello")
        await other.next("tick")
    async with web.tab("second") as again:
        assert again.status == 401


async def test_a_stream_ends_after_a_logout(web: WebProcess) -> None:
    async with web.tab("third") as tab:
        await tab.next("hello")
        web.change("DELETE FROM dashboard_loginsession WHERE key_hash = ?", digest(web.cookies["third"]))
        assert (await tab.next("bye", seconds=5)).detail["reason"] == "logged-out"


async def test_a_stream_begins_anew_after_a_changed_role(web: WebProcess) -> None:
    async with web.tab("fifth") as tab:
        await tab.next("hello")
        web.change("UPDATE dashboard_user SET role = 'admin' WHERE username = 'fifth'")
        assert (await tab.next("bye", seconds=5)).detail["reason"] == "role-changed"
    async with web.tab("fifth") as again:
        assert again.status == 200


async def test_a_stream_ends_when_its_session_was_idle_for_too_long(web: WebProcess) -> None:
    async with web.tab("sixth") as tab:
        await tab.next("hello")
        web.change(
            "UPDATE dashboard_loginsession SET last_used_at = '2026-01-01 00:00:00' WHERE key_hash = ?",
            digest(web.cookies["sixth"]),
        )
        assert (await tab.next("bye", seconds=5)).detail["reason"] == "logged-out"


async def test_a_stream_ends_after_a_changed_password(web: WebProcess) -> None:
    async with web.tab("fourth") as tab:
        await tab.next("hello")
        web.change("UPDATE dashboard_user SET password = 'pbkdf2_sha256$1$x$y' WHERE username = 'fourth'")
        assert (await tab.next("bye", seconds=5)).detail["reason"] == "logged-out"


async def test_too_many_tabs_of_one_person_are_told_when_to_come_back(web: WebProcess) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(60):
            assert (await stack.enter_async_context(web.tab("operator"))).status == 200
        async with web.tab("operator") as refused, web.tab("viewer") as other:
            assert refused.status == 503
            assert 10 <= int(refused.headers["retry-after"]) <= 30
            assert other.status == 200


async def test_too_many_tabs_for_the_process_are_told_when_to_come_back(web: WebProcess) -> None:
    async with AsyncExitStack() as stack:
        for number in range(70):
            person = "operator" if number % 2 else "viewer"
            assert (await stack.enter_async_context(web.tab(person))).status == 200
        async with web.tab("admin") as refused:
            assert refused.status == 503


async def test_a_reader_that_left_makes_room_although_nothing_is_sent(web: WebProcess) -> None:
    for _ in range(3):
        async with AsyncExitStack() as stack:
            for _ in range(60):
                assert (await stack.enter_async_context(web.tab("operator"))).status == 200
        await _room(web)


async def _room(web: WebProcess) -> None:
    async with asyncio.timeout(patience(2)):
        while True:
            async with web.tab("operator") as tab:
                if tab.status == 200:
                    return
