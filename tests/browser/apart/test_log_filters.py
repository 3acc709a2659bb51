"""Filters that are switched while answers to the earlier one are late: of those no line shows, whoever is late.

One guard alone must do, so each test takes the others away: a proxy keeps on its way what the server has sent, a source
is slow, and a browser goes on hearing a stream that it was told to close.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from secrets import token_hex

import pytest
from playwright.sync_api import Page

from tests.browser.log_site import LogSite, texts
from tests.fault.proxy import Proxy
from tests.support.logs.loki_double import Asked
from tests.support.waiting import until

pytestmark = pytest.mark.browser
Open = Callable[..., Page]

_LINES = 30  # of each kind
# Every line that ever stood on the page, with what was asked for at that moment.
_WITNESS = """() => {
  window.seen = [];
  const note = (row) => row.item && window.seen.push([location.search, row.item.text]);
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(note)))
    .observe(document.querySelector("[data-rows]"), {childList: true});
}"""
# Counts the streams that are still open when one more is.
_COUNTS = """
window.streams = [];
window.beside = 0;
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    window.beside += window.streams.filter((one) => one.readyState !== EventSource.CLOSED).length;
    window.streams.push(this);
  }
};
"""
# It hears a stream that it was told to close until the server ends it. `late`: so much came of it.
_HEARS_ON = """
window.late = 0;
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    this.addEventListener("error", (event) => this.left && (super.close(), event.stopImmediatePropagation()));
    this.addEventListener("lines", () => (window.late += Number(this.left ?? 0)));
  }
  close() { this.left = true; }
};
"""


def searches(asked: Iterable[Asked]) -> list[Asked]:
    """Those of a stream that begins; what is new is asked for forward, for all who follow it."""
    return [one for one in asked if one.params.get("direction") == "backward"]


@pytest.fixture
def proxy(site: LogSite) -> Iterator[Proxy]:
    with Proxy(site.web.port) as between:
        yield between


def choose(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Contains", exact=True).fill(text)


def shows(page: Page, *kinds: str) -> None:
    wanted = sorted(f"{kind} {number}" for kind in kinds for number in range(_LINES))
    until(lambda: sorted(texts(page)) == wanted, 30, f"all lines of {kinds} and no other stand on the page")


def stale(page: Page) -> list[list[str]]:
    """Lines that stood on the page under a filter which they do not fit."""
    seen: list[list[str]] = page.evaluate("window.seen")
    assert seen
    return [[asked, line] for asked, line in seen if asked.rpartition("include=")[2] not in ("", line.split(" ")[0])]


def in_the_end(page: Page, write: Callable[[str], None], line: str) -> None:
    """Once this one stands on the page, whatever came before it does too."""
    write(line)
    until(lambda: line in texts(page), 30, "the last filter goes on")


@pytest.mark.parametrize("hears_on", [False, True], ids=["closes", "hears on"])
def test_what_was_sent_for_an_earlier_filter_and_comes_late_is_not_shown(
    proxy: Proxy, open_page: Open, site: LogSite, hears_on: bool
) -> None:
    writer = site.writer(f"late-{token_hex(4)}")
    writer.write(*(f"{kind} {number}" for number in range(_LINES) for kind in ("tortoise", "hare")))
    page = open_page("/login", site=replace(site, by_way_of=proxy.port))
    page.add_init_script(_HEARS_ON if hears_on else _COUNTS)
    page.goto(f"/logs?source=servers&label=server%3D{writer.server}")
    shows(page, "tortoise", "hare")
    page.evaluate(_WITNESS)
    proxy.hold(b"/live/logs?g=2&")  # the stream, and no other that names its address as where it comes from
    choose(page, "tortoise")
    until(lambda: proxy.held and b"tortoise 29" in proxy.held[0].come, 30, "the answer is on its way")
    choose(page, "hare")
    shows(page, "hare")
    if not hears_on:
        assert page.evaluate("window.beside") == 0, "the stream of each earlier filter was closed first"
        until(lambda: proxy.held[0].is_left, 5, "and with it the connection")
    proxy.let_go()
    if hears_on:
        until(lambda: page.evaluate("window.late"), 15, "lines of the earlier filter have come to the page")
    in_the_end(page, writer.write, "hare in the end")
    assert stale(page) == []


def test_a_slow_answer_to_an_earlier_filter_is_given_up_at_its_source(open_page: Open, site: LogSite) -> None:
    """Also when the page hears on: the server ends the stream, and the question that it was waiting for."""
    now, app = time.time_ns(), f"race-{token_hex(4)}"
    for kind in ("tortoise", "hare"):
        site.loki.push({"app": app}, *((now - number, f"{kind} {number}") for number in range(_LINES)))
    page = open_page("/login", site=site)
    page.add_init_script(_HEARS_ON)
    page.goto(f"/logs?source=loki&label=app%3D{app}")
    shows(page, "tortoise", "hare")
    page.evaluate(_WITNESS)
    site.loki.hold("tortoise", 60)
    before = len(searches(site.loki.abandoned))
    for turn in range(1, 4):
        asked = len(searches(site.loki.asked_for("tortoise")))
        choose(page, "tortoise")
        until(lambda: len(searches(site.loki.asked_for("tortoise"))) > asked, 30, "the slow question is asked")  # noqa: B023
        choose(page, "hare")
        shows(page, "hare")
        until(lambda: len(searches(site.loki.abandoned)) == before + turn, 4, "the server hangs up on the source")  # noqa: B023
    in_the_end(page, lambda line: site.loki.push({"app": app}, (time.time_ns(), line)), "hare in the end")
    assert stale(page) == []
    site.loki.hold("tortoise", 0)


def test_older_lines_of_an_earlier_filter_that_come_late_are_not_shown(
    proxy: Proxy, open_page: Open, site: LogSite
) -> None:
    writer = site.writer(f"late-{token_hex(4)}")
    writer.write(*(f"hare {number}" for number in range(_LINES)), *(f"tortoise {number}" for number in range(700)))
    home = replace(site, by_way_of=proxy.port)
    page = open_page(f"/logs?source=servers&label=server%3D{writer.server}&include=tortoise", site=home)
    until(lambda: len(texts(page)) >= 500, 30, "the newest stand on the page")
    page.evaluate(_WITNESS)
    proxy.hold(b"GET /live/logs/older?")

    def asked() -> bool:
        page.get_by_role("region", name="Log lines").evaluate("(box) => { box.scrollTop = 0; }")
        return bool(proxy.held) and b"tortoise" in proxy.held[0].come

    until(asked, 30, "older lines are on their way")
    choose(page, "hare")
    shows(page, "hare")
    until(lambda: proxy.held[0].is_left, 5, "the page has given them up")
    proxy.let_go()
    in_the_end(page, writer.write, "hare in the end")
    assert stale(page) == []
