"""How things look where it once went wrong: whole words, exact times, long names that leave room."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.seeds import Seeds
from tests.support.waiting import until

Open = Callable[..., Page]
# Lines of each cell's text beside the words it has: more lines than words means that a word was broken.
_BROKEN = """(cells) => cells.filter((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.bottom)));
  return lines.size > cell.textContent.trim().split(/\\s+/).length;
}).map((cell) => cell.textContent)"""


@pytest.mark.parametrize("width", [1280, 360])
def test_no_word_of_the_overview_breaks_in_the_middle(open_page: Open, seeds: Seeds, width: int) -> None:
    page = open_page("/queues", width=width)
    expect(page.locator("td[data-label]", has_text="unknown").first).to_be_visible()
    expect(page.locator("td[data-label]", has_text="none").first).to_be_visible()
    assert page.locator("td[data-label]:not(.rate)").evaluate_all(_BROKEN) == []


@pytest.mark.parametrize("locale", ["en-US", "de-DE", "ar-EG"])
def test_exact_times_are_the_same_in_every_language(open_page: Open, seeds: Seeds, locale: str) -> None:
    page = open_page(seeds.failed, locale=locale, timezone_id="Europe/Berlin")
    text = page.locator(".timeline time[data-exact]").first.inner_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+", text), text
    assert page.locator(".timeline time[data-ago]").first.get_attribute("title") == text


def test_a_payload_too_long_for_a_page_is_offered_and_not_left_blank(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.large}?tab=data")
    expect(page.locator(".payload")).to_contain_text("Too long to show completely.")
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
    page.get_by_role("link", name="Load all").click()
    page.get_by_role("button", name="Reveal").click()
    expect(page.get_by_role("button", name="Reveal")).to_have_count(0)
    page.get_by_text("As text").click()
    expect(page.locator("#payload-text")).to_contain_text(re.compile(r'"number": ?1199'))


def test_a_name_of_300_characters_leaves_room_for_the_rest(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/queues?q=xxxxxxxxxx")
    row = until(page.locator("[data-row]").bounding_box, what="a row that is not just being refreshed")
    assert row["height"] < 120


def test_no_script_writes_over_what_without_it_is_in_utc(open_page: Open, seeds: Seeds) -> None:
    page = open_page(seeds.failed, javascript=False, timezone_id="Europe/Berlin")
    expect(page.locator(".timeline time[data-exact]").first).to_contain_text(re.compile(r"^\d{4}-.* UTC$"))
