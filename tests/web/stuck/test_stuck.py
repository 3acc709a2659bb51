"""/stuck: what the watch found, said truly, with what each person may do about it."""

from __future__ import annotations

import html
import re

import pytest
from django.http import QueryDict
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.stuck import views as view
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.types import LossCause, VerdictKind
from recovery.models import Incident
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.stores.registry import registry
from recovery.stores.state import state_keys
from tests.support.people import browser, person
from tests.support.stuck.watching import bullmq, now_ms
from tests.web.acting import BASE, look
from tests.web.conftest import Desk
from tests.web.inbox import NOBODY, found, stuck

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def mail(desk: Desk) -> None:
    bullmq(desk.client, BASE)
    look(desk)
    view._times.forget()


def text(role: UserRole = UserRole.ADMIN, address: str = "/stuck") -> str:
    answer = browser(person(role)).get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def ids(page: str) -> list[str]:
    return re.findall(r'class="id" href="[^"]*">([^<]*)</a>', page)


def test_a_line_says_what_where_since_when_why_and_what_comes(desk: Desk) -> None:
    found(desk, [stuck("42")])
    page = text()
    assert ids(page) == ["42"]
    assert 'data-state="abandoned">abandoned' in page
    assert "Worker mail-3 lost its connection 4 min ago." in page
    assert "Likely cause: <b>crashed</b> (exit 137)" in page
    assert f"Without intervention: {NOBODY}" in page
    assert "4 min ago" in page
    assert "1 of 25 active jobs in 1 queue" in page


def test_an_unknown_cause_is_called_that_with_what_was_seen(desk: Desk) -> None:
    found(desk, [stuck("42", cause=LossCause.UNKNOWN, cause_evidence="its worker stayed connected.")])
    page = text()
    assert "Cause <b>unknown</b>: its worker stayed connected." in page
    assert "Likely cause" not in page


def test_the_suggested_act_stands_out_and_the_others_are_in_the_menu(desk: Desk) -> None:
    found(desk, [stuck("42")])
    page = text(UserRole.OPERATOR)
    first, menu = page.split('<details class="menu">', 1)
    assert re.search(r'act=requeue[^>]*data-kind="primary"', first)
    assert "act=fail" in menu
    assert "act=remove" in menu
    assert "act=remove" not in first


def test_a_viewer_sees_it_all_and_no_button(desk: Desk) -> None:
    found(desk, [stuck("42")])
    page = text(UserRole.VIEWER)
    assert ids(page) == ["42"]
    assert "act=requeue" not in page
    assert "data-select" not in page


def test_whoever_may_act_on_many_gets_check_boxes_and_everything_at_once(desk: Desk) -> None:
    found(desk, [stuck("1"), stuck("2")])
    page = text(UserRole.OPERATOR)
    assert page.count("data-select ") == 2
    assert "Requeue 2 orphans</a>" in page
    assert "all=orphan" not in text(UserRole.VIEWER)


def test_the_filter_is_in_the_address(desk: Desk) -> None:
    bullmq(desk.client, "bull:video")
    look(desk, BASE, "bull:video")
    doomed = stuck("2", VerdictKind.WORKER_LOST, cause=LossCause.DEPLOYED, server="10.0.0.7")
    found(desk, [stuck("1"), doomed, stuck("3", base="bull:video", is_quarantined=True)])
    assert ids(text(address="/stuck?verdict=worker-lost")) == ["2"]
    assert ids(text(address="/stuck?verdict=quarantined")) == ["3"]
    assert ids(text(address="/stuck?cause=replaced+by+a+deployment")) == ["2"]
    assert ids(text(address="/stuck?queue=main/bull:video")) == ["3"]
    assert ids(text(address="/stuck?server=10.0.0.7")) == ["2"]
    assert ids(text(address="/stuck?server=unknown")) == ["1", "3"]
    assert "No stuck job matches this filter" in text(address="/stuck?queue=main/bull:none")
    assert ids(text(address="/stuck/rows?verdict=worker-lost")) == ["2"]


def test_all_clear_says_what_was_looked_at_and_when(desk: Desk) -> None:
    found(desk, looked=25, age=2000)
    page = text()
    assert "All clear." in page
    assert "25 active jobs in 1 queue were checked" in page


def test_what_could_not_be_looked_at_is_no_all_clear(desk: Desk) -> None:
    found(desk, error="connection refused")
    page = text()
    assert "All clear" not in page
    assert "connection refused" in page
    assert "This is not an all-clear" in page


def test_a_late_job_is_listed_and_no_all_clear(desk: Desk) -> None:
    found(desk, [stuck("42", VerdictKind.LATE)])
    page = text()
    assert ids(page) == ["42"]
    assert "All clear" not in page


def test_an_old_inbox_is_no_all_clear(desk: Desk) -> None:
    found(desk, age=60_000)
    page = text()
    assert "This data is stale." in page
    assert "All clear" not in page


def test_before_anybody_looked_nothing_is_said_of_the_jobs(desk: Desk) -> None:
    page = text()
    assert "Stuck jobs have not been checked yet." in page
    assert "All clear" not in page


def test_an_outage_of_the_state_store_is_said_and_not_taken_for_nobody_having_looked(desk: Desk) -> None:
    found(desk, [stuck("42")])
    desk.state.pause()
    try:
        desk.forget()
        for address in ("/stuck", "/stuck/rows"):
            page = text(address=address)
            assert "Stuck jobs are unknown: the state store cannot be read." in page
            assert "It accepts connections but does not answer" in page
            assert "Nobody has looked" not in page
        matching = text(address="/act?act=requeue&matching=stuck")
        assert "the state store cannot be read" in matching
        assert "Nobody has looked" not in matching
    finally:
        desk.state.resume()


