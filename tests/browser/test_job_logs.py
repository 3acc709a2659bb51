"""The log tabs of a job in a real browser: lines of its server with what happened to it, and its own that come."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex

import pytest
from playwright.sync_api import Page, expect

from tests.support.accessibility import barriers
from tests.support.logs.log_writer import LogWriter
from tests.support.processes.site import Site
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
_MS = 1_000_000  # ns
_ROWS = """(rows) => [...rows.children].map((row) => (row.querySelector(".said") ?? row).textContent)"""
# How far the end of the log lies below what is seen of it, and where its first line stands.
_BELOW = "(box) => box.querySelector('ol').getBoundingClientRect().bottom - box.getBoundingClientRect().bottom"
_FIRST = "(box) => box.querySelector('li').getBoundingClientRect().top - box.getBoundingClientRect().top"
_INCIDENT = """INSERT INTO recovery_incident
(deployment, base, job, name, kind, cause, evidence, holder, server, opened_at, proven_at, closed_at, resolved_by)
VALUES ('main', ?, '7', '', 'orphan', '', '', '', ?, ?, ?, ?, 'stalled-check')"""


@pytest.fixture
def base(live_site: Site) -> str:
    """A queue with an active job, 7."""
    base, client = f"bull:told-{token_hex(4)}", live_site.queues.client
    bullmq(client, base)
    add(client, base, "7", processedOn=now_ms() - 200_000, attempts=1)
    client.lrem(f"{base}:wait", 1, "7")
    client.lpush(f"{base}:active", "7")
    client.set(f"{base}:7:lock", "w:1", px=3_600_000)
    return base


def complete(site: Site, base: str) -> None:
    """A moment ago: nobody judges it any more, and its server is still followed."""
    client = site.queues.client
    client.lrem(f"{base}:active", 1, "7")
    client.delete(f"{base}:7:lock")
    client.hset(f"{base}:7", mapping={"processedOn": now_ms() - 200_000, "finishedOn": now_ms() - 1000})
    client.zadd(f"{base}:completed", {"7": now_ms()})


def rows(page: Page) -> list[str]:
    found: list[str] = page.locator("[data-rows]").evaluate(_ROWS)
    return found


def test_the_lines_of_the_server_stand_around_what_happened_to_the_job(
    open_page: Open, live_site: Site, base: str
) -> None:
    complete(live_site, base)
    now, server = now_ms(), f"eu-{token_hex(4)}"
    live_site.web.change(_INCIDENT, base, server, now - 300_000, now - 300_000, now - 240_000)
    writer = LogWriter(live_site.state, server)
    for ago, words in ((310_000, "importing row 17"), (301_000, "FATAL out of memory"), (199_000, "once more")):
        writer.write(words, at=(now - ago) * _MS)
    LogWriter(live_site.state, f"{server}-not").write("of another server", at=(now - 305_000) * _MS)
    page = open_page(f"/queues/main/{base}/jobs/7?tab=server-logs")
    there = ["importing row 17", "FATAL out of memory", "Lock lost", "Recovered", "Picked up again", "once more"]
    until(lambda: "once more" in rows(page), 30, "the lines stand on the page")
    assert rows(page) == [*there, "Completed"], "with the marks between them"
    expect(page.locator(".log-bar [data-state]")).to_have_text("Live")
    writer.write("and it goes on")
    until(lambda: rows(page)[-1:] == ["and it goes on"], 30, "what is written now comes")
    assert rows(page) == [*there, "Completed", "and it goes on"]
    assert barriers(page) == []


def test_new_lines_of_a_job_are_followed_at_the_end_and_move_nothing_above_it(
    open_page: Open, live_site: Site, base: str
) -> None:
    client, log = live_site.queues.client, f"{base}:7:logs"
    client.rpush(log, *(f"line {number}" for number in range(1, 151)))
    page = open_page(f"/queues/main/{base}/jobs/7?tab=logs")
    box = page.locator("#job-log")
    assert box.evaluate(_BELOW) < 2
    client.rpush(log, "line 151")
    expect(box.get_by_text("line 151", exact=True)).to_be_attached()
    assert box.evaluate(_BELOW) < 2
    box.evaluate("(box) => (box.scrollTop -= 1000)")
    before = box.evaluate(_FIRST)
    client.rpush(log, *(f"line {number}" for number in range(152, 160)))
    expect(box.get_by_text("line 159", exact=True)).to_be_attached()
    assert abs(box.evaluate(_FIRST) - before) < 1
    assert box.evaluate(_BELOW) > 1000
