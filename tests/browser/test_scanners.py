"""/scanners in a real browser: a policy edited in place, a run ordered and followed, a pause, a limit released."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from playwright.sync_api import Page, expect

from tests.browser.scanned import trip
from tests.support.accessibility import barriers
from tests.support.processes.site import Site
from tests.support.stuck.watching import bullmq
from tests.support.waiting import until

Open = Callable[..., Page]
REASON = "after the deploy"
_TESTS = 10  # at least as many as there are below
_RUN_MS = 30_000  # the scheduler has other work, and the machine other tests


@pytest.fixture(scope="module")
def stock(live_site: Site) -> Iterator[str]:
    """Empty queues, one for each test."""
    bases = [f"bull:scanned-{number}" for number in range(_TESTS)]
    for base in bases:
        bullmq(live_site.queues.client, base)
    until(lambda: _has_found(live_site, bases), 30, "the site has found them")
    return iter(bases)


def _has_found(site: Site, bases: Sequence[str]) -> bool:
    page = site.web.get("/queues?q=bull:scanned-", "viewer").body
    return all(base.encode() in page for base in bases)


@pytest.fixture
def queue(stock: Iterator[str]) -> str:
    """The base of a queue of the test's own."""
    return next(stock)


def test_a_policy_is_edited_in_place(open_page: Open, queue: str) -> None:
    page = open_page(f"/scanners?q={queue}")
    row = page.locator(".policies-table tbody tr")
    expect(row.locator("[data-label=auto-retry]")).to_contain_text("dry run")
    page.get_by_role("link", name=f"Edit the policy of {queue} in main").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("group", name="orphan-watch").get_by_label("Mode")).to_be_focused()
    part = dialog.get_by_role("group", name="auto-retry")
    part.get_by_label("Mode").select_option("enabled")
    part.get_by_label("Max jobs per run").fill("50")
    assert barriers(page) == []
    dialog.get_by_role("button", name="Preview changes").click()
    expect(dialog).to_contain_text("auto-retry: Dry run, at most 100 jobs per run.")
    expect(dialog.get_by_role("status")).to_be_focused()
    expect(dialog).to_contain_text("It stays in dry run until the idempotency note below is set.")
    dialog.get_by_label("Idempotency note").fill("they only count")
    dialog.get_by_label("Reason").fill(REASON)
    dialog.get_by_role("button", name="Preview again").click()
    expect(dialog).to_contain_text("they only count")
    expect(dialog.get_by_label("Reason")).to_have_value(REASON)
    assert barriers(page) == []
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text(f"The policy of {queue} in main was changed.")
    expect(dialog).to_be_hidden()
    expect(row.locator("[data-label=auto-retry]")).to_contain_text("enabled")
    assert page.url.endswith(f"/scanners?q={queue}")


def test_what_is_changed_behind_what_was_shown_is_shown_again(open_page: Open, queue: str) -> None:
    page = open_page(f"/scanners?q={queue}")
    page.get_by_role("link", name=f"Edit the policy of {queue} in main").click()
    dialog = page.get_by_role("dialog")
    most = dialog.get_by_role("group", name="stale-check").get_by_label("Max jobs per run")
    most.fill("20")
    dialog.get_by_role("button", name="Preview changes").click()
    expect(dialog).to_contain_text("at most 20 jobs per run")
    dialog.get_by_label("Reason").fill(REASON)
    most.fill("2000")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("Check the changes again; nothing was changed.")
    most.fill("many")
    dialog.get_by_role("button", name="Preview again").click()
    expect(most).to_have_attribute("aria-invalid", "true")
    expect(most).to_be_focused()
    expect(dialog.get_by_role("button", name="Save")).to_have_count(0)


def test_a_policy_is_edited_without_scripts(open_page: Open, queue: str) -> None:
    page = open_page(f"/scanners?q={queue}", javascript=False, width=360)
    page.get_by_role("link", name=f"Edit the policy of {queue} in main").click()
    page.get_by_role("group", name="orphan-watch").get_by_label("Mode").select_option("enabled")
    page.get_by_label("Reason").fill(REASON)
    page.get_by_role("button", name="Preview changes").click()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text("was changed")
    page.goto(f"/scanners?q={queue}")
    expect(page.locator(".policies-table [data-label=orphan-watch]")).to_contain_text("enabled")


def test_a_run_is_ordered_and_followed_to_its_end(open_page: Open, queue: str) -> None:
    page = open_page("/scanners", person="operator")
    page.get_by_role("link", name="Dry run of stale-check").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Apply changes")).to_be_disabled()
    dialog.get_by_label("Only this queue").fill(f"main/{queue}")
    dialog.get_by_label("Reason").fill(REASON)
    assert barriers(page) == []
    dialog.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("stale-check, run")
    expect(page.locator("#scan-run")).to_contain_text("dry run")
    expect(page.locator("#scan-run .badge").first).to_have_text("ended", timeout=_RUN_MS)


def test_a_scanner_is_paused_and_goes_on(open_page: Open) -> None:
    page = open_page("/scanners")
    card = page.get_by_role("region", name="prune")
    for button, does, then in (("Pause", "Pause", "Resume"), ("Resume", "Resume", "Pause")):
        card.get_by_text(button, exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill(REASON)
        dialog.get_by_role("button", name=does).click()
        expect(dialog).to_be_hidden()
        expect(card.get_by_text(then, exact=True)).to_be_visible()


def test_a_safety_limit_is_released_and_leaves_the_page(open_page: Open, live_site: Site, queue: str) -> None:
    trip(live_site, queue)
    page = open_page("/scanners")
    line = page.locator(".safety-limits-table tbody tr", has_text=queue)
    expect(line).to_contain_text("20 of 20 auto-retries failed again")
    line.get_by_role("link", name="Release").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("they use up their auto-retries for nothing")
    assert barriers(page) == []
    dialog.get_by_label("Reason").fill(REASON)
    dialog.get_by_role("button", name="Release").click()
    expect(page.locator("#toasts")).to_contain_text(f"Breaker released: {queue}.")
    expect(line).to_have_count(0)


def test_the_page_goes_on_by_itself(open_page: Open, live_site: Site, queue: str) -> None:
    page = open_page("/scanners", person="viewer")
    expect(page.locator(".lease")).to_contain_text("Leader:")
    trip(live_site, queue)
    expect(page.locator(".safety-limits-table tbody tr", has_text=queue)).to_be_visible(timeout=_RUN_MS)
    expect(page.get_by_role("region", name="collect")).to_contain_text("healthy", timeout=_RUN_MS)
    expect(page.get_by_role("link", name="Release")).to_have_count(0)


def test_the_keyboard_leads_there(open_page: Open) -> None:
    page = open_page("/queues")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", level=1)).to_have_text("Scanners")
