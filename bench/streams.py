"""Three hundred live tabs for minutes: the web process's memory must stay flat."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import psutil

from bench import stage
from bench.load import load
from bench.measure import Result, median
from bench.viewers import follow
from tests.support.processes.web_process import COOKIE, Tab, WebProcess

TABS = 300
QUEUES = 100
FOLLOWERS = 60  # tabs that also fetch their rows, as every page does; all 300 would measure Django, not the streams
SAMPLE_SECONDS = 1.0
SERIES_SECONDS = 10.0  # between the samples that are kept in the file
WARM_TABS, WARM_SECONDS = 16, 5.0  # pages asked for before the first tab opens, so that only tabs are counted
WARM_SHARE = 0.2  # of the time; caches fill, and the allocator finds its size
GROWTH_MB = 2.0  # what flat means; a leak of one tick a tab would be 20 MB in ten minutes
PER_STREAM_KB = 75
LIMITS = {"dashboard.live.hub.PERSON_LIMIT": 1000}


def run(*, quick: bool, minutes: float | None = None) -> Result:
    seconds = 60 * (minutes or (0.5 if quick else 10))
    result = Result("streams", f"{TABS} live tabs for {seconds / 60:g} minutes")
    result.setting = {"tabs": TABS, "queues": QUEUES, "seconds": seconds}
    with stage.queues(QUEUES, full=10, jobs=200) as store, stage.house(store, QUEUES, limits=LIMITS) as web:
        asyncio.run(_watch(web, seconds, result))
    return result


async def _watch(web: WebProcess, seconds: float, result: Result) -> None:
    process = psutil.Process(web.pid)
    headers = {"Cookie": f"{COOKIE}={web.cookies['viewer']}", "Accept-Encoding": "gzip"}
    await load(f"http://127.0.0.1:{web.port}/queues", concurrency=WARM_TABS, seconds=WARM_SECONDS, headers=headers)
    empty = _megabytes(process)
    async with AsyncExitStack() as stack:
        tabs = [await stack.enter_async_context(web.tab()) for _ in range(TABS)]
        ticks, fetched = [0], [0]
        tasks = [asyncio.create_task(_read(tab, ticks)) for tab in tabs[FOLLOWERS:]]
        tasks += [asyncio.create_task(follow(web, tab, "/queues", fetched)) for tab in tabs[:FOLLOWERS]]
        busy = sum(process.cpu_times()[:2])
        samples = await _samples(process, seconds)
        busy = sum(process.cpu_times()[:2]) - busy
        threads = process.num_threads()
        dead = sum(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    result.setting["memory_mb"] = [round(sample, 1) for sample in samples[:: int(SERIES_SECONDS / SAMPLE_SECONDS)]]
    settled = samples[int(len(samples) * WARM_SHARE) :]
    third = max(1, len(settled) // 3)
    growth = median(settled[-third:]) - median(settled[:third])
    result.row("memory before the first tab", empty, "MB")
    result.row(f"memory with {TABS} tabs", median(settled), "MB")
    result.row("each tab", (settled[0] - empty) * 1024 / TABS, "KB")
    result.row("growth, last third against first", growth, "MB")
    result.row("ticks delivered", ticks[0], "", "to the tabs that only listen")
    result.row("rows fetched", fetched[0], "", f"by {FOLLOWERS} of the tabs, after each snapshot")
    result.row("processor", busy / seconds * 100, "% of a core")
    result.row("threads", threads, "")
    result.row("tabs lost", dead, "")
    result.goal(f"memory flat: growth ≤ {GROWTH_MB:g} MB", growth, most=GROWTH_MB)
    result.goal(f"each stream ≤ {PER_STREAM_KB} KB", (settled[0] - empty) * 1024 / TABS, most=PER_STREAM_KB)
    result.goal("no tab lost", dead, most=0)


async def _samples(process: psutil.Process, seconds: float) -> list[float]:
    deadline = time.monotonic() + seconds
    samples = []
    while time.monotonic() < deadline:
        await asyncio.sleep(SAMPLE_SECONDS)
        samples.append(_megabytes(process))
    return samples


async def _read(tab: Tab, ticks: list[int]) -> None:
    while True:
        await tab.next("tick", seconds=60)
        ticks[0] += 1


def _megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / (1 << 20)
