"""What the frame's scripts do: keyboard, palette, theme, dialogs, and when fragments may refresh."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.accessibility import barriers
from tests.support.waiting import until

pytestmark = pytest.mark.browser
Open = Callable[..., Page]

# Counts refreshes from here on; snapshots come from the test alone.
_LISTEN = """() => {
  window.refreshed = 0;
  window.number = 1000000;
  document.body.addEventListener("unstall:refresh", () => window.refreshed += 1);
  window.snapshot = () => {
    const before = window.refreshed;
    const detail = {number: window.number += 1, taken_at: 0, now: Date.now(), stale: false, reason: "", problems: []};
    document.body.dispatchEvent(new CustomEvent("unstall:tick", {detail}));
    return window.refreshed - before;
  };
}"""
_PROBE = """() => {
  const probe = document.createElement("div");
  probe.id = "probe";
  probe.setAttribute("hx-get", "/banner?probe");
  probe.setAttribute("hx-trigger", "unstall:refresh from:body");
  probe.setAttribute("hx-swap", "none");
  document.querySelector("main").append(probe);
  htmx.process(probe);
  // In the same instant: on a busy machine the rest is over before the test could ask.
  probe.addEventListener("htmx:afterRequest", () => queueMicrotask(() => window.afterwards = window.snapshot()));
}"""
_ROWS = """() => document.querySelector("main").insertAdjacentHTML("beforeend", [1, 2, 3, 4].map((n) =>
  `<p data-row><input type="checkbox" data-select aria-label="job ${n}"><a href="#row-${n}">job ${n}</a></p>`).join(""))