def test_the_number_in_the_navigation_counts_all_that_is_stuck_in_the_colour_of_its_urgency(desk: Desk) -> None:
    soon = {"until": now_ms() + 9000, "rescuer": PolicyScanner.ORPHAN_WATCH}
    registry().state().set(state_keys.SCHEDULER, SchedulerStatus("here", 1, 7, now_ms(), now_ms(), "me").encode())
    assert 'class="count"' not in text(address="/queues")
    found(desk, [stuck("1"), stuck("2"), stuck("3", VerdictKind.ORPHAN, **soon)])
    red = '<span class="count" data-tone="stuck">3<span class="hush"> stuck, 2 need manual action'
    assert red in text(address="/queues")
    assert red in text(address="/stuck/count")
    found(desk, [stuck("3", VerdictKind.ABANDONED, **soon)])
    assert '<span class="count" data-tone="warn">1<span class="hush"> stuck</span>' in text(address="/queues")
    found(desk)
    assert 'class="count"' not in text(address="/queues")


def test_what_a_scanner_promised_is_taken_back_when_nobody_leads(desk: Desk) -> None:
    found(desk, [stuck("3", rescuer=PolicyScanner.STALE_CHECK, fate="Stale-check requeues it within 5 min.")])
    page = text()
    assert "within 5 min" not in page
    assert "Never recovered in the current state. Stale-check is enabled, but no scheduler leads." in page


def test_recovery_of_the_last_day_stands_beside_what_is_predicted(desk: Desk) -> None:
    for seconds in (41, 40, 112):
        Incident.objects.create(
            deployment="main",
            base=BASE,
            job=str(seconds),
            kind="orphan",
            opened_at=now_ms() - 200_000,
            proven_at=now_ms() - 190_000,
            closed_at=now_ms() - 200_000 + seconds * 1000,
        )
    found(desk)
    page = text()
    assert "<b>41 s</b><span>median recovery, 24 h; worst 1 min 52 s</span>" in page
    assert "<b>45 s</b><span>predicted worst, as configured</span>" in page


def test_harmful_names_are_only_text(desk: Desk) -> None:
    nasty = '"><img src=x onerror=alert(1)>'
    found(desk, [stuck(nasty, name="<script>alert(2)</script>", evidence=("<b>x</b>",), fate="<i>y</i>")])
    page = text()
    for harm in ("<img", "<script>alert", "<b>x</b>", "<i>y</i>"):
        assert harm not in page


def test_a_queue_that_is_read_only_by_configuration_offers_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard.actions import buttons

    found(desk, [stuck("1"), stuck("2")])
    monkeypatch.setattr(buttons, "_read_only", lambda: frozenset({"main"}))
    page = text()
    assert "act=requeue" not in page
    assert "all=orphan" not in page


def test_long_lists_come_in_pages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "SIZE", 2)
    found(desk, [stuck(str(number)) for number in range(5)])
    assert ids(text()) == ["0", "1"]
    assert ids(text(address="/stuck?from=4")) == ["4"]
    assert ids(text(address="/stuck?from=99")) == ["4"]


def wide(page: str) -> list[str]:
    """The acts on all that match, by their addresses."""
    return [html.unescape(link) for link in re.findall(r'href="(/act[^"]*matching=stuck[^"]*)"', page)]


def test_more_than_a_page_can_be_selected_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "SIZE", 2)
    found(desk, [stuck("1"), stuck("2")])
    assert wide(text()) == []
    found(desk, [stuck("1"), stuck("2"), stuck("3")])
    page = text()
    assert "All 3 matching:" in page
    assert [re.findall(r"act=(\w+)", link) for link in wide(page)] == [["requeue"], ["fail"], ["remove"]]
    assert [re.findall(r"act=(\w+)", link) for link in wide(text(UserRole.OPERATOR))] == [["requeue"], ["fail"]]
    assert wide(text(UserRole.VIEWER)) == []


def test_what_a_filter_holds_can_be_selected_at_once_and_the_link_carries_the_filter(desk: Desk) -> None:
    found(desk, [stuck("1"), stuck("2"), stuck("3", VerdictKind.WORKER_LOST)])
    page = text(address=f"/stuck?verdict=abandoned&queue=main/{BASE}")
    assert "All 2 matching:" in page
    asked = QueryDict(wide(page)[0].partition("?")[2])
    assert (asked["act"], asked["verdict"], asked["queue"]) == ("requeue", "abandoned", f"main/{BASE}")
    assert asked["back"].startswith("/stuck?")
    assert wide(text(address="/stuck?verdict=worker-lost")) == [], "one job has its own buttons"


def test_all_of_a_cut_inbox_are_those_that_are_listed(desk: Desk) -> None:
    found(desk, [stuck("1"), stuck("2")], more=400)
    assert "All 2 matching that are listed:" in text(address="/stuck?verdict=abandoned")


def test_nothing_is_offered_on_all_of_what_is_read_only(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard.actions import buttons

    found(desk, [stuck("1"), stuck("2")])
    monkeypatch.setattr(buttons, "_read_only", lambda: frozenset({"main"}))
    assert wide(text(address="/stuck?verdict=abandoned")) == []


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_it_is_only_read(desk: Desk, method: str) -> None:
    client: Client = browser(person(UserRole.ADMIN))
    for address in ("/stuck", "/stuck/rows", "/stuck/count"):
        assert getattr(client, method)(address).status_code == 405
