"""/tuning in a browser: pasted, looked at and copied, in both widths and themes, with scripts and without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_every_page import LOOKS, Look
from tests.support.accessibility import barriers
from tests.support.tuning import COMPOSE, KUBERNETES, apply

Open = Callable[..., Page]


def asked(open_page: Open, look: Look) -> Page:
    page = open_page("/tuning", person="viewer", theme=look.theme, width=look.width, javascript=look.javascript)
    page.get_by_label("Paste").fill(KUBERNETES)
    page.get_by_role("button", name="Analyze").click()
    expect(page.get_by_role("heading", name="findings")).to_be_visible()
    return page


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_what_is_found_fits_and_keeps_nobody_out(open_page: Open, look: Look) -> None:
    page = asked(open_page, look)
    for width in filter(None, (look.width, look.narrow)):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        bars = page.locator(".lane .bar").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
        assert max(bars) > width / 10, "the picture is drawn"
    expect(page.get_by_role("img", name="Worker killed, now: requeued after about 90 s")).to_be_visible()
    if look.has_axe:
        assert barriers(page) == []


def test_the_picture_has_one_scale(open_page: Open) -> None:
    """A bar of 60 s is twice as long as one of 30 s, in another lane."""
    page = asked(open_page, LOOKS[0])
    now, then = (lane.locator("[data-kind=lock]").bounding_box() for lane in page.locator(".lane").all()[:2])
    assert now
    assert then
    assert now["width"] == pytest.approx(2 * then["width"], abs=2)


def test_the_patch_is_copied_whole_and_applies(open_page: Open, tmp_path: Path) -> None:
    page = asked(open_page, LOOKS[0])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the patch of pasted").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    (tmp_path / "pasted").write_text(KUBERNETES)
    apply(copied, tmp_path)
    assert "terminationGracePeriodSeconds: 65" in (tmp_path / "pasted").read_text()


def test_files_are_uploaded_several_at_once(open_page: Open, tmp_path: Path) -> None:
    page = open_page("/tuning", person="viewer", javascript=False)
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    (tmp_path / ".env").write_text("N8N_GRACEFUL_SHUTDOWN_TIMEOUT=30\n")
    page.get_by_label("or upload").set_input_files([tmp_path / "compose.yaml", tmp_path / ".env"])
    page.get_by_role("button", name="Analyze").click()
    expect(page.get_by_role("heading", name="Patch of compose.yaml")).to_be_visible()
    assert "hunter" not in page.content()
