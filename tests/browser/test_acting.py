"""The dialog in a real browser: opened, thought over, confirmed; with scripts and without; by mouse and by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Complaints
from tests.support.accessibility import barriers
from tests.support.processes.fleet import Fleet, Queue
from tests.support.processes.site import Site
from tests.support.waiting import until

Open = Callable[..., Page]
REASON = "the mail server is back"
_BULK_MS = 30_000
_TESTS = 16  # at least as many as there are below


@pytest.fixture(scope="module")
def stock(fleet: Fleet, live_site: Site) -> Iterator[Queue]:
    """Queues with three failed jobs each, one for each test: the site finds them all in one go."""
    made = [fleet["bullmq5"].queue(live_site.queues, f"acting-{number}") for number in range(_TESTS)]
    for queue in made:
        queue.add_many(3, "send", {"reason": "connect ECONNREFUSED"})
    workers = [queue.work("fail", concurrency=3) for queue in made]
    until(lambda: all(queue.counts()["failed"] == 3 for queue in made), 60, "all have failed")
    for worker in workers:
        worker.close()
    last = f"/queues?q={made[-1].base}"
    until(lambda: b"data-row" in live_site.web.get(last, "viewer").body, 30, "the site has found them")
    return iter(made)


@pytest.fixture
def jobs(stock: Iterator[Queue]) -> Queue:
    """A queue of the test's own."""
    return next(stock)


def failed(queue: Queue) -> str:
    return f"/queues/main/{queue.base}/?tab=failed"


