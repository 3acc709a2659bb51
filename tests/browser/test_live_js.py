"""static/js/live.js in a real browser: ticks, reconnects, hidden tabs, and streams that do not flow."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route

from tests.support.processes.site import Site

pytestmark = pytest.mark.browser
Open = Callable[..., Page]

# Writes down what live.js says, and which streams it opens and closes.
_RECORD = """
window.heard = [];
window.streams = {opened: 0, closed: 0};
for (const name of ["arrived", "tick", "stalled", "flowing"])
  document.addEventListener(`unstall:${name}`, (e) => window.heard.push({name, ...e.detail}), true);
const Real = window.EventSource;
window.EventSource = class extends Real {
  constructor(url) { super(url); window.streams.opened += 1; }
  close() { window.streams.closed += 1; super.close(); }
};
"""
_HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def recorded(open_page: Open) -> Callable[..., Page]:
    """A page whose live.js is watched. `answer`: what takes the place of the server's stream."""

    def page(answer: Callable[[Route], object] | None = None, **more: object) -> Page:
        opened = open_page("/queues", **more)
        opened.add_init_script(_RECORD)
        if answer:
            opened.route("**/live/events", answer)
        opened.reload()
        return opened

    return page


def hears(page: Page, name: str, *, times: int = 1, seconds: float = 10) -> list[dict[str, object]]:
    """What was said under this name, once it was said so often."""
    page.wait_for_function(
        "([name, times]) => window.heard.filter((h) => h.name === name).length >= times",
        arg=[name, times],
        timeout=seconds * 1000,
    )
    found: list[dict[str, object]] = page.evaluate("(name) => window.heard.filter((h) => h.name === name)", name)
    return found


def test_each_snapshot_becomes_a_tick(recorded: Open) -> None:
    ticks = hears(recorded(), "tick", times=3)
    numbers = [tick["number"] for tick in ticks]
    assert numbers == sorted(numbers, key=int)  # type: ignore[call-overload]
    assert not ticks[-1]["stale"]


def test_one_tab_has_one_stream(recorded: Open) -> None:
    page = recorded()
    hears(page, "tick", times=3)
    assert page.evaluate("window.streams.opened") == 1


def test_what_is_cancelled_on_arrival_is_no_tick(recorded: Open) -> None:
    page = recorded()
    hears(page, "tick")
    page.evaluate("document.body.addEventListener('unstall:arrived', (e) => e.preventDefault())")
    page.evaluate("window.heard.length = 0")
    hears(page, "arrived", times=3)  # a tick that was under way has come by then
    page.evaluate("window.heard.length = 0")
    hears(page, "arrived", times=3)
    assert page.evaluate("window.heard.filter((h) => h.name === 'tick').length") == 0


def test_a_hidden_tab_gives_its_stream_back_and_takes_it_again_when_seen(recorded: Open) -> None:
    page = recorded()
    hears(page, "tick")
    page.evaluate(_HIDE, True)
    page.wait_for_function("() => window.streams.closed === 1")
    page.evaluate("window.heard.length = 0")
    page.evaluate(_HIDE, False)
    hears(page, "tick")
    assert page.evaluate("window.streams.opened") == 2


def test_a_glance_at_another_tab_costs_no_reconnect(recorded: Open) -> None:
    page = recorded()
    hears(page, "tick")
    page.evaluate(_HIDE, True)
    page.evaluate(_HIDE, False)
    page.evaluate("window.heard.length = 0")
    hears(page, "tick", times=2)
    assert page.evaluate("window.streams.opened") == 1


def test_a_restarted_server_is_found_again(recorded: Open, own_site: Site, complaints: list[str]) -> None:
    page = recorded(site=own_site)
    hears(page, "tick")
    own_site.web.signal(signal.SIGTERM)
    own_site.web.wait(5)
    own_site.web.start()
    page.evaluate("window.heard.length = 0")
    hears(page, "tick", seconds=90)  # it asks less and less often while nobody answers
    page.close()
    complaints.clear()  # the browser reports each attempt that met nobody


def test_a_proxy_that_holds_the_stream_back_is_said(recorded: Open) -> None:
    page = recorded(lambda route: None)  # never answered
    (stalled,) = hears(page, "stalled", seconds=20)
    assert stalled["kind"] == "buffered"
    assert "proxy" in str(stalled["reason"])
    page.wait_for_function("() => document.getElementById('fresh').dataset.tone === 'stale'")


def test_a_refused_stream_is_asked_for_again_and_again(recorded: Open, complaints: list[str]) -> None:
    page = recorded(lambda route: route.fulfill(status=503, body="full"))
    page.wait_for_function("() => window.streams.opened >= 3", timeout=15_000)
    assert {stalled["kind"] for stalled in hears(page, "stalled")} == {"refused"}
    page.close()
    complaints.clear()  # the browser reports each refusal


def test_who_is_signed_out_is_told_and_asks_no_more(recorded: Open) -> None:
    farewell = 'event: bye\ndata: {"reason": "logged-out", "retry": 1}\n\n'
    page = recorded(lambda route: route.fulfill(status=200, content_type="text/event-stream", body=farewell))
    (stalled,) = hears(page, "stalled")
    assert stalled["kind"] == "logged-out"
    page.evaluate(_HIDE, True)
    page.evaluate(_HIDE, False)
    page.wait_for_timeout(1500)  # longer than the first pause before a reconnect
    assert page.evaluate("window.streams.opened") == 1
