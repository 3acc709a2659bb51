"""A thousand tabs that follow logs on one web process."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import urlencode

import psutil

from bench.measure import Result, median, percentile
from tests.support.logs.log_writer import LogWriter
from tests.support.processes.web_process import COOKIE, WebProcess
from tests.support.stores.stores import Store

STREAMS = 1000
PER_SECOND = 10  # lines; each reaches every stream
FILTERS = 10  # different ones, each of which lets every line through
SECONDS, QUICK_SECONDS = 60.0, 8.0
BACKLOG = 600  # lines, more than a new tab shows: each thousand begins with as many
WARM_SECONDS = 3.0
WARM_STREAMS = 200
OPENED_AT_ONCE = 20
OPENING_SECONDS = 120.0
AWAY_SECONDS = 30.0  # after the last stream has left: feeds wait for somebody to come back, then memory is given back
P99_MS = 250
PER_STREAM_KB = 75
STOP_SECONDS = 3.0
NOISE_MB = 4.0  # of 110; a leak of 75 KB each would be 73
LIMITS = {"dashboard.live.hub.PERSON_LIMIT": 2 * STREAMS}
_MOMENT = re.compile(rb"written at (\d{19})")


class Tab(asyncio.Protocol):
    """One stream, read at little cost: what measures shares two cores with what is measured."""

    def __init__(self, times: list[float], request: bytes) -> None:
        self.times = times  # ms, one of each line
        self.is_fed = False  # it has said that the newest lines are all there
        self.is_over = asyncio.Event()
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, some: bytes) -> None:
        now = time.time_ns()
        whole = self._rest + some
        end = 0
        for found in _MOMENT.finditer(whole):
            self.times.append((now - int(found[1])) / 1e6)
            end = found.end()
        self._rest = whole[max(end, len(whole) - 40) :]
        self.is_fed = self.is_fed or b'"caught-up"' in whole

    def connection_lost(self, failure: Exception | None) -> None:
        self.is_over.set()

    def leave(self) -> None:
        if self._transport:
            self._transport.abort()


def run(*, quick: bool) -> Result:
    seconds = QUICK_SECONDS if quick else SECONDS
    result = Result("log_streams", f"{STREAMS:,} streams of log lines on one web process")
    result.setting = {"streams": STREAMS, "lines_per_second": PER_SECOND, "filters": FILTERS, "seconds": seconds}
    with Store("valkey") as state:
        environ = {"UNSTALL_STATE_URL": state.url, "UNSTALL_REDIS_URL": state.url.replace("/0", "/1")}
        with WebProcess(environ, LIMITS) as web:
            asyncio.run(_many(web, state, seconds, result))
    return result


async def _many(web: WebProcess, state: Store, seconds: float, result: Result) -> None:
    process, writer = psutil.Process(web.pid), LogWriter(state)
    for number in range(BACKLOG):
        writer.write(f"line {number} of what is there already", container="shop")
    for tab in await opened(web, WARM_STREAMS, []):  # caches fill, threads start
        tab.leave()
    await asyncio.sleep(AWAY_SECONDS)
    empty, threads = _megabytes(process), process.num_threads()
    started = time.monotonic()
    times: list[float] = []
    tabs = await opened(web, STREAMS, times)
    opening = time.monotonic() - started
    full = _megabytes(process)
    warm = await _write(writer, WARM_SECONDS)
    await until_late(lambda: len(times) >= warm * STREAMS, 10)
    busy, received = sum(process.cpu_times()[:2]), len(times)
    written = await _write(writer, seconds)
    await until_late(lambda: len(times) - received >= written * STREAMS, 10)
    busy = (sum(process.cpu_times()[:2]) - busy) / seconds
    most, most_threads, counted = _megabytes(process), process.num_threads(), times[received:]
    for tab in tabs:
        tab.leave()
    await asyncio.sleep(AWAY_SECONDS)
    left = _megabytes(process)
    tabs = await opened(web, STREAMS, times)
    await _write(writer, QUICK_SECONDS)
    again = _megabytes(process)
    web.signal(signal.SIGTERM)
    started = time.monotonic()
    await asyncio.wait_for(asyncio.gather(*(tab.is_over.wait() for tab in tabs)), 30)
    ended = time.monotonic() - started
    result.row("lines delivered", len(counted) / seconds, "a second", f"{len(counted):,} of {written * STREAMS:,}")
    result.row("from the store to a stream, p50", median(counted), "ms")
    result.row("from the store to a stream, p99", percentile(counted, 0.99), "ms")
    result.row("the slowest", max(counted), "ms")
    result.row("processor", busy * 100, "% of a core")
    result.row("all opened within", opening, "s")
    result.row("memory before the first stream", empty, "MB")
    result.row(f"memory with {STREAMS:,} streams", full, "MB")
    result.row("memory after the lines", most, "MB")
    result.row("memory when all have left", left, "MB")
    result.row(f"memory with {STREAMS:,} streams again", again, "MB")
    result.row("threads with them", most_threads, "", f"{threads} before")
    result.row("all ended after SIGTERM", ended, "s")
    lost = written * STREAMS - len(counted)
    result.goal("no line lost or doubled", lost, least=0, most=0)
    result.goal(f"p99 ≤ {P99_MS} ms", percentile(counted, 0.99), most=P99_MS)
    result.goal(f"each stream ≤ {PER_STREAM_KB} KB", (most - empty) * 1024 / STREAMS, most=PER_STREAM_KB)
    result.goal("threads constant", most_threads - threads, least=0, most=0)
    result.goal(f"memory back when all have left: ≤ {NOISE_MB:g} MB above what it was", left - empty, most=NOISE_MB)
    result.goal(f"a second thousand takes ≤ {NOISE_MB:g} MB more than the first", again - most, most=NOISE_MB)
    result.goal(f"all ended ≤ {STOP_SECONDS:g} s after SIGTERM", ended, most=STOP_SECONDS)


async def opened(web: WebProcess, count: int, times: list[float]) -> list[Tab]:
    """So many streams; each of them has had what was there."""
    tabs: list[Tab] = []
    while len(tabs) < count:
        numbers = range(len(tabs), min(len(tabs) + OPENED_AT_ONCE, count))
        tabs += [await _open(web, number, times) for number in numbers]
        await until_late(partial(_are_fed, tabs[-OPENED_AT_ONCE:]), OPENING_SECONDS)
    return tabs


def _are_fed(tabs: list[Tab]) -> bool:
    return all(tab.is_fed for tab in tabs)


async def _open(web: WebProcess, number: int, times: list[float]) -> Tab:
    asked = urlencode({"tab": str(number), "g": "1", "exclude": f"nobody writes {number % FILTERS}"})
    request = (
        f"GET /live/logs?{asked} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {COOKIE}={web.cookies['viewer']}\r\n\r\n"
    ).encode()
    client = socket.create_connection(("127.0.0.1", web.port))
    _, tab = await asyncio.get_running_loop().create_connection(lambda: Tab(times, request), sock=client)
    return tab


async def _write(writer: LogWriter, seconds: float) -> int:
    """At an even pace; how many lines it were."""
    count = int(seconds * PER_SECOND)
    started = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, started + number / PER_SECOND - time.monotonic()))
        writer.write(f"written at {time.time_ns()}: order {number} was charged in 18 ms", container="shop")
    return count


async def until_late(condition: Callable[[], bool], seconds: float) -> None:
    """Or until the time is over: what is missing is counted."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)


def _megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / (1 << 20)
