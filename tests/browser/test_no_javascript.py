"""Without JavaScript: every way through the product is a link or a form."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.seeds import LOG_LINES, Seeds

Open = Callable[..., Page]


def test_from_all_queues_to_the_stack_of_a_failed_job(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/queues", javascript=False)
    page.get_by_role("link", name="bull:mail", exact=True).click()
    page.locator("#tab-failed").click()
    page.locator("[data-row] a.id", has_text="1").first.click()
    expect(page.locator("#error-text details")).to_have_count(3)
    expect(page.locator("#error-text details pre").first).to_contain_text("at Worker")


def test_the_filter_and_the_order_are_in_the_address(open_page: Open, seeds: Seeds) -> None:
    page = open_page("/queues", javascript=False)
    page.locator("#q").fill("state:failed")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url("**q=state*")
    expect(page.locator("[data-row]").first).to_be_visible()
    page.locator("#sort-failed").click()
    page.wait_for_url("**sort=*failed*")
    assert "q=state" in page.url
    expect(page.locator("[data-row] th a").first).to_have_text("bull:mail")


def test_pages_of_a_list_lose_nothing(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.mail}?tab=completed", javascript=False)
    ids: list[str] = page.locator("[data-row] a.id").all_inner_texts()
    while page.locator("#next").count():
        with page.expect_navigation():
            page.locator("#next").click()
        ids += page.locator("[data-row] a.id").all_inner_texts()
    assert len(ids) == len(set(ids)) == 60


def test_the_whole_log_of_a_job_can_be_read_backwards(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.logged}?tab=logs", javascript=False)
    expect(page.locator(".log li").last).to_have_text(f"line {LOG_LINES}")
    while page.locator("#earlier").count():
        with page.expect_navigation():
            page.locator("#earlier").click()
    expect(page.locator(".log li").first).to_have_text("line 1")


def test_a_family_leads_from_job_to_job(open_page: Open, seeds: Seeds) -> None:
    page = open_page(f"{seeds.parent}?tab=family", javascript=False)
    page.locator(".family a.id").first.click()
    page.locator("#tab-family").click()
    expect(page.locator(".family")).to_contain_text("Parent")
    expect(page.locator(".family")).to_contain_text("assemble")
