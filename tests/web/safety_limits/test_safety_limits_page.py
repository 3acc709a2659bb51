"""Safety limits on /scanners: each one with its evidence, and released by an admin with a reason."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import urlencode

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.scanners import views as scanners_views
from recovery.domain.identifiers import QueueRef, slug
from recovery.models import AuditEntry
from recovery.reads.safety_limits import queries as safety_limits_queries
from tests.support.people import browser, person
from tests.support.stuck.watching import bullmq, now_ms
from tests.web import safety_limit_rows
from tests.web.acting import BASE, REASON
from tests.web.conftest import Desk
from tests.web.safety_limit_rows import MAIL

pytestmark = pytest.mark.django_db(transaction=True)
NASTY = '"><img src=x onerror=alert(1)>'
QUEUE = f"main/{BASE}"


@pytest.fixture
def admin(desk: Desk) -> Client:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    scanners_views.forget()
    return browser(person(UserRole.ADMIN))


def board(client: Client) -> str:
    """What stands there now, whatever was read a moment ago."""
    scanners_views.forget()
    page = client.get("/scanners/now").content.decode()
    return page[page.index('id="safety-limits"') :]


def release(kind: str, key: str = "", **where: str) -> str:
    told = {"kind": kind, **(where or {"queue": QUEUE}), **({"key": key} if key else {})}
    return f"/scanners/safety-limits/release?{urlencode(told, safe='/:')}"


def test_when_nothing_holds_it_says_so(admin: Client) -> None:
    page = board(admin)
    assert "No safety limit is active." in page
    assert "Checked: main (not yet)." in page
    assert "Auto-recovery limited:" not in admin.get("/scanners").content.decode()


def test_a_store_that_is_held_is_told_with_its_evidence_and_released(admin: Client) -> None:
    safety_limit_rows.hold_store()
    page = board(admin)
    assert "380 of 400 active jobs lost their locks between two checks" in page
    address = release("store", deployment="main")
    assert f'href="{html.escape(address)}"' in page
    assert "Auto-recovery paused on main." in admin.get("/scanners").content.decode()
    shown = admin.get(address).content.decode()
    assert "380 of 400 active jobs" in shown
    assert "these jobs are treated as orphaned and run twice" in shown
    assert admin.post(address, {"reason": REASON}).status_code == 302
    assert safety_limits_queries.all_limits(now_ms()).holding == ()
    page = board(admin)
    assert "No safety limit is active." in page
    assert "Checked: main." in page
    entry = AuditEntry.objects.get()
    assert (entry.act, entry.reason) == ("release safety limit", REASON)


def test_an_open_breaker_is_told_with_its_error_and_released(admin: Client) -> None:
    key = safety_limit_rows.trip("connect ECONNREFUSED")
    page = board(admin)
    assert "18 of 20 auto-retries failed again, the last with “connect ECONNREFUSED”" in html.unescape(page)
    assert 'data-state="tripped">open' in page
    assert admin.post(release("breaker", key), {"reason": REASON}).status_code == 302
    assert "No safety limit is active." in board(admin)


def test_a_breaker_for_all_errors_of_a_queue_is_released_too(admin: Client) -> None:
    safety_limit_rows.trip("")
    assert "any error" in board(admin)
    assert admin.post(release("breaker"), {"reason": REASON}).status_code == 302
    assert "No safety limit is active." in board(admin)


def test_a_closed_breaker_holds_nothing_and_is_listed_with_its_count(admin: Client) -> None:
    safety_limit_rows.trip("connect ECONNREFUSED", failures=5)
    page = board(admin)
    assert "No safety limit is active." in page
    assert "Closed: 5 of the last 20 auto-retries failed again." in page


def test_a_job_at_its_cap_is_told_and_let_go(admin: Client) -> None:
    key = safety_limit_rows.cap("88412")
    page = board(admin)
    assert "Auto-retried 3 times within 3 d." in page
    assert ">88412</a>" in page
    assert admin.post(release("past", key), {"reason": REASON}).status_code == 302
    assert "No safety limit is active." in board(admin)


def test_a_quarantined_job_is_told_and_let_out_of_quarantine(admin: Client) -> None:
    key = safety_limit_rows.quarantine("7731")
    page = board(admin)
    assert "orphaned 3 times within 3 d. It may crash its workers." in page
    shown = admin.get(release("quarantine", key)).content.decode()
    assert "it can crash three more of them" in shown
    assert admin.post(release("quarantine", key), {"reason": REASON}).status_code == 302
    assert "No safety limit is active." in board(admin)


def test_a_budget_is_a_gauge(admin: Client) -> None:
    safety_limit_rows.spend(10)
    page = board(admin)
    assert re.search(r'<meter min="0" max="10" value="10" high="9"', page)
    assert "10 of 10 auto-retries in the last minute." in page
    assert "Next auto-retry <time" in page


def test_a_long_list_stays_in_order_the_worst_first(admin: Client) -> None:
    safety_limit_rows.quarantine("7731")
    safety_limit_rows.cap("88412")
    safety_limit_rows.trip()
    safety_limit_rows.hold_store()
    words = re.findall(r'<th scope="row">([\w -]+)<span class="badge"', board(admin))
    assert words == ["Redis pause", "Breaker", "Auto-retry limit", "Quarantine"]
    said = "1 breaker is open, 1 job reached its auto-retry limit, 1 job is in quarantine."
    assert said in admin.get("/scanners/now").content.decode()


@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.OPERATOR])
def test_only_an_admin_releases(admin: Client, role: UserRole) -> None:
    key = safety_limit_rows.trip()
    other = browser(person(role))
    assert "Release" not in board(other)
    assert other.post(release("breaker", key), {"reason": REASON}).status_code == 403
    assert safety_limits_queries.limits_of_queue(MAIL, now_ms()).breakers[0].is_open


def test_without_a_reason_nothing_is_released(admin: Client) -> None:
    key = safety_limit_rows.trip()
    answer = admin.post(release("breaker", key), {"reason": "  "})
    assert "Enter a reason." in answer.content.decode()
    assert safety_limits_queries.limits_of_queue(MAIL, now_ms()).breakers[0].is_open
    assert not AuditEntry.objects.exists()


def test_what_is_gone_meanwhile_is_told(admin: Client) -> None:
    key = safety_limit_rows.trip()
    address = release("breaker", key)
    assert admin.get(address).status_code == 200
    admin.post(address, {"reason": REASON})
    # It only counts now, and to release that changes nothing; a job that was let go is gone.
    capped = release("past", safety_limit_rows.cap("5"))
    admin.post(capped, {"reason": REASON})
    assert "Not found" in admin.post(capped, {"reason": REASON}).content.decode()


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/scanners/safety-limits/release", 404),
        (release("budget"), 404),
        (release("breaker", "nope"), 404),
        (release("store", deployment="nowhere"), 404),
        ("/scanners/safety-limits/release?kind=breaker&queue=~zz", 400),
    ],
)
def test_an_address_that_means_nothing_is_told(admin: Client, address: str, status: int) -> None:
    assert admin.get(address).status_code == status
    assert admin.post(address, {"reason": REASON}).status_code == status


def test_in_a_dialog_the_answer_is_a_toast(admin: Client) -> None:
    key = safety_limit_rows.trip()
    headers = {"HX-Request": "true"}
    assert "<html" not in admin.get(release("breaker", key), headers=headers).content.decode()
    answer = admin.post(release("breaker", key), {"reason": REASON}, headers=headers)
    assert answer.status_code == 204
    assert "Breaker released: bull:mail." in json.loads(answer.headers["HX-Trigger"])["unstall:toast"]["text"]


def test_a_secret_in_an_error_is_read_by_nobody(admin: Client) -> None:
    safety_limit_rows.trip("refused: password=hunter2-is-secret")
    for role in UserRole:
        assert "hunter2" not in board(browser(person(role)))


def test_harmful_names_are_only_text(desk: Desk, admin: Client) -> None:
    queue = QueueRef("main", f"bull:{NASTY}")
    bullmq(desk.client, queue.base)
    desk.look(queue.base)
    keys = {
        "breaker": safety_limit_rows.trip(NASTY, queue),
        "past": safety_limit_rows.cap(NASTY, queue),
        "quarantine": safety_limit_rows.quarantine(NASTY, queue),
    }
    safety_limit_rows.spend(3, queue)
    assert "<img" not in board(admin)
    for kind, key in keys.items():
        shown = admin.get(release(kind, key, queue=f"main/{slug(queue.base)}"))
        assert shown.status_code == 200, kind
        assert "<img" not in shown.content.decode()
