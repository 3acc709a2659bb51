"""/logs: nothing jumps while it loads, and its menus stay in the window and tell names apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.apart.test_logs import of
from tests.browser.log_site import LogSite, texts
from tests.support.waiting import until

pytestmark = pytest.mark.browser
Open = Callable[..., Page]

FOLDER = "/srv/shop/releases/20261118-1/var/unstall/logs"
SHIFT_MOST = 0.02
_WATCHED = """
window.shifts = [];
const named = ({ node }) => node?.className || node?.nodeName;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.shifts.push([one.value, one.sources.map(named)]);
}).observe({ type: "layout-shift", buffered: true });
"""
_FITS = "(one) => one.scrollWidth <= one.clientWidth + 1 && one.getBoundingClientRect().right <= innerWidth"


def written(site: LogSite, server: str) -> None:
    for name in ("imports", "mail", "payments", "payments-eu"):
        site.writer(server).write(*(f"INFO {name} {number}" for number in range(40)), file=f"{FOLDER}/{name}.log")


@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_jumps_while_it_loads(open_page: Open, site: LogSite, width: int) -> None:
    written(site, f"still-{width}")
    page = open_page("/queues", site=site, width=width)
    page.add_init_script(_WATCHED)
    page.goto(f"{site.url}/logs")
    until(lambda: len(texts(page)) >= 160, 30, "the lines stand on the page")
    expect(page.locator("summary", has_text="file").first).to_be_visible()
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, _ in shifts) <= SHIFT_MOST, shifts


@pytest.mark.parametrize("width", [1280, 900, 360])
def test_a_menu_of_labels_stays_in_the_window_and_tells_its_values_apart(
    open_page: Open, site: LogSite, width: int
) -> None:
    written(site, f"menu-{width}")
    page = open_page(of(f"menu-{width}"), site=site, width=width)
    for summary in page.locator(".log-label summary").all():
        summary.click()
        menu = page.locator(".log-label[open] > div")
        frame = menu.bounding_box()
        assert frame
        assert frame["x"] >= 0
        assert frame["x"] + frame["width"] <= width
        for value in menu.locator("label span").all():
            assert value.evaluate(_FITS)
        summary.click()
    page.locator("summary", has_text="file").click()
    page.get_by_role("checkbox", name="payments.log").check()
    chosen = page.locator(".log-label[data-chosen] summary", has_text="file")
    expect(chosen).to_have_text("file: payments.log")
    assert chosen.evaluate(_FITS)
