"""/bulk/<id>: how far a run is, what came of each job, and who may stop it."""

from __future__ import annotations

import re

import pytest

from dashboard.accounts.reauthentication import SESSION_NAME
from dashboard.accounts.roles import UserRole
from recovery.domain.audit.hash_chain import canonical
from recovery.models import AuditEntry, BulkItem, BulkRun
from tests.support.people import browser, person
from tests.support.stuck.watching import now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
NASTY = '"><img src=x onerror=alert(1)>'


def run(**facts: object) -> BulkRun:
    told: dict[str, object] = {
        "created_at": now_ms() - 20_000,
        "started_at": now_ms() - 10_000,
        "status": "running",
        "act": "retry",
        "deployment": "main",
        "base": "bull:mail",
        "actor": canonical({"kind": "person", "name": "anna"}),
        "reason": "the mail server is back",
        "total": 1000,
        "done": 380,
        "refused": 20,
    }
    return BulkRun.objects.create(**(told | facts))


def text(number: int, role: UserRole = UserRole.ADMIN, more: str = "", status: int = 200) -> str:
    answer = browser(person(role)).get(f"/bulk/{number}{more}")
    assert answer.status_code == status
    return answer.content.decode()


def test_it_says_how_far_it_is_how_fast_and_how_long_still(desk: Desk) -> None:
    page = text(run().pk)
    assert 'value="400" max="1000"' in page
    assert "<b>380</b><span>done" in page
    assert "<b>20</b><span>skipped" in page
    assert "<b>600</b><span>left of 1,000" in page
    assert re.search(r"<b>\d+</b><span>jobs a second", page)
    assert re.search(r"<b>\d+ s</b><span>left, at this rate", page)
    assert "the mail server is back" in page


def test_afterwards_it_says_how_long_it_took(desk: Desk) -> None:
    at = now_ms()
    page = text(run(status="ended", started_at=at - 10_000, ended_at=at).pk)
    assert "<b>40</b><span>jobs a second" in page
    assert "<b>10 s</b><span>it took" in page


def test_a_run_of_less_than_a_second_has_a_rate_once_it_has_ended(desk: Desk) -> None:
    facts = {"total": 150, "done": 149, "refused": 0, "unknown": 1, "started_at": (at := now_ms() - 900)}
    assert "<b>–</b><span>jobs a second" in text(run(**facts).pk)
    page = text(run(status="ended", ended_at=at + 100, **facts).pk)
    assert "<b>1,500</b><span>jobs a second" in page
    assert "<b>1</b><span>result unknown" in page
    assert "<b>0</b><span>skipped" in page


def test_its_numbers_alone_ask_for_themselves_until_it_is_over(desk: Desk) -> None:
    found = run()
    numbers = text(found.pk, UserRole.OPERATOR, more="/numbers")
    assert "<b>380</b><span>done" in numbers
    assert f'hx-get="/bulk/{found.pk}/numbers" hx-trigger="every 1s"' in numbers
    over = text(run(status="ended", ended_at=now_ms()).pk, more="/numbers")
    assert "hx-get" not in over
    assert "bull:mail ended: 380 done, 20 skipped, 600 left." in over


def test_while_it_gathers_no_number_is_made_up(desk: Desk) -> None:
    page = text(run(status="gathering", total=300, done=0, refused=0).pk)
    assert not re.search(r"<progress [^>]*value=", page)
    assert "<b>–</b><span>jobs a second" in page


def test_it_refreshes_until_it_is_over(desk: Desk) -> None:
    assert "hx-get" in text(run().pk, more="/progress")
    over = text(run(status="ended", ended_at=now_ms()).pk, more="/progress")
    assert "hx-get" not in over
    assert "it took" in over


def test_each_job_has_its_outcome_and_its_reason(desk: Desk) -> None:
    found = run(total=3)
    told = (("1", "done", ""), ("2", "refused", "It is active now."), ("3", "", ""))
    for place, (job, outcome, why) in enumerate(told):
        BulkItem.objects.create(run=found, place=place, job=job, seen="{}", outcome=outcome, why=why, audit=7 + place)
    page = text(found.pk)
    assert "It is active now." in page
    assert "pending" in page
    assert "/audit/8" in page
    only = text(found.pk, more="?outcome=refused")
    assert ">2</a>" in only
    assert ">1</a>" not in only


def test_results_come_in_pages(desk: Desk) -> None:
    found = run(total=150)
    BulkItem.objects.bulk_create(
        BulkItem(run=found, place=place, job=str(place), seen="{}", outcome="done") for place in range(150)
    )
    page = text(found.pk)
    assert 'id="next"' in page
    assert ">149</a>" in text(found.pk, more="?cursor=99")


def test_an_admin_stops_it_and_lets_it_go_on(desk: Desk) -> None:
    found = run()
    admin = browser(person(UserRole.ADMIN))
    assert admin.post(f"/bulk/{found.pk}/stop").headers["Location"] == f"/bulk/{found.pk}"
    found.refresh_from_db()
    assert found.wants_stop
    assert "Stopping after this chunk" in text(found.pk)
    BulkRun.objects.update(status="stopped")
    assert "with the remaining 600 jobs" in text(found.pk)
    admin.post(f"/bulk/{found.pk}/go-on")
    found.refresh_from_db()
    assert (found.status, found.wants_stop) == ("waiting", False)
    assert AuditEntry.objects.filter(phase="note").count() == 2, "both are in the audit"


@pytest.mark.parametrize(("act", "waits"), [("remove", True), ("drain", True), ("fail", True), ("retry", False)])
def test_a_run_that_deletes_goes_on_after_the_password(desk: Desk, act: str, *, waits: bool) -> None:
    found, stolen = run(status="stopped", act=act), browser(person(UserRole.ADMIN))
    session = stolen.session
    session[SESSION_NAME] = 0
    session.save()
    answer = stolen.post(f"/bulk/{found.pk}/go-on")
    assert answer.headers["Location"].startswith("/password/again?" if waits else "/bulk/")
    found.refresh_from_db()
    assert found.status == ("stopped" if waits else "waiting")


@pytest.mark.parametrize("what", ["stop", "go-on"])
def test_nobody_else_does(desk: Desk, what: str) -> None:
    found = run()
    assert "Stop" not in text(found.pk, UserRole.VIEWER)
    assert browser(person(UserRole.VIEWER)).post(f"/bulk/{found.pk}/{what}").status_code == 403
    found.refresh_from_db()
    assert not found.wants_stop


def test_a_run_that_is_not_there_is_told(desk: Desk) -> None:
    assert "Not found" in text(99, status=404)
    assert browser(person(UserRole.ADMIN)).post("/bulk/99/stop").status_code == 404


def test_harmful_names_are_only_text(desk: Desk) -> None:
    from recovery.domain.identifiers import slug

    found = run(base=slug(f"bull:{NASTY}"), reason=NASTY, trouble=NASTY, total=1)
    BulkItem.objects.create(run=found, place=0, job=slug(NASTY), seen="{}", outcome="refused", why=NASTY)
    assert "<img" not in text(found.pk)
