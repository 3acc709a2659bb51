"""Finding a job: by id at once, by data slice by slice, stopped and taken up again, and without JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from playwright.sync_api import Error, Page, Route, expect

from tests.browser.seeds import CROWD, NASTY_ID, NEEDLE, Seeds

Open = Callable[..., Page]
_CROWD = "queue=main/bull:crowd"


def test_an_id_is_found_at_once_in_every_queue_that_has_it(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/search")
    page.get_by_label("Search for").fill("98")
    page.keyboard.press("Enter")
    expect(page.locator("[data-row]", has_text="bull:mail")).to_have_count(1)
    expect(page.locator("[data-row]", has_text="bull:crowd")).to_have_count(1)


def test_an_id_that_means_harm_is_found_and_opened(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/search")
    page.get_by_label("Search for").fill(NASTY_ID)
    page.get_by_role("button", name="Find").click()
    page.locator("[data-row] a.id").click()
    page.wait_for_url(f"**{seeds.nasty_job}")


def test_the_box_on_a_queue_searches_that_queue(open_page: Open, seeds: Seeds) -> None:
    page = open_page(seeds.mail)
    page.locator("#find-job").fill("98")
    page.keyboard.press("Enter")
    expect(page.locator("[data-row]")).to_have_count(1)
    expect(page.get_by_label("of jobs in")).to_have_value("main/bull:mail")


def test_data_is_searched_with_progress_to_the_very_end(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"/search?q={NEEDLE}&by=data&{_CROWD}", person="operator")
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.locator("#found")).to_contain_text("Search complete.", timeout=30_000)
    expect(page.locator("#found")).to_contain_text(f"{CROWD:,} searched, 1 found.")
    expect(page.locator("[data-row]")).to_have_count(1)


def test_a_stopped_search_stands_still_until_it_may_go_on(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"/search?q={NEEDLE}&by=data&{_CROWD}", person="operator")
    held: list[Route] = []
    # Or the search may be over before the button is reached. Playwright marks the function that it is given.
    page.route("**/search/part*", lambda route: held.append(route))  # noqa: PLW0108
    page.get_by_role("button", name="Stop").hover()
    page.mouse.down()  # a finger may rest on it for longer than a slice takes
    expect(page.locator("#found")).to_contain_text("Stopped.")
    page.mouse.up()
    page.unroute("**/search/part*")
    for route in held:
        with suppress(Error):  # the page has given it up
            route.abort()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/search/part" in request.url else None)
    page.wait_for_timeout(600)  # five times the pause between two slices
    assert asked == []
    expect(page.locator("#go-on")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("1 found.", timeout=30_000)


def test_without_javascript_each_slice_is_a_page(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"/search?q={NEEDLE}&by=data&{_CROWD}", person="operator", javascript=False)
    slices = 0
    while page.locator("#go-on").count():
        with page.expect_navigation():
            page.locator("#go-on").click()
        slices += 1
    assert slices > 3
    expect(page.locator("#found")).to_contain_text(f"{CROWD:,} searched, 1 found.")
