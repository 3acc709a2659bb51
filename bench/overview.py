"""`/queues` of a thousand queues from one web process, against bull-board's overview of the same queues."""

from __future__ import annotations

import asyncio

from bench import stage
from bench.load import Load, load
from bench.measure import Result, median, percentile
from tests.web_process import COOKIE

QUEUES = 1000
CONCURRENCY = 8
TIMES_FASTER = 10
PAGE_BYTES = 150 * 1024


def run(*, quick: bool) -> Result:
    seconds = 5.0 if quick else 20.0
    result = Result("overview", f"The overview of {QUEUES:,} queues, {CONCURRENCY} requests at once")
    result.setting = {"queues": QUEUES, "concurrency": CONCURRENCY, "seconds": seconds}
    with stage.queues(QUEUES, full=QUEUES // 10, jobs=200) as store:
        with stage.house(store, QUEUES) as web:
            headers = {"Cookie": f"{COOKIE}={web.cookies['viewer']}", "Accept-Encoding": "br, gzip"}
            url = f"http://127.0.0.1:{web.port}/queues"
            ours = _loaded(url, seconds, headers)
        with stage.board(store, QUEUES) as address:
            theirs = _loaded(f"{address}/api/queues", seconds)
    _rows(result, "Unstall /queues", ours)
    _rows(result, "bull-board /api/queues", theirs)
    result.row("Unstall page, compressed", ours.bytes / 1024, "KB")
    result.row("bull-board answer", theirs.bytes / 1024, "KB", "JSON, as it sends it")
    times = ours.per_second / theirs.per_second
    result.goal(f"requests per second, ≥ {TIMES_FASTER} × bull-board", times, least=TIMES_FASTER)
    result.goal("compressed page ≤ 150 KB", ours.bytes / 1024, most=PAGE_BYTES / 1024)
    return result


def _loaded(url: str, seconds: float, headers: dict[str, str] | None = None) -> Load:
    asyncio.run(load(url, concurrency=1, seconds=1.0, headers=headers))  # warm
    return asyncio.run(load(url, concurrency=CONCURRENCY, seconds=seconds, headers=headers))


def _rows(result: Result, name: str, measured: Load) -> None:
    result.row(f"{name}: rate", measured.per_second, "requests/s")
    result.row(f"{name}: median", median(measured.times_ms), "ms")
    result.row(f"{name}: p99", percentile(measured.times_ms, 0.99), "ms")
