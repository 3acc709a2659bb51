"""What open tabs cost the queue Redis: its command rate with 1, 50 and 500 of them, each following the ticks."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from contextlib import AsyncExitStack

import psutil

from bench import stage
from bench.load import fetch
from bench.measure import Result
from tests.support.processes.web_process import COOKIE, Tab, WebProcess
from tests.support.stores.stores import Store

QUEUES = 100
TABS = (1, 50, 500)
PAGES = (f"/queues/main/{stage.PREFIX}:bench-0/tab?state=waiting", "/queues")  # in turn; the first reads a list
SECONDS = 60.0  # a minute holds one of everything that the scheduler does
SPREAD_SECONDS = 0.4  # as static/js/live.js spreads the tabs
TOLERANCE = 1.05  # collects come every two seconds, and not to the millisecond
LIMITS = {"dashboard.live.hub.PERSON_LIMIT": 1000}  # the tabs of all are opened by one person here


def run(*, quick: bool) -> Result:
    tabs_in_turn = TABS[::2] if quick else TABS
    result = Result("viewers", "Commands that the queue Redis serves while tabs are open")
    result.setting = {"queues": QUEUES, "tabs": tabs_in_turn, "seconds": SECONDS}
    with stage.queues(QUEUES, full=10, jobs=200) as store, stage.house(store, QUEUES, limits=LIMITS) as web:
        rates = {tabs: asyncio.run(_rate(web, store, tabs, result)) for tabs in tabs_in_turn}
        direct = connections(web, store)
    worst = max(rate / rates[TABS[0]] for rate in rates.values())
    result.row(
        "connections of the web process to the queue Redis", direct, "", "for the list that half of the tabs show"
    )
    result.goal("rate with 50 and 500 tabs against that with 1, ≤ 1.05", worst, most=TOLERANCE)
    return result


async def _rate(web: WebProcess, store: Store, tabs: int, result: Result) -> float:
    """Commands a second, from one new snapshot to another a minute later."""
    async with AsyncExitStack() as stack:
        fetched = [0]
        clock, *readers = [await stack.enter_async_context(web.tab()) for _ in range(tabs + 1)]
        pages = itertools.cycle(PAGES)
        tasks = [asyncio.create_task(follow(web, tab, next(pages), fetched)) for tab in readers]
        number = await _after(clock, await _after(clock, None))
        first, started, taken = _served(store), time.monotonic(), 0
        while time.monotonic() - started < SECONDS:
            number = await _after(clock, number)
            taken += 1
        served, took = _served(store) - first - 1, time.monotonic() - started  # the INFO itself is one
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    note = f"{served / taken:,.0f} for each of {taken} snapshots; the tabs fetched {fetched[0]:,} fragments"
    result.row(f"{tabs} {'tab' if tabs == 1 else 'tabs'}", served / took, "commands/s", note)
    return served / took


def connections(web: WebProcess, store: Store) -> int:
    """Of the web process to this store."""
    return sum(
        connection.raddr.port == store.port
        for connection in psutil.Process(web.pid).net_connections("tcp")
        if connection.raddr
    )


async def _after(clock: Tab, number: int | None) -> int:
    """The number of the next snapshot after this one."""
    while True:
        newest: int | None = (await clock.next("tick", seconds=60)).detail["number"]
        if newest is not None and newest != number:
            return newest


async def follow(web: WebProcess, tab: Tab, page: str, fetched: list[int]) -> None:
    """What a page does: with each new snapshot it fetches its rows."""
    headers = {"Cookie": f"{COOKIE}={web.cookies['viewer']}", "HX-Request": "true", "Accept-Encoding": "gzip"}
    number = None
    while True:
        number = await _after(tab, number)
        await asyncio.sleep(random.random() * SPREAD_SECONDS)
        await fetch(f"http://127.0.0.1:{web.port}{page}", headers)
        fetched[0] += 1


def _served(store: Store) -> int:
    return int(store.client.info("stats")["total_commands_processed"])
