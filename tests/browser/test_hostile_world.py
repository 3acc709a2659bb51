"""No planted script runs on any page, for any role, in a Chromium that ignores the content policy.

So what is tried is that everything is escaped; the policy would hold back what is not. That the probe hears what runs
is tried on a page that escapes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from dashboard.accounts.roles import UserRole
from tests.browser import hostile_world
from tests.browser.hostile_world import PAYLOADS
from tests.support.processes.site import Site
from tests.support.processes.web_process import COOKIE
from tests.support.stores.stores import Store
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
PAGES = (
    *("/queues", "/stuck", "/stuck/n8n", "/search", "/audit", "/scanners", "/scanners/policies", "/servers", "/alerts"),
    *("/logs", "/idempotency", "/tuning", "/tuning/drill", "/docs", "/api", "/users", "/tokens", "/password"),
)
OF_A_SHAPE = 3  # pages that differ in names and numbers alone
AT_MOST = 240  # pages of one role; an admin has the most shapes
# What a page links to, also by the parts that it loads by itself.
_LINKS = """() => ["href", "hx-get", "data-chart", "action"].flatMap((name) =>
    [...document.querySelectorAll(`[${name}]`)].map((one) => one.getAttribute(name)))"""
# Markup of ours has none of these.
_PLANTED = """() => [...document.querySelectorAll("img[src=x], iframe, [onerror], [onload], [onfocus], [onclick]"
    + ", [srcdoc], a[href^='javascript:'], [action^='javascript:'], main script:not([src])")]
    .map((one) => one.outerHTML.slice(0, 200))"""


@dataclass(slots=True)
class Probe:
    """Records a script that runs, a dialog, and a request to another host."""

    home: str
    heard: list[str] = field(default_factory=list)

    def context(self, browser: Browser, cookie: str) -> BrowserContext:
        made = browser.new_context(base_url=self.home, bypass_csp=True)
        made.set_default_timeout(60_000)
        made.expose_binding("hostile", lambda source: self.heard.append(f"script: {source['page'].url}"))
        if cookie:
            made.add_cookies([{"name": COOKIE, "value": cookie, "url": self.home}])
        return made

    def watch(self, page: Page) -> None:
        page.on("dialog", lambda dialog: (self.heard.append(f"dialog: {page.url}"), dialog.dismiss()))
        page.on("request", lambda request: self._request(request.url))

    def _request(self, url: str) -> None:
        if not url.startswith((self.home, "data:", "blob:", "about:")):
            self.heard.append(f"request: {url}")


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Site, list[str]]]:
    with ExitStack() as stack:
        queues, state = stack.enter_context(Store()), stack.enter_context(Store())
        site = stack.enter_context(Site(queues, state))
        first = hostile_world.populate(site, stack)
        last = first[-1].encode()
        until(lambda: last in site.web.get("/queues", "viewer").body, 60, "the queues are found")
        yield site, first


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_probe_hears_each_payload_where_nothing_is_escaped(
    world: tuple[Site, list[str]], browser: Browser, payload: str
) -> None:
    probe = Probe(world[0].url)
    context = probe.context(browser, "")
    try:
        page = context.new_page()
        page.route("**/control", lambda route: route.fulfill(body=_unescaped(payload), content_type="text/html"))
        page.goto("/control")
        if links := page.locator("a[href^='javascript:']").all():
            links[0].click()
        until(lambda: page.title() == "" and probe.heard, 10, payload)
    finally:
        context.close()


def _unescaped(payload: str) -> str:
    """Builds a page with the payload in a text, an attribute and a link."""
    head = "<head><script src=/static/django_htmx/htmx-2.min.js></script></head>"
    return f'<html>{head}<body>{payload}<input value="{payload}"><a href="{payload}">link</a></body></html>'


@pytest.mark.parametrize("role", UserRole, ids=str)
def test_no_script_runs_on_any_page(world: tuple[Site, list[str]], browser: Browser, role: UserRole) -> None:
    site, first = world
    probe = Probe(site.url)
    context = probe.context(browser, site.cookie(role.value))
    try:
        visited = _walk(context.new_page(), probe, [*PAGES, *first, *hostile_world.searches()])
    finally:
        context.close()
    assert probe.heard == []
    shapes = {_shape(url) for url in visited}
    assert {"/queues/main/*/jobs/*", "/servers/*", "/idempotency/keys/*"} <= shapes
    acts = [shape for shape in shapes if shape.startswith("/act?act=&back=")]  # the dialogs that pages offer
    assert bool(acts) is (role is not UserRole.VIEWER), sorted(shapes)


def _walk(page: Page, probe: Probe, first: list[str]) -> list[str]:
    """Visits the given addresses and what they link to, some of each shape; returns those that were opened."""
    probe.watch(page)
    waiting, seen, shapes = list(first), set(first), Counter[str]()
    visited: list[str] = []
    planted: dict[str, list[str]] = {}
    while waiting and len(visited) < AT_MOST + len(first):
        url = waiting.pop(0)
        answer = page.goto(url, wait_until="load")
        assert answer is not None, url
        assert answer.status != 500, url
        visited.append(url)
        if found := page.evaluate(_PLANTED):
            planted[url] = found
        for link in page.evaluate(_LINKS):
            target = _ours(page.url, link or "")
            if target and target not in seen and shapes[_shape(target)] < OF_A_SHAPE:
                seen.add(target)
                shapes[_shape(target)] += 1
                waiting.append(target)
    assert planted == {}
    return visited


def _ours(base: str, link: str) -> str:
    """Returns the path of a link that stays here and opens a page; "" of any other."""
    parts = urlsplit(urldefrag(urljoin(base, link))[0])
    home = urlsplit(base)
    if (parts.scheme, parts.netloc) != (home.scheme, home.netloc):
        return ""
    if parts.path.startswith(("/static/", "/live/", "/logout", "/audit/export", "/theme")):
        return ""
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _shape(url: str) -> str:
    """Returns the address without names, numbers and values."""
    path, _, query = url.partition("?")
    path = re.sub(r"^/queues/main/[^/]+", "/queues/main/*", path)
    path = re.sub(r"/(jobs|keys|servers|nowhere)/[^/]+", r"/\1/*", path)
    names = sorted({part.partition("=")[0] + "=" for part in query.split("&") if part})
    return re.sub(r"\d+", "#", path) + (f"?{'&'.join(names)}" if names else "")
