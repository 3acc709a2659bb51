"""Real Chromium on the real product. A page that complains in its console fails its test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Request, expect, sync_playwright

from tests.browser import yard
from tests.browser.log_site import LogSite, log_site
from tests.browser.seeds import Seeds, seed
from tests.support.processes.fleet import Fleet
from tests.support.processes.site import Site
from tests.support.processes.web_process import COOKIE
from tests.support.stores.stores import Store
from tests.support.waiting import until

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PATIENCE_MS = 30_000  # the first page of a cold Chromium takes 13 s when both cores are busy
_EXPECT_MS = 20_000
_HEIGHT = 800
# A channel to look at, which is told of nothing that happens here.
_TOLD = '[[alerts.webhooks]]\nname = "ops"\nurl = "http://127.0.0.1:9/hook"\nkinds = ["gate"]\n'
# htmx calls a request that it gave up for a newer one an error; what truly failed says more than this. So does a page
# whose server is away; a live part that a busy machine answered too late is asked for again.
_GIVEN_UP = ("htmx:sendAbort", "htmx:afterRequest", "htmx:timeout")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests in here: while Playwright's loop runs, no asyncio test can run in this process."""
    expect.set_options(timeout=_EXPECT_MS)
    with sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, _NAMES)), None) or playwright.chromium.executable_path
        if not Path(program).exists():
            pytest.skip("Chromium is missing: apt install chromium, or playwright install chromium")
        chromium = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def live_site() -> Iterator[Site]:
    """Web and scheduler on stores of their own (`live_site.queues`), for all tests in here.

    Starting it costs seconds, so nothing is emptied between tests: each one makes queues of its own.
    """
    with Store() as queues, Store() as state, Site(queues, state, settings=_TOLD) as site:
        yield site


@pytest.fixture(scope="package")
def seeds(live_site: Site, fleet: Fleet) -> Iterator[Seeds]:
    """`live_site` with a house full of queues that no test changes."""
    with ExitStack() as stack:
        sown = seed(live_site.queues, fleet, stack)
        fleet.reset()
        until(lambda: _lists(live_site, sown), 30, "all queues are found")
        yield sown


def _lists(site: Site, seeds: Seeds) -> bool:
    page = site.web.get("/queues", "viewer").body
    return all(queue.encode() in page for queue in seeds.queues)


@pytest.fixture(scope="package")
def servers(live_site: Site) -> tuple[str, str]:
    """The addresses of a server of `live_site` with everything, and of one whose names mean harm."""
    made = yard.populate(live_site)
    until(lambda: all(live_site.web.get(one, "viewer").status == 200 for one in made), 30, "both are known")
    return made


@pytest.fixture(scope="package")
def site() -> Iterator[LogSite]:
    """A web process for the pages of logs; a test writes to servers of its own, and leaves a Loki that answers."""
    with log_site() as made:
        yield made


@pytest.fixture
def own_site(valkey: Store, state_store: Store) -> Iterator[Site]:
    """One for a single test that breaks something, or that must be alone."""
    with Site(valkey, state_store) as site:
        yield site


class Complaints(list[str]):
    """What went wrong in the browser: errors in the console (the CSP's too), exceptions, requests to other hosts."""

    def watch(self, page: Page, home: str) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.append(f"exception: {error}"))
        page.on("request", lambda request: self._request(request, home))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_GIVEN_UP):
            self.append(f"{message.location.get('url', '')}: {message.text}")

    def _request(self, request: Request, home: str) -> None:
        if not request.url.startswith((home, "data:", "blob:")):
            self.append(f"asked a stranger: {request.url}")


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """Empty at the end, or the test fails; a test that expects one clears it."""
    found = Complaints()
    yield found
    assert not found, "\n".join(found)


@pytest.fixture
def open_page(
    request: pytest.FixtureRequest, browser: Browser, complaints: Complaints
) -> Iterator[Callable[..., Page]]:
    """`open_page("/queues", person="operator", theme="dark", width=360, javascript=False)` → a Page that has loaded.

    It opens `live_site` unless `site=` is another one. With person="" nobody is logged in. Each call is a browser
    of its own, with its own cookies.
    """
    contexts: list[BrowserContext] = []

    def page(
        path: str,
        *,
        site: Site | LogSite | None = None,
        person: str = "admin",
        theme: str = "light",
        width: int = 1280,
        javascript: bool = True,
        **more: Any,
    ) -> Page:
        home = site or request.getfixturevalue("live_site")
        context = browser.new_context(
            base_url=home.url,
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": _HEIGHT},
            java_script_enabled=javascript,
            **more,
        )
        contexts.append(context)
        context.set_default_timeout(_PATIENCE_MS)
        if person:
            context.add_cookies([{"name": COOKIE, "value": home.cookie(person), "url": home.url}])
        opened = context.new_page()
        complaints.watch(opened, home.url)
        opened.goto(path, wait_until="load")
        return opened

    yield page
    for context in contexts:
        for opened in context.pages:
            with suppress(Error):  # a context that is closed while a page is on its way may never be
                opened.wait_for_load_state("load")
        context.close()
