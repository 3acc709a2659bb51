"""`/queues` of a thousand queues from one web process, against bull-board's overview of the same queues."""

from __future__ import annotations

import asyncio

from bench import stage
from bench.load import Load, load, together
from bench.measure import Result, median, percentile
from tests.support.processes.web_process import COOKIE

QUEUES = 1000
CONCURRENCY = 8
TURN_SECONDS = 5.0
WARM_SECONDS = 1.0
TIMES_FASTER = 10
PAGE_BYTES = 150 * 1024


def run(*, quick: bool) -> Result:
    turns = 2 if quick else 6
    result = Result("overview", f"The overview of {QUEUES:,} queues, {CONCURRENCY} requests at once")
    result.setting = {"queues": QUEUES, "concurrency": CONCURRENCY, "seconds": turns * TURN_SECONDS}
    with (
        stage.queues(QUEUES, full=QUEUES // 10, jobs=200) as store,
        stage.house(store, QUEUES) as web,
        stage.board(store, QUEUES) as address,
    ):
        headers = {"Cookie": f"{COOKIE}={web.cookies['viewer']}", "Accept-Encoding": "br, gzip"}
        asked = {f"http://127.0.0.1:{web.port}/queues": headers, f"{address}/api/queues": {}}
        ours, theirs = _in_turn(asked, turns)
    _rows(result, "Unstall /queues", ours)
    _rows(result, "bull-board /api/queues", theirs)
    result.row("Unstall page, compressed", ours.bytes / 1024, "KB")
    result.row("bull-board answer", theirs.bytes / 1024, "KB", "JSON, as it sends it")
    times = ours.per_second / theirs.per_second
    result.goal(f"requests per second, ≥ {TIMES_FASTER} × bull-board", times, least=TIMES_FASTER)
    result.goal("compressed page ≤ 150 KB", ours.bytes / 1024, most=PAGE_BYTES / 1024)
    return result


def _in_turn(asked: dict[str, dict[str, str]], turns: int) -> list[Load]:
    """One after the other, again and again: a busy moment of the machine hits all of them."""
    for url, headers in asked.items():
        asyncio.run(load(url, concurrency=1, seconds=WARM_SECONDS, headers=headers))
    measured: dict[str, list[Load]] = {url: [] for url in asked}
    for _ in range(turns):
        for url, headers in asked.items():
            measured[url].append(asyncio.run(load(url, concurrency=CONCURRENCY, seconds=TURN_SECONDS, headers=headers)))
    return [together(loads) for loads in measured.values()]


def _rows(result: Result, name: str, measured: Load) -> None:
    result.row(f"{name}: rate", measured.per_second, "requests/s")
    result.row(f"{name}: median", median(measured.times_ms), "ms")
    result.row(f"{name}: p99", percentile(measured.times_ms, 0.99), "ms")
