"""The API's reference and the page of tokens, in both themes, wide and narrow, with JavaScript and without."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.accessibility import barriers
from tests.support.processes.site import Site

Open = Callable[..., Page]
LOOKS = [("light", 1280), ("dark", 360)]  # a theme moves nothing, and no width changes a colour


def fits(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_the_reference_is_readable(open_page: Open, theme: str, width: int) -> None:
    page = open_page("/api", person="viewer", theme=theme, width=width)
    expect(page.get_by_role("heading", level=1)).to_have_text("API")
    expect(page.get_by_text("/api/v1/orphans").first).to_be_visible()
    fits(page, width)
    assert barriers(page) == []


def test_a_shape_is_one_click_away(open_page: Open) -> None:
    """It is folded until somebody wants it; the browser unfolds what an address leads to."""
    page = open_page("/api", person="viewer")
    expect(page.locator("#shape-QueuePage")).not_to_be_visible()
    page.get_by_role("link", name="QueuePage").first.click()
    expect(page.locator("#shape-QueuePage")).to_be_in_viewport()


def test_the_reference_is_reached_from_the_frame(open_page: Open) -> None:
    page = open_page("/queues", person="viewer")
    link = page.locator("#you a[href='/api']")
    assert link.count() == 1


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_a_token_is_made_shown_once_used_and_revoked(open_page: Open, live_site: Site, theme: str, width: int) -> None:
    page = open_page("/tokens", theme=theme, width=width)
    name = f"{theme}-{width}"
    page.get_by_label("Name").fill(name)
    page.locator("input[value=bulk]").check()
    fits(page, width)
    assert barriers(page) == []
    page.get_by_role("button", name="Create token").click()
    token = page.locator("#written").input_value()
    assert barriers(page) == []
    fits(page, width)
    asked = page.request.get("/api/v1/queues", headers={"Authorization": f"Bearer {token}"})
    assert asked.status in (200, 503)  # 503: no snapshot was taken yet
    page.goto("/tokens")
    assert token not in page.content()
    page.get_by_role("button", name=f"Revoke {name}").click()
    expect(page.locator("tr", has_text=name)).to_contain_text("revoked")
    assert page.request.get("/api/v1/queues", headers={"Authorization": f"Bearer {token}"}).status == 401


def test_the_pages_need_no_javascript(open_page: Open) -> None:
    page = open_page("/tokens", javascript=False)
    page.get_by_label("Name").fill("plain")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("#written")).to_have_value(re.compile("^unstall_"))
    page.goto("/api")
    expect(page.get_by_role("heading", level=1)).to_have_text("API")
