"""The two log tabs of a job: what it wrote itself, followed line by line, and what its server wrote."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qs

import pytest
from django.http import HttpResponse
from django.test import Client

from dashboard.queues.job import job_log
from recovery.models import Incident
from tests.support.logs.log_writer import LogWriter
from tests.support.people import text
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
BASE = "bull:mail"
JOB = "/queues/main/bull:mail/jobs/7"
LOG = f"{BASE}:7:logs"


@pytest.fixture
def active(desk: Desk) -> Desk:
    """Job 7 runs, as far as its fields tell."""
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "7", processedOn=now_ms() - 60_000, attempts=1)
    desk.client.lrem(f"{BASE}:wait", 1, "7")
    desk.client.lpush(f"{BASE}:active", "7")
    desk.client.set(f"{BASE}:7:lock", "w:1", px=3_600_000)
    desk.look(BASE)
    return desk


def say(desk: Desk, *lines: str) -> None:
    desk.client.rpush(LOG, *lines)
    desk.forget()


def finish(desk: Desk) -> None:
    desk.client.lrem(f"{BASE}:active", 1, "7")
    desk.client.delete(f"{BASE}:7:lock")
    desk.client.hset(f"{BASE}:7", "finishedOn", now_ms())
    desk.client.zadd(f"{BASE}:completed", {"7": now_ms()})
    desk.forget()


def following(page: str) -> str:
    """The address that a page asks at the next tick; "" when it does not follow."""
    found = re.search(r'<li hidden hx-get="([^"]+)" hx-trigger="unstall:refresh from:body"', page)
    return unescape(found[1]) if found else ""


def asked(person: Client, address: str) -> HttpResponse:
    return person.get(address, HTTP_HX_REQUEST="true")  # type: ignore[return-value]


def body(answer: HttpResponse) -> str:
    return answer.content.decode()


# -- its own


def test_new_lines_come_behind_those_that_are_there(active: Desk, operator: Client) -> None:
    say(active, "one", "two")
    address = following(text(operator, f"{JOB}?tab=logs"))
    assert asked(operator, address).status_code == 204
    say(active, "three", "<four>")
    answer = asked(operator, address)
    assert re.findall(r'<li value="(\d+)">(.*?)</li>', body(answer)) == [("3", "three"), ("4", "&lt;four&gt;")]
    assert "HX-Retarget" not in answer.headers
    assert "after=4" in following(body(answer))


def test_a_log_that_has_no_line_yet_is_followed_too(active: Desk, operator: Client) -> None:
    page = text(operator, f"{JOB}?tab=logs")
    assert "No lines written with job.log() so far" in page
    address = following(page)
    assert asked(operator, address).status_code == 204
    say(active, "the first")
    answer = asked(operator, address)
    assert answer["HX-Retarget"] == "#tab"
    assert "the first" in body(answer)


def test_after_its_end_a_job_is_followed_no_more(active: Desk, operator: Client) -> None:
    say(active, "one")
    address = following(text(operator, f"{JOB}?tab=logs"))
    say(active, "the last")
    finish(active)
    answer = asked(operator, address)
    assert "the last" in body(answer)
    assert following(body(answer)) == ""
    assert following(text(operator, f"{JOB}?tab=logs")) == ""


def test_a_log_that_keeps_its_newest_lines_only_is_shown_anew(active: Desk, operator: Client) -> None:
    say(active, "one", "two", "three")
    address = following(text(operator, f"{JOB}?tab=logs"))
    say(active, "four")
    active.client.ltrim(LOG, -3, -1)
    active.forget()
    answer = asked(operator, address)
    assert answer["HX-Retarget"] == "#tab"
    assert [line for _, line in re.findall(r'<li value="(\d+)">(.*?)</li>', body(answer))] == ["two", "three", "four"]


def test_a_page_that_followed_for_long_begins_again_with_the_newest(
    active: Desk, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "SHOWN_MOST", 2)
    say(active, "one", "two", "three", "four", "five")
    assert asked(operator, following(text(operator, f"{JOB}?tab=logs")))["HX-Retarget"] == "#tab"


def test_an_earlier_window_stays_as_it_is(active: Desk, operator: Client) -> None:
    say(active, *(f"line-{number:03d}" for number in range(450)))
    assert following(text(operator, f"{JOB}?tab=logs&from=0")) == ""
    assert following(text(operator, f"{JOB}?tab=logs")) != ""


def test_a_viewer_follows_a_redacted_log(active: Desk, viewer: Client) -> None:
    say(active, "one")
    address = following(text(viewer, f"{JOB}?tab=logs"))
    say(active, "Authorization: Bearer hunter2-never-seen")
    assert "hunter2" not in body(asked(viewer, address))


# -- its server's


def lost(server: str, *, closed: bool = False) -> int:
    at = now_ms() - 30_000
    Incident.objects.create(
        deployment="main",
        base=BASE,
        job="7",
        kind="orphan",
        server=server,
        opened_at=at,
        proven_at=at,
        closed_at=at + 1000 if closed else None,
    )
    return at


def query(page: str) -> dict[str, list[str]]:
    found = re.search(r'data-query="([^"]+)"', page)
    return parse_qs(unescape(found[1])) if found else {}


def test_the_lines_of_the_server_that_had_the_job_are_asked_for(active: Desk, viewer: Client) -> None:
    LogWriter(active.state, "eu-1").write("one")
    LogWriter(active.state, "eu-2").write("another")
    at = lost("eu-1")
    page = text(viewer, f"{JOB}?tab=server-logs")
    wanted = query(page)
    assert (wanted["source"], wanted["label"]) == (["servers"], ["server=eu-1"])
    assert int(wanted["from"][0]) < at
    assert "to" not in wanted, "it was lost just now"
    assert f'data-mark="{at}">Lock lost<' in page
    assert "Logs of eu-1 while the job ran there" in page
    assert "js/logs.js" in page
    assert "js/logs.js" not in text(viewer, f"{JOB}?tab=data")


def test_a_host_without_a_monitor_is_no_server(active: Desk, viewer: Client) -> None:
    LogWriter(active.state, "eu-1").write("one")
    lost("10.0.0.7")
    page = text(viewer, f"{JOB}?tab=server-logs")
    assert "connected from 10.0.0.7, but no monitor reports which server that is" in page
    assert query(page) == {}


def test_when_nobody_knows_the_server_that_is_said(active: Desk, viewer: Client) -> None:
    page = text(viewer, f"{JOB}?tab=server-logs")
    assert "Worker&#x27;s server unknown" in page
    for server in ("eu-1", "eu-2"):
        LogWriter(active.state, server).write("one")
    active.forget()
    assert query(text(viewer, f"{JOB}?tab=server-logs")) == {}, "none of two is chosen"


def test_the_only_server_that_sends_its_logs_is_shown_and_that_is_said(active: Desk, viewer: Client) -> None:
    LogWriter(active.state, "eu-1").write("one")
    page = text(viewer, f"{JOB}?tab=server-logs")
    assert query(page)["label"] == ["server=eu-1"]
    assert "Worker's server unknown. These are the logs of eu-1" in page


def test_a_job_that_never_ran_has_no_server(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "7")
    desk.look(BASE)
    assert "No worker has taken this job yet" in text(viewer, f"{JOB}?tab=server-logs")
