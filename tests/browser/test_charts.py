"""Charts under the strict policy: drawn in both themes, switched without a page load, and a table for everybody."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.browser.seeds import Seeds
from tests.support.waiting import until

Open = Callable[..., Page]
_BARS = ".chart .barlayer .point path"
_HAS_ROOM_BELOW = """(chart) => {
  const [title, ticks] = [".xtitle", ".xtick"].map((name) => [...chart.querySelectorAll(name)]
    .map((one) => one.getBoundingClientRect()));
  const bottom = chart.querySelector(".main-svg").getBoundingClientRect().bottom;
  return title[0].bottom <= bottom && ticks.every((one) => one.bottom <= title[0].top + 1);
}"""
_ENDS = "(chart) => [chart.figure.data[0].x[0], chart.figure.data[0].x.at(-1)]"  # ms


def _colours(page: Page) -> set[str]:
    return set(page.locator(_BARS).evaluate_all("(bars) => bars.map((bar) => getComputedStyle(bar).fill)"))


def _drawn(page: Page) -> None:
    expect(page.locator(".chart .main-svg").first).to_be_visible()
    expect(page.locator(_BARS).first).to_be_attached()


def test_the_chart_takes_the_colours_of_the_theme(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.mail}?tab=history", theme="light")
    _drawn(page)
    light = until(lambda: _colours(page), what="a chart that is not just being drawn")
    assert len(light) == 2, "completed and failed"
    page.keyboard.press("t")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator(_BARS).first).not_to_have_css("fill", next(iter(light)))
    assert not _colours(page) & light


def test_the_chart_fits_on_a_phone(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.mail}?tab=history", theme="dark", width=360)
    _drawn(page)
    chart = until(page.locator(".chart .main-svg").first.bounding_box, what="a chart that is not just being drawn")
    assert chart["width"] <= 360


def test_another_range_comes_without_a_page_load(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.mail}?tab=history")
    _drawn(page)
    page.evaluate("window.marked = true")
    page.locator("#range-4").click()
    page.wait_for_url("**hours=4*")
    expect(page.locator("#range-4")).to_have_attribute("aria-current", "true")
    _drawn(page)
    assert page.evaluate("window.marked === true"), "the page was not loaded again"
    page.go_back()
    expect(page.locator("#range-1")).to_have_attribute("aria-current", "true")


def test_without_javascript_the_table_has_the_numbers(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.mail}?tab=history", javascript=False)
    page.locator(".numbers summary").click()
    rows = page.locator(".numbers tbody tr")
    expect(rows.nth(1)).to_be_visible()
    assert rows.count() >= 59
    assert rows.nth(5).locator("td").nth(1).inner_text().isdigit()
    page.locator("#range-24").click()
    page.wait_for_url("**hours=24*")
    expect(page.locator("#range-24")).to_have_attribute("aria-current", "true")


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_a_chart_says_what_the_readers_clock_says(
    open_page: Open, seeds: Seeds, servers: tuple[str, str], zone: str
) -> None:
    page = open_page(f"{seeds.mail}?tab=history", timezone_id=zone)
    _tells_the_time_of(page, zone)
    page.goto(servers[0])
    _tells_the_time_of(page, zone)


def _tells_the_time_of(page: Page, zone: str) -> None:
    """Under the pointer is a moment of the figure as this zone writes it, and the axis names the zone."""
    chart = page.locator(".chart")
    expect(chart.locator(".main-svg").first).to_be_visible()
    hovered = until(lambda: _hovered(page), what="a time under the pointer")
    shown = datetime.strptime(hovered, "%Y-%m-%d %H:%M").replace(tzinfo=ZoneInfo(zone))
    first, last = (datetime.fromtimestamp(at / 1000, ZoneInfo(zone)) for at in chart.evaluate(_ENDS))
    minute = timedelta(minutes=1)  # the words leave the seconds out
    assert first - minute <= shown <= last + minute, f"{shown} of {first} to {last}"
    name = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")  # as this browser spells it
    expect(chart.locator(".xtitle")).to_have_text(f"Time zone: {name}")
    assert chart.evaluate(_HAS_ROOM_BELOW), "the name of the zone is cut off or stands on the ticks"


def _hovered(page: Page) -> str:
    page.locator(".chart .nsewdrag").first.hover()
    words = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", " ".join(page.locator(".hoverlayer text").all_text_contents()))
    return words[0] if words else ""
