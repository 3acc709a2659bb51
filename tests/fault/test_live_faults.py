"""What breaks around the streams: the state store, a reader that never reads, hundreds of tabs."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress

import psutil
import pytest

from recovery import shared_clock
from recovery.domain.queues.types import DeploymentSample, Snapshot
from recovery.reads.queues import snapshot_store
from tests.support.patience import patience
from tests.support.processes.web_process import COOKIE, Event, Tab, WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until

MEGABYTE = 1 << 20
LIMITS = {"dashboard.live.hub.PERSON_LIMIT": 400, "dashboard.live.hub.SEND_SECONDS": 4.0}


@pytest.fixture
def state(serve: object) -> Store:
    """A state store of the test's own: it is stopped and killed here."""
    store: Store = serve()  # type: ignore[operator]
    return store


@pytest.fixture
def web(state: Store, valkey: Store) -> Iterator[WebProcess]:
    environ = {"UNSTALL_STATE_URL": state.url, "UNSTALL_REDIS_URL": valkey.url}
    with WebProcess(environ, LIMITS) as process:
        yield process


def publish(store: Store, number: int, *, weight: int = 0) -> None:
    """A snapshot; `weight` makes its tick as heavy."""
    now = shared_clock.now()
    deployment = DeploymentSample(name="main", target="redis://127.0.0.1:6379", taken_at=now, error="x" * weight)
    snapshot_store.publish(store.client, Snapshot(number=number, taken_at=now, deployments=(deployment,), queues=()))


async def hears(tab: Tab, number: int, seconds: float) -> Event:
    async with asyncio.timeout(patience(seconds)):
        while (tick := await tab.next("tick")).detail["number"] != number:
            pass
    return tick


async def test_ticks_come_back_within_three_seconds_of_the_state_store(web: WebProcess, state: Store) -> None:
    publish(state, 1)
    async with web.tab() as tab:
        await hears(tab, 1, 3)
        await asyncio.to_thread(state.kill)
        assert web.get("/healthz").status == 200
        assert web.get("/login", seconds=2).status == 200
        await asyncio.to_thread(state.start)
        publish(state, 2)
        await hears(tab, 2, 3)
        assert web.pid


async def test_a_state_store_that_is_away_makes_the_ticks_stale_with_the_reason(web: WebProcess, state: Store) -> None:
    publish(state, 1)
    async with web.tab() as tab:
        await hears(tab, 1, 3)
        await asyncio.to_thread(state.kill)
        async with asyncio.timeout(patience(12)):
            while not (tick := await tab.next("tick")).detail["stale"]:
                pass
        assert tick.detail["number"] == 1
        assert "The state store does not answer" in tick.detail["reason"]


async def test_a_state_store_that_hangs_holds_no_page(web: WebProcess, state: Store) -> None:
    publish(state, 1)
    async with web.tab() as tab:
        await hears(tab, 1, 3)
        state.pause()
        for _ in range(3):
            await tab.next("tick", seconds=5)
            started = time.monotonic()
            answer = await asyncio.to_thread(web.get, "/queues", "viewer")
            assert answer.status == 200
            assert time.monotonic() - started < patience(1)
        state.resume()
        publish(state, 2)
        await hears(tab, 2, 3)


async def test_a_reader_that_never_reads_slows_nobody_and_is_dropped(web: WebProcess, state: Store) -> None:
    process = psutil.Process(web.pid)
    async with web.tab() as tab:
        await tab.next("hello")
        before = process.memory_info().rss
        with _deaf(web) as deaf:
            for number in range(1, 301):  # 9 MB: more than any socket buffer on the way holds
                publish(state, number, weight=30_000)
                await hears(tab, number, 2)
            assert process.memory_info().rss - before < 12 * MEGABYTE
            until(lambda: not _is_connected(process, deaf), 10, "the deaf reader is dropped")
        publish(state, 1000)
        await hears(tab, 1000, 2)
    assert "Traceback" not in web.log
    assert " error " not in web.log


async def test_a_reader_that_never_reads_does_not_hold_the_stop(web: WebProcess, state: Store) -> None:
    async with web.tab() as tab:
        with _deaf(web):
            for number in range(1, 151):
                publish(state, number, weight=30_000)
                await hears(tab, number, 2)
            started = time.monotonic()
            web.signal(signal.SIGTERM)
            assert (await tab.next("bye")).detail["reason"] == "restarting"
            assert await asyncio.to_thread(web.wait, patience(5)) == 0
            assert time.monotonic() - started < patience(3)
    assert " error " not in web.log


async def test_two_hundred_streams_take_no_thread_and_little_memory(web: WebProcess, state: Store) -> None:
    process = psutil.Process(web.pid)
    async with web.tab() as first:
        await first.next("hello")
        publish(state, 1)
        await hears(first, 1, 3)
        threads, memory = process.num_threads(), process.memory_info().rss
        async with AsyncExitStack() as stack:
            tabs = [await stack.enter_async_context(web.tab()) for _ in range(200)]
            publish(state, 2)
            await asyncio.gather(*(hears(tab, 2, 5) for tab in tabs))
            assert process.num_threads() <= threads + 1  # the second of the two that look up sessions
            assert process.memory_info().rss - memory < 200 * 75 * 1024


async def test_memory_stays_flat_over_many_snapshots_and_tabs_that_come_and_go(web: WebProcess, state: Store) -> None:
    process = psutil.Process(web.pid)

    async def rounds(first: int, last: int) -> None:
        for number in range(first, last):
            async with web.tab() as tab:
                publish(state, number)
                await hears(tab, number, 3)

    await rounds(1, 100)
    before = process.memory_info().rss
    await rounds(100, 400)
    assert process.memory_info().rss - before < 3 * MEGABYTE


async def test_many_half_sent_forms_hold_no_page(web: WebProcess) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(60):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", web.port)))
            client.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nname=")
        answer = await asyncio.to_thread(web.get, "/login", seconds=5)
        assert answer.status == 200


def test_a_form_that_is_too_large_is_refused_before_it_is_read(web: WebProcess) -> None:
    with socket.create_connection(("127.0.0.1", web.port)) as client:
        client.settimeout(10)
        client.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000000\r\n\r\n")
        taken = 0
        with suppress(ConnectionError):  # it answers 413 and closes while we are still sending
            while taken < 256:
                client.sendall(b"x" * MEGABYTE)
                taken += 1
        assert taken < 16  # what the sockets on the way hold, and no more


def _deaf(web: WebProcess) -> socket.socket:
    """A client that asks for the stream and never reads a byte of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", web.port))
    client.sendall(f"GET /live/events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {_cookie(web)}\r\n\r\n".encode())
    return client


def _cookie(web: WebProcess) -> str:
    return f"{COOKIE}={web.cookies['viewer']}"


def _is_connected(process: psutil.Process, client: socket.socket) -> bool:
    own = client.getsockname()
    return any(tuple(connection.raddr) == own for connection in process.net_connections("tcp4") if connection.raddr)