"""


def listening(page: Page) -> Page:
    page.route("**/js/live*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.reload()
    page.evaluate(_LISTEN)
    return page


def refreshed(page: Page) -> int:
    """How often the page refreshed for one more snapshot."""
    return int(page.evaluate("window.snapshot()"))


def checked(page: Page) -> list[bool]:
    return [box.is_checked() for box in page.locator("[data-select]").all()]


def test_a_snapshot_refreshes_the_page_once(open_page: Open) -> None:
    page = listening(open_page("/users"))
    assert refreshed(page) == 1
    page.evaluate("window.number -= 1")
    assert refreshed(page) == 0, "nothing new"


def test_nothing_moves_while_somebody_selects_or_decides(open_page: Open) -> None:
    page = listening(open_page("/users"))
    page.evaluate(_ROWS)
    page.locator("[data-select]").first.check()
    assert refreshed(page) == 0
    expect(page.locator("#fresh")).to_have_attribute("title", "Paused: rows are selected")
    page.locator("[data-select]").first.uncheck()
    until(lambda: page.evaluate("window.refreshed") == 1, what="what came meanwhile is shown, without a newer one")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    assert refreshed(page) == 0
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    until(lambda: page.evaluate("window.refreshed") == 2, what="the page goes on")


def test_a_chosen_rate_is_kept_by_this_browser(open_page: Open) -> None:
    page = open_page("/users")
    page.get_by_label("Refresh").select_option("off")
    page.reload()
    expect(page.get_by_label("Refresh")).to_have_value("off")
    listening(page)
    assert refreshed(page) == 0
    expect(page.locator("#fresh")).to_have_attribute("data-tone", "paused")
    page.keyboard.press("r")
    expect(page.get_by_label("Refresh")).to_have_value("live")


def test_requests_never_overlap_and_rest_after_an_error(open_page: Open, complaints: list[str]) -> None:
    page = listening(open_page("/users"))
    held: list[Route] = []
    page.route("**/banner?probe", lambda route: held.append(route))  # noqa: PLW0108 - a builtin cannot be marked
    page.evaluate(_PROBE)
    assert refreshed(page) == 1
    assert refreshed(page) == 0, "the first has no answer yet"
    until(lambda: held or page.evaluate("0"), what="the request was sent")  # Playwright hears while it is asked
    held[0].abort()
    page.wait_for_function("window.afterwards !== undefined")
    assert page.evaluate("window.afterwards") == 0, "it rests after an error"
    assert len(held) == 1
    complaints.clear()  # the request that the test ended


def test_the_palette_opens_by_key_finds_and_goes(open_page: Open) -> None:
    page = open_page("/queues")
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Find a queue, a job, a page")
    expect(palette).to_be_visible()
    page.keyboard.type("user")
    expect(palette.get_by_role("option", selected=True)).to_contain_text("Users")
    page.keyboard.press("Enter")
    page.wait_for_url("**/users")


def test_enter_means_what_was_typed_and_not_what_was_found_before(open_page: Open) -> None:
    page = open_page("/queues")
    page.keyboard.press("/")
    expect(page.locator("#palette-hits")).to_have_attribute("data-answers", "")
    page.keyboard.type("user")
    page.keyboard.press("Enter")  # before any answer can have come
    page.wait_for_url("**/users")


def test_escape_closes_the_palette_with_something_typed(open_page: Open) -> None:
    page = open_page("/users")
    page.keyboard.press("/")
    page.keyboard.type("abc")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_the_arrows_move_through_what_was_found(open_page: Open) -> None:
    page = open_page("/users")
    page.keyboard.press("/")
    page.keyboard.type("u")
    chosen = page.locator("#palette [aria-selected=true]")
    expect(page.locator("#palette-hits")).to_have_attribute("data-answers", "u")
    first = chosen.inner_text()
    page.keyboard.press("ArrowDown")
    expect(chosen).not_to_have_text(first)
    page.keyboard.press("ArrowUp")
    expect(chosen).to_have_text(first, use_inner_text=True)


def test_keys_are_off_while_somebody_types(open_page: Open) -> None:
    page = open_page("/users")
    page.locator("#id_username").click()
    page.keyboard.type("?/tgqrx")
    expect(page.locator("#id_username")).to_have_value("?/tgqrx")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(page).to_have_url("/users")


def test_two_keys_go_to_a_page(open_page: Open) -> None:
    page = open_page("/users")
    page.locator("h1").click()
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")


def test_rows_by_keyboard_and_in_ranges(open_page: Open) -> None:
    page = open_page("/users")
    page.evaluate(_ROWS)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert checked(page) == [False, True, False, False]
    page.locator("[data-select]").nth(3).click(modifiers=["Shift"])
    assert checked(page) == [False, True, True, True]
    page.keyboard.press("Escape")
    assert checked(page) == [False] * 4
    page.locator("[data-select]").nth(3).click()
    page.locator("[data-select]").nth(1).click(modifiers=["Shift"])
    assert checked(page) == [False, True, True, True], "upwards as well"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/users#row-1")


def test_the_theme_changes_at_once_and_is_there_before_the_first_script(open_page: Open) -> None:
    page = open_page("/users")
    page.get_by_role("button", name="dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.route("**/*.js", lambda route: route.abort())
    answer = page.request.get("/users")
    assert 'data-theme="dark"' in answer.text()
    page.unroute("**/*.js")
    page.locator("h1").click()
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "system")


def test_without_javascript_the_frame_works(open_page: Open) -> None:
    page = open_page("/users", javascript=False)
    expect(page.get_by_label("Refresh")).to_be_hidden()
    page.get_by_role("button", name="dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("searchbox").fill("users")
    page.keyboard.press("Enter")
    page.wait_for_url("**/palette?q=users")
    page.get_by_role("main").get_by_role("link", name="page Users").click()
    page.wait_for_url("**/users")


def test_on_a_phone_the_person_is_behind_a_button(open_page: Open) -> None:
    page = open_page("/users", width=360)
    expect(page.get_by_role("button", name="Log out")).to_be_hidden()
    page.locator(".you-button").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_on_a_phone_the_open_page_stands_whole_in_the_bar(open_page: Open) -> None:
    page = open_page("/users", width=360)
    expect(page.locator(".pages [aria-current]")).to_be_in_viewport(ratio=0.99)


def test_a_lost_session_leads_the_whole_page_to_the_login(open_page: Open, complaints: list[str]) -> None:
    page = open_page("/users")
    page.context.clear_cookies()
    # Later, because the answer to `evaluate` would be lost with the page.
    page.evaluate("setTimeout(() => document.body.dispatchEvent(new CustomEvent('unstall:trouble')))")
    expect(page).to_have_url(re.compile(r"/login\?next=/users$"))  # each fragment that was asked for leads there
    complaints.clear()  # the stream may have asked without the cookie


@pytest.mark.parametrize("key", ["?", "/"])
def test_nobody_is_kept_out_of_a_dialog(open_page: Open, key: str) -> None:
    page = open_page("/users")
    page.keyboard.press(key)
    expect(page.locator("dialog[open]")).to_be_visible()
    if key == "/":
        expect(page.locator(".hits")).to_be_visible()
    assert barriers(page) == []
