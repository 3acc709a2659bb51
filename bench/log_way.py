"""A line on its way from a worker's file: until a program that reads the stream has it, until Chromium has drawn it.

Both at once, in the same run: a reader of the stream, and a tab with the page of logs in which an observer looks at
what is put into the page. All of it goes by the one clock of this machine, which each line carries.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any

from playwright.async_api import Page, async_playwright

from bench.log_streams import opened, until_late
from bench.measure import Result, median, percentile
from bench.stage import NoPeer
from tests.support.logs import shipping
from tests.support.processes.web_process import COOKIE, WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until

LINES, QUICK_LINES = 600, 60
PAUSE = 0.05
P99_MS = 1000
LATE_SECONDS = 20
PAGE_MS = 60_000  # until the page shows its first line
_PROGRAMS = ("chromium-headless-shell", "chromium")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
# When each line was first in the page, and when it was written, both in ms since 1970. A line comes as an element.
_OBSERVE = r"""() => {
  window.drawn = new Map();
  new MutationObserver((changes) => {
    const now = Date.now();
    for (const { addedNodes } of changes)
      for (const node of addedNodes)
        for (const [, written] of node.textContent.matchAll(/written at (\d{13})/g))
          window.drawn.set(written, [...(window.drawn.get(written) || []), now - Number(written)]);
  }).observe(document.querySelector("[data-rows]"), { childList: true, subtree: true });
}"""
_DRAWN = "() => [...window.drawn.values()].flat()"


def run(*, quick: bool) -> Result:
    lines = QUICK_LINES if quick else LINES
    result = Result("log_way", "A line on its way from a worker's file to a reader of its stream and onto a page")
    result.setting = {"lines": lines, "pause": PAUSE}
    with Store("valkey") as state:
        environ = {"UNSTALL_STATE_URL": state.url, "UNSTALL_REDIS_URL": state.url.replace("/0", "/1")}
        with WebProcess(environ) as web:
            asyncio.run(_from_a_file(web, state, lines, result))
    return result


async def _from_a_file(web: WebProcess, state: Store, lines: int, result: Result) -> None:
    """The whole way: file, monitor, state store, web process, reader and page."""
    with tempfile.TemporaryDirectory(prefix="unstall-bench-") as folder:
        file = Path(folder) / "worker.log"
        file.touch()
        with shipping.monitor(state, file):
            await asyncio.to_thread(until, partial(_is_followed, file, state), 30, "the monitor ships")
            times: list[float] = []
            [tab] = await opened(web, 1, times)
            async with _page(web) as page:
                with file.open("a", buffering=1) as log:
                    for number in range(lines):
                        log.write(f"written at {time_ns()}: order {number} was charged in 18 ms\n")
                        await asyncio.sleep(PAUSE)
                await until_late(lambda: len(times) >= lines, LATE_SECONDS)
                drawn = await _drawn(page, lines)
            tab.leave()
    for name, found in (("to a stream", times), ("to the page in Chromium", drawn)):
        result.row(f"from a worker's file {name}, p50", median(found), "ms", f"a line every {PAUSE * 1000:g} ms")
        result.row(f"from a worker's file {name}, p99", percentile(found, 0.99), "ms")
        result.goal(f"all lines of the file came {name}, once", lines - len(found), least=0, most=0)
        result.goal(f"from the file {name}: p99 ≤ {P99_MS:,} ms", percentile(found, 0.99), most=P99_MS)


def _is_followed(file: Path, state: Store) -> bool:
    """A file that was there before the monitor is followed from its end on, once it was found."""
    shipping.append(file, "one more line")
    return bool(shipping.texts(state))


@asynccontextmanager
async def _page(web: WebProcess) -> AsyncIterator[Page]:
    """The page of logs, which shows what is there and follows what comes."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise NoPeer("Chromium is not installed. Install chromium-headless-shell, or chromium.")
    url = f"http://127.0.0.1:{web.port}"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        context = await browser.new_context()
        await context.add_cookies([{"name": COOKIE, "value": web.cookies["viewer"], "url": url}])
        page = await context.new_page()
        await page.goto(f"{url}/logs", timeout=PAGE_MS)
        await page.locator("[data-rows] .said").first.wait_for(timeout=PAGE_MS)
        await page.evaluate(_OBSERVE)
        yield page
        await browser.close()


async def _drawn(page: Page, lines: int) -> list[float]:
    """Of each time that a line was put into the page, how long that was after it was written."""
    found: list[Any] = []
    for _ in range(int(LATE_SECONDS / 0.1)):
        found = await page.evaluate(_DRAWN)
        if len(found) >= lines:
            break
        await asyncio.sleep(0.1)
    return [float(one) for one in found]