def test_one_job_is_retried_and_the_page_follows(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator")
    page.get_by_role("link", name="Retry job 2", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 1 job in")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    assert barriers(page) == []
    dialog.get_by_label("Reason").fill(REASON)
    dialog.get_by_role("button", name="Retry 1 job").click()
    expect(page.locator("#toasts")).to_contain_text(f"1 job retried in {jobs.base}.")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("link", name="Retry job 2", exact=True)).to_have_count(0)
    assert jobs.counts()["waiting"] == 1


def test_escape_and_cancel_change_nothing(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator")
    for leave in (lambda: page.keyboard.press("Escape"), lambda: page.get_by_role("link", name="Cancel").click()):
        page.get_by_role("link", name="Retry job 1", exact=True).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        leave()
        expect(page.get_by_role("dialog")).to_be_hidden()
    assert page.url.endswith("?tab=failed")
    assert jobs.counts()["failed"] == 3


def test_without_a_reason_nothing_is_sent(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator")
    page.get_by_role("link", name="Retry job 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Retry 1 job").click()
    expect(dialog).to_be_visible()
    dialog.get_by_label("Reason").fill("   ")
    dialog.get_by_role("button", name="Retry 1 job").click()
    expect(dialog).to_contain_text("Enter a reason.")
    assert jobs.counts()["failed"] == 3


def test_an_option_is_looked_at_again_and_the_reason_is_kept(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator")
    page.get_by_role("link", name="Retry job 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(REASON)
    with page.expect_response(lambda response: "/act?" in response.url and response.request.method == "POST"):
        dialog.get_by_label("Reset attempts").check()
    expect(dialog.get_by_label("Reset attempts")).to_be_checked()
    expect(dialog.get_by_label("Reason")).to_have_value(REASON)
    dialog.get_by_role("button", name="Retry 1 job").click()
    expect(page.locator("#toasts")).to_contain_text("1 job retried")


def test_a_reason_written_while_an_answer_is_under_way_stays(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator")
    page.get_by_role("link", name="Retry job 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    asked: list[Route] = []
    page.route("**/act?*", lambda route: asked.append(route))  # noqa: PLW0108 - Playwright writes on what it is given
    dialog.get_by_label("Reset attempts").check()
    until(lambda: asked or page.evaluate("0"), what="the look is under way")  # Playwright hears while it is asked
    dialog.get_by_label("Reason").fill(REASON)
    page.evaluate("document.querySelector('#act form').dataset.old = ''")
    asked[0].continue_()
    expect(dialog.locator("form[data-old]")).to_have_count(0)
    expect(dialog.get_by_label("Reason")).to_have_value(REASON)


def test_what_moved_meanwhile_is_shown_again(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator")
    page.get_by_role("link", name="Retry job 1", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(REASON)
    jobs.call_job("1", "retry")
    dialog.get_by_role("button", name="Retry 1 job").click()
    expect(dialog).to_contain_text("Jobs changed since this was shown")
    expect(dialog).to_contain_text("It is waiting now.")
    expect(dialog.get_by_role("button", name="Retry 1 job")).to_have_count(0)


def test_ticked_rows_are_removed_together_and_restored(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs))
    bar = page.locator("#rows-form")
    expect(bar).to_be_hidden()
    page.get_by_label("Select job 1", exact=True).check()
    page.get_by_label("Select job 3", exact=True).check()
    expect(bar).to_contain_text("2 selected")
    bar.get_by_role("button", name="Remove").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(REASON)
    dialog.get_by_role("button", name="Remove 2 jobs").click()
    expect(dialog).to_contain_text("2 jobs removed")
    until(lambda: jobs.counts()["failed"] == 1)
    dialog.get_by_role("link", name="Restore").click()
    expect(dialog).to_contain_text("Each job returns")
    dialog.get_by_label("Reason").fill("too many")
    dialog.get_by_role("button", name="Restore").click()
    expect(page.locator("#toasts")).to_contain_text("2 jobs restored")
    assert jobs.counts()["failed"] == 3


def test_all_failed_are_retried_by_the_scheduler_and_the_dialog_ends_with_the_result(
    open_page: Open, jobs: Queue
) -> None:
    page = open_page(failed(jobs))
    page.get_by_role("link", name="Retry all failed").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 3 failed jobs in")
    dialog.get_by_label("Reason").fill(REASON)
    dialog.get_by_role("button", name="Retry 3 jobs").click()
    expect(dialog.locator(".badge")).to_have_text("ended", timeout=_BULK_MS)
    for words in ("3done", "0skipped", "0left of 3"):
        expect(dialog.locator(".tally")).to_contain_text(words)
    expect(dialog.locator(".tally")).to_contain_text(re.compile(r"\djobs a second"))
    expect(dialog.get_by_role("status")).to_have_text(f"{jobs.base} ended: 3 done, 0 skipped, 0 left.")
    assert barriers(page) == []
    assert jobs.counts()["waiting"] == 3
    dialog.get_by_role("link", name="Close").click()
    expect(page.locator("[data-row]")).to_have_count(0)


def test_draining_asks_for_the_queues_name(open_page: Open, jobs: Queue) -> None:
    jobs.add_many(4, "letter")
    page = open_page(failed(jobs))
    page.locator("#queue-acts summary").click()
    page.get_by_role("link", name=f"Drain queue {jobs.base}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(REASON)
    dialog.get_by_label("to confirm").fill("bull:wrong")
    dialog.get_by_role("button", name="Drain").click()
    expect(dialog).to_contain_text("The text does not match")
    dialog.get_by_label("to confirm").fill(jobs.base)
    dialog.get_by_role("button", name="Drain").click()
    expect(dialog).to_contain_text("4 removed")
    assert jobs.counts()["waiting"] == 0


def test_without_scripts_every_step_is_a_page(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), javascript=False)
    page.get_by_label("Select job 1", exact=True).check()
    page.get_by_label("Select job 2", exact=True).check()
    page.locator("#rows-form").get_by_role("button", name="Retry").click()
    page.wait_for_url("**/act?*")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Retry 2 jobs in")
    page.get_by_label("Reset attempts").check()
    page.get_by_role("button", name="Check again").click()
    page.get_by_label("Reason").fill(REASON)
    page.get_by_role("button", name="Retry 2 jobs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Retry: done")
    expect(page.locator("main")).to_contain_text("2 jobs retried")
    page.get_by_role("link", name="Back").click()
    page.wait_for_url("**tab=failed")
    assert jobs.counts()["waiting"] == 2


def test_a_menu_opens_without_scripts(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator", javascript=False)
    page.get_by_label("More actions for job 1", exact=True).click()
    page.get_by_role("link", name="Remove job 1", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Remove 1 job in")


def test_a_viewer_has_no_buttons_and_is_refused(open_page: Open, complaints: Complaints, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="viewer")
    expect(page.locator("[data-row]")).to_have_count(3)
    for gone in (".row-acts", "[data-select]", ".state-acts"):
        expect(page.locator(gone)).to_have_count(0)
    page.goto(f"/act?act=retry&job=main/{jobs.base}/1")
    expect(page.get_by_role("heading", level=1)).to_have_text("Permission denied")
    complaints.clear()  # of the status


def test_no_single_key_changes_a_queue(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs))
    page.keyboard.press("j")
    for key in "abcdefhilmnopqsuvwyz0123456789":
        page.keyboard.press(key)
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert jobs.counts()["failed"] == 3


def test_g_s_leads_to_what_is_stuck(open_page: Open) -> None:
    page = open_page("/queues")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/stuck")


def test_a_refresh_leaves_an_open_menu_alone(open_page: Open, jobs: Queue) -> None:
    page = open_page(failed(jobs), person="operator")
    page.get_by_label("More actions for job 1", exact=True).click()
    expect(page.locator(".fresh .word")).to_contain_text("paused")
    expect(page.locator("details.menu[open]")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("details.menu[open]")).to_have_count(0)


def test_a_finished_jobs_page_shows_what_was_done_to_it(open_page: Open, jobs: Queue) -> None:
    page = open_page(f"/queues/main/{jobs.base}/jobs/2", person="operator")
    page.get_by_role("link", name="Retry job 2", exact=True).click()
    page.get_by_role("dialog").get_by_label("Reason").fill(REASON)
    page.get_by_role("button", name="Retry 1 job").click()
    expect(page.locator("#job-head .badge")).to_have_text("waiting")
    expect(page.locator(".timeline")).to_contain_text("Retried by operator")
