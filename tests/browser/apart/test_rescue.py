"""The night it is made for: a worker dies in the middle of a job, and a person puts it right from the page.

A real Node worker is killed by SIGKILL. The verdict turns from held to what it is; the page says why, and that nobody
will help; somebody requeues it with a reason; a live worker completes it; the incident is closed with its length, and
the audit has it all in a chain that holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.processes.fleet import Fleet, Queue, Worker
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.waiting import until

Open = Callable[..., Page]

# Short enough for a test, in the proportion of the libraries' own 30 s and 30 s.
LOCK_MS = 5000
STALLED_MS = 1000
REASON = "eu-2 was reclaimed, deploy 2026-11-18.3"
GENERATIONS = ("bullmq6", "bull4")  # with names and without, proven at once and after two looks
_SOON = 30_000  # ms: two looks of the watch, on a busy machine


@pytest.fixture(scope="module")
def night() -> Iterator[Site]:
    """A site whose watch knows how often these workers check, and where no scanner comes before the person."""
    settings = f'[thresholds]\nstalled_interval = {STALLED_MS / 1000}\n[policy]\nstale_check = {{ mode = "dry-run" }}\n'
    with Store() as queues, Store() as state, Site(queues, state, settings=settings) as site:
        yield site


@pytest.fixture(params=GENERATIONS)
def jobs(request: pytest.FixtureRequest, libraries: Fleet, night: Site) -> Queue:
    return libraries[request.param].queue(night.queues, f"night-{request.param}")


# Every verdict that the page showed, in their order.
_REMEMBER = """() => {
  const read = () => document.querySelector("td.verdict .badge")?.textContent;
  window.verdicts = [read()];
  new MutationObserver(() => {
    const now = read();
    if (now && now !== window.verdicts.at(-1)) window.verdicts.push(now);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def start(jobs: Queue, processor: str) -> Worker:
    """Bull's workers have no names: of theirs it is not known who holds what until the lock is gone."""
    named = {} if jobs.library.is_bull else {"name": f"{processor}-1"}
    return jobs.work(processor, apart=True, lockDuration=LOCK_MS, stalledInterval=STALLED_MS, **named)


def test_a_killed_workers_job_is_requeued_by_a_person_and_completed(open_page: Open, night: Site, jobs: Queue) -> None:
    holder = start(jobs, "hang")
    job = jobs.add("digest", {"to": "ann@example.org"})
    until(lambda: jobs.counts()["active"] == 1, what="the worker has it")

    page = open_page(f"/queues/main/{jobs.base}/?tab=active", site=night)
    verdict = page.locator("[data-row] td.verdict")
    expect(verdict.locator(".badge")).to_have_text("running", timeout=_SOON)

    until(lambda: b"0 of 1 active job " in night.web.get("/stuck", "viewer").body, 30, "the watch knows its worker")
    page.evaluate(_REMEMBER)
    holder.kill()
    expect(verdict.locator(".badge")).to_have_text("abandoned", timeout=_SOON)
    seen = page.evaluate("window.verdicts")
    assert (seen[0], seen[-1]) == ("running", "abandoned")
    assert {"worker-lost", "unlocked"} & set(seen), seen
    expect(verdict).to_contain_text("no lock")
    expect(verdict).to_contain_text("Without intervention: Never recovered")

    page.goto("/stuck")
    line = page.locator("[data-row]", has_text=jobs.base)
    expect(line).to_contain_text("abandoned", timeout=_SOON)
    expect(line).to_contain_text("Without intervention: Never recovered")
    expect(page.locator("#stuck-count .count")).to_be_visible()

    line.get_by_role("link", name=f"Requeue job {job}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("runs again from its start")
    dialog.get_by_label("Reason").fill(REASON)
    dialog.get_by_role("button", name="Requeue 1 job").click()
    expect(page.locator("#toasts")).to_contain_text("1 job requeued")
    expect(dialog).to_be_hidden()

    live = start(jobs, "ok")
    until(lambda: jobs.counts()["completed"] == 1, what="a live worker took it")
    assert [event for event, id in live.events() if id == job].count("completed") == 1
    expect(line).to_have_count(0, timeout=_SOON)

    _is_closed(night, jobs, job)
    _is_told(page, jobs, job)
    _is_chained(page)


def _is_closed(site: Site, jobs: Queue, job: str) -> None:
    """The incident has its length, and says that an operator ended it."""
    found = "SELECT opened_at, closed_at, resolved_by FROM recovery_incident WHERE base = ? AND job = ?"
    opened, closed, by = until(
        lambda: next((row for row in site.web.ask(found, jobs.base, job) if row[1] is not None), None),
        30,
        "it is closed",
    )
    assert 0 < closed - opened < 60_000
    assert by == "operator"


def _is_told(page: Page, jobs: Queue, job: str) -> None:
    page.goto(f"/queues/main/{jobs.base}/jobs/{job}")
    life = page.locator(".timeline")
    expect(life).to_contain_text("Detected: abandoned")
    expect(life).to_contain_text("Requeued by admin")
    expect(life).to_contain_text(REASON)
    expect(life.get_by_role("listitem").filter(has_text="Recovered")).to_contain_text(
        re.compile(r"by an operator, after \d")
    )
    expect(page.locator(".line-up .badge").first).to_have_text("completed")


def _is_chained(page: Page) -> None:
    page.goto("/audit")
    newest = page.locator("tbody tr").first
    expect(newest).to_contain_text("requeue 1 job")
    expect(newest).to_contain_text(REASON)
    expect(newest).to_contain_text("done")
    page.get_by_role("button", name="Verify integrity").click()
    expect(page.get_by_role("status").filter(has_text="Chain verified up to")).to_be_visible()
