"""/idempotency in a browser: it follows what is claimed by itself, and the claim of a dead worker is released."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from recovery.domain.idempotency import IdempotencyState
from tests.support.idempotency import Desk
from tests.support.processes.site import Site

Open = Callable[..., Page]
REASON = "worker-3 was reclaimed"


@pytest.fixture
def desk(live_site: Site) -> Desk:
    return Desk(live_site.state.client)


def test_the_page_follows_by_itself(open_page: Open, desk: Desk) -> None:
    page = open_page("/idempotency?q=follows", person="viewer")
    expect(page.locator("#claims")).to_contain_text("No key contains “follows”.")
    token = desk.token("follows", owner="worker-3")
    row = page.get_by_role("row", name="follows")
    expect(row).to_contain_text("claimed")
    expect(row).to_contain_text("worker-3")
    desk.complete("follows", token, b'{"id":"ch_1"}')
    expect(row).to_contain_text("completed")
    expect(row).to_contain_text('{"id":"<text of 4 characters>"}')


@pytest.mark.parametrize("javascript", [True, False], ids=["scripts", "plain"])
def test_a_claim_is_released_with_a_reason_and_stands_in_the_audit(
    open_page: Open, desk: Desk, javascript: bool
) -> None:
    key = f"released-{javascript}"
    desk.token(key, owner="worker-3")
    page = open_page(f"/idempotency?q={key}", person="operator", javascript=javascript)
    page.get_by_label(f"Release {key}").click()
    form = page.locator("#claim-form")
    expect(form).to_contain_text("worker-3")
    expect(form).to_contain_text("then the work is done twice")
    form.get_by_label("Reason").fill(REASON)
    form.get_by_role("button", name="Release").click()
    expect(page.get_by_text(f"Released: {key}.")).to_be_visible()
    if javascript:
        expect(page.locator("#claims")).to_contain_text("No key contains")
    assert desk.show(key).state is IdempotencyState.FREE
    page.goto("/audit")
    expect(page.get_by_role("row", name="release claim").first).to_contain_text(REASON)


def test_a_search_stays_in_the_address(open_page: Open, desk: Desk) -> None:
    desk.token("found:1")
    page = open_page("/idempotency", person="viewer")
    page.get_by_label("Find a key").fill("found:")
    page.get_by_role("button", name="Find").click()
    page.wait_for_url("**/idempotency?q=found%3A")
    expect(page.get_by_role("row", name="found:1")).to_be_visible()
    page.get_by_role("link", name="Completed").click()
    expect(page.locator("#claims")).to_contain_text("No key contains “found:”.")
