"""The keyboard on pages with real rows, and the palette as the quickest way to a queue or a job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Complaints
from tests.browser.seeds import NASTY, Seeds

Open = Callable[..., Page]


@pytest.mark.parametrize("key", ["/", "Control+k"])
def test_the_palette_finds_a_queue_by_a_part_of_its_name(open_page: Open, seeds: Seeds, key: str) -> None:
    page = open_page("/queues")
    page.keyboard.press(key)
    page.keyboard.type("encode")
    expect(page.locator("#palette [aria-selected=true]")).to_contain_text("bull:video.encode")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{seeds.video}")


def test_the_palette_finds_a_job_by_its_id(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/queues")
    page.keyboard.press("/")
    page.keyboard.type("98")
    expect(page.locator("#palette [role=option]").first).to_contain_text("98")
    page.locator("#palette [role=option]", has_text="search for this job ID").click()
    page.get_by_role("main").get_by_role("link", name="98", exact=True).first.click()
    page.wait_for_url("**/jobs/98")


def test_the_palette_shows_a_harmful_name_as_text(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/queues")
    page.keyboard.press("/")
    page.keyboard.type("<script>")
    expect(page.locator("#palette [role=option]").first).to_contain_text(NASTY[0])


def test_j_and_k_walk_through_jobs_and_enter_opens_one(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.mail}?tab=failed")
    for key in "jjk":
        page.keyboard.press(key)
    expect(page.locator("[data-cursor]")).to_have_count(1)
    first = page.locator("[data-row]").first
    expect(first).to_have_attribute("data-cursor", "")
    job = str(first.get_by_role("link").first.get_attribute("href"))
    page.evaluate("document.activeElement.blur()")  # as in the moment in which a snapshot puts another row in its place
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{job}*")


def test_g_q_leads_home_from_anywhere(open_page: Open, seeds: Seeds) -> None:
    page = open_page(seeds.failed)
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")


def test_keys_are_off_in_the_filter(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/queues")
    page.locator("#q").press_sequentially("?gqjxrt/")
    expect(page.locator("#q")).to_have_value("?gqjxrt/")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(page.locator("[data-cursor]")).to_have_count(0)
    expect(page.locator("html")).to_have_attribute("data-theme", "system")
    expect(page.get_by_label("Refresh")).to_have_value("live")


def test_help_names_every_page_and_escape_closes_it(open_page: Open) -> None:
    page = open_page("/queues")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("g q")
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_r_goes_through_the_rates(open_page: Open) -> None:
    page = open_page("/queues")
    page.keyboard.press("r")
    expect(page.get_by_label("Refresh")).to_have_value("2")


def test_a_chosen_theme_is_painted_first_and_remembered(open_page: Open, complaints: Complaints) -> None:
    page = open_page("/queues", theme="dark")
    dark = _ground(page)
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    light = _ground(page)
    assert light != dark
    page.add_init_script(
        """addEventListener("DOMContentLoaded", () => {
          window.first = [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor];
        });"""
    )
    page.route("**/*.js", lambda route: route.abort())
    page.goto("/users")
    assert page.evaluate("window.first") == ["light", light], "before any script of ours ran"
    complaints.clear()  # of the scripts that were kept away


def _ground(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))
