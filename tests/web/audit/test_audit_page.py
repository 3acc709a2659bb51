"""/audit: what was done, found again, checked and taken along."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from django.utils.html import escape

from dashboard.accounts import failed_logins
from dashboard.accounts.failed_logins import FailedLogins
from dashboard.accounts.roles import UserRole
from recovery.actions import policy_edits
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, ActionCommand, Actor, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.models import AuditEntry, AuditJob
from tests.support.people import browser, person
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.web.acting import BASE, look
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
NASTY = '"><img src=x onerror=alert(1)>'


@pytest.fixture(autouse=True)
def mail(desk: Desk) -> None:
    bullmq(desk.client, BASE)
    look(desk)


def done(
    act: Action = Action.REQUEUE,
    *ids: str,
    who: str = "anna",
    outcome: Outcome | None = Outcome.DONE,
    why: str = "",
    base: str = BASE,
    reason: str = "eu-2 starved",
) -> int:
    """One act in the audit, with its outcome unless there is none."""
    ids = ids or ("42",)
    actor = Actor("person", who, "operator", "10.0.0.7")
    order = ActionCommand(
        act, QueueRef("main", base), actor, reason, tuple(ExpectedJob(id, JobState.ACTIVE) for id in ids)
    )
    before = [{"job": id, "before": {"state": "active", "name": "send", "attempts": 1}} for id in ids]
    number = audit_log.write_intent(order, {"options": {"reset_stalls": True}, "jobs": before}, ids)
    if outcome:
        after = [{"job": id, "outcome": outcome, "why": why, "after": {"state": "waiting"}} for id in ids]
        audit_log.write_outcome(number, order, {"jobs": after}, dict.fromkeys(ids, outcome))
    return number


def text(address: str = "/audit", role: UserRole = UserRole.ADMIN, status: int = 200) -> str:
    answer = browser(person(role)).get(address)
    assert answer.status_code == status
    return answer.content.decode()


def numbers(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="entry-(\d+)"', page)]


def test_an_act_says_who_what_when_from_where_why_and_what_came_of_it(desk: Desk) -> None:
    done()
    page = text()
    for part in (
        "requeue 1 job",
        ">42</a>",
        "bull:mail",
        "<b>anna</b>",
        "person, operator",
        "10.0.0.7",
        "eu-2 starved",
    ):
        assert part in page
    assert 'data-state="done">done' in page


def test_its_own_page_has_before_and_after_of_each_job(desk: Desk) -> None:
    number = done(Action.REQUEUE, "42", "43")
    page = text(f"/audit/{number}")
    assert "Requeue 2 jobs" in page
    assert page.count('data-state="active">active') == 2
    assert page.count('data-state="waiting">waiting') == 2
    assert "reset stalls: yes" in page
    assert AuditEntry.objects.get(number=number).hash in page
    assert text(f"/audit/{number + 1}").count("outcome: #") == 1, "the outcome's number leads to the same page"


def test_nothing_was_done_yet(desk: Desk) -> None:
    assert "No entries yet." in text()


@pytest.mark.parametrize(
    ("role", "is_told"), [(UserRole.VIEWER, False), (UserRole.OPERATOR, True), (UserRole.ADMIN, True)]
)
def test_from_where_people_came_is_not_for_viewers(desk: Desk, role: UserRole, is_told: bool) -> None:
    number = done()
    for address in ("/audit", f"/audit/{number}"):
        page = text(address, role)
        assert "anna" in page
        assert ("10.0.0.7" in page) is is_told


def test_the_filters_are_in_the_address(desk: Desk) -> None:
    first = done(who="anna")
    second = done(Action.FAIL, who="ben", outcome=Outcome.REFUSED, why="It is waiting now.")
    third = done(Action.REQUEUE, "7", base="bull:video")
    assert numbers(text()) == [third, second, first]
    assert numbers(text("/audit?actor=ben")) == [second]
    assert numbers(text("/audit?act=requeue")) == [third, first]
    assert numbers(text("/audit?outcome=refused")) == [second]
    assert numbers(text("/audit?queue=bull:video")) == [third]
    assert numbers(text("/audit?queue=bull:mail&job=42")) == [second, first]
    assert numbers(text("/audit?since=2999-01-01")) == []
    assert "No entry matches" in text("/audit?actor=nobody")


@pytest.mark.parametrize("query", ["cursor=x", "since=yesterday", "queue=%ff", "outcome=none", "act=%00", "cursor=-1"])
def test_an_address_with_nonsense_still_opens(desk: Desk, query: str) -> None:
    done()
    text(f"/audit?{query}")


def test_pages_lose_nothing(desk: Desk) -> None:
    made = {done() for _ in range(60)}
    first = text()
    older = re.search(r'id="older"[^>]*href="([^"]*)"', first)
    assert older
    assert {*numbers(first), *numbers(text(f"/audit{older[1]}"))} == made


def test_an_act_that_was_cut_off_says_so_and_how_it_looks_now(desk: Desk) -> None:
    add(desk.client, BASE, "42")
    number = done(outcome=None)
    AuditEntry.objects.filter(number=number).update(at=now_ms() - 120_000)
    assert "outcome unknown" in text()
    assert "Now: waiting, 0 attempts made, stalled 0 times." in text(f"/audit/{number}")


def test_an_edited_policy_says_where_and_what_it_changed(desk: Desk) -> None:
    ada = Actor("person", "ada", "admin", "10.0.0.7", may_act=True, may_bulk=True)
    edited = policy_edits.edit(ada, "main", BASE, {"never": {"names": [NASTY]}}, "charges twice")
    page = text(f"/audit/{edited}")
    assert f"<dt>Policy</dt><dd>{BASE} in main" in page
    assert f'<span class="sub">never name {escape(NASTY)}: nothing → forbidden</span>' in page
    assert NASTY not in page
    assert "nothing → forbidden" not in text(f"/audit/{done()}")
    edited = policy_edits.edit(ada, "main", "", {"orphan_watch": {"mode": "dry-run"}}, "to be sure")
    assert "No effective change." in text(f"/audit/{edited}")


def test_an_admin_verifies_the_chain(desk: Desk) -> None:
    done()
    last = done()
    admin = browser(person(UserRole.ADMIN))
    assert f"Chain verified up to #{last + 1}." in admin.post("/audit/verify").content.decode()
    AuditEntry.objects.filter(number=last).update(reason="nobody will know")
    page = admin.post("/audit/verify").content.decode()
    assert "Integrity check failed: the audit log was altered or damaged." in page
    assert f"#{last} altered" in page


def test_a_forged_outcome_in_the_index_is_not_shown_beside_a_whole_chain(desk: Desk) -> None:
    last = done()
    admin = browser(person(UserRole.ADMIN))
    assert "all entries are signed, and the job index matches them" in admin.post("/audit/verify").content.decode()
    AuditJob.objects.filter(entry_id=last).update(outcome="refused")
    page = admin.post("/audit/verify").content.decode()
    assert f"#{last} index" in page
    assert "Chain verified" not in page


def test_an_admin_takes_it_along(desk: Desk) -> None:
    done(reason="=cmd()")
    admin = browser(person(UserRole.ADMIN))
    whole = b"".join(admin.get("/audit/export?format=json").streaming_content)  # type: ignore[attr-defined] # a stream
    assert [entry["phase"] for entry in json.loads(whole)] == ["intent", "outcome"]
    answer = admin.get("/audit/export?format=csv")
    assert "attachment" in answer.headers["Content-Disposition"]
    table = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined] # a stream
    rows = list(csv.DictReader(io.StringIO(table)))
    assert rows[0]["reason"] == "'=cmd()", "no spreadsheet takes it for a formula"


@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.OPERATOR])
def test_others_read_it_and_neither_verify_nor_export(desk: Desk, role: UserRole) -> None:
    done()
    page = text(role=role)
    assert "requeue 1 job" in page
    assert "Export" not in page
    assert "Verify" not in page
    assert browser(person(role)).post("/audit/verify").status_code == 403
    assert browser(person(role)).get("/audit/export").status_code == 403


@pytest.mark.parametrize(("role", "is_shown"), [(UserRole.VIEWER, False), (UserRole.OPERATOR, True)])
def test_what_was_typed_as_a_name_is_not_for_viewers(desk: Desk, role: UserRole, is_shown: bool) -> None:
    """People type their password there."""
    sums = FailedLogins()
    sums.add("192.0.2.7", "hunter2-Kf9", "password", now=60.0)
    sums.write(now=180.0)
    number = AuditEntry.objects.get(act=failed_logins.ACT).number
    for address in ("/audit", f"/audit/{number}"):
        page = text(address, role)
        assert failed_logins.NOT_LOGGED_IN in page
        assert ("hunter2-Kf9" in page) is is_shown


def test_a_viewer_restores_nothing(desk: Desk) -> None:
    number = done(Action.REMOVE)
    for method in ("get", "post"):
        assert getattr(browser(person(UserRole.VIEWER)), method)(f"/audit/{number}/restore").status_code == 403


def test_an_entry_that_is_not_there_is_told(desk: Desk) -> None:
    assert "Not found" in text("/audit/99", status=404)
    assert "Not found" in text("/audit/99/restore", status=404)


def test_a_jobs_page_tells_what_was_done_to_it(desk: Desk) -> None:
    add(desk.client, BASE, "42", timestamp=now_ms() - 60_000)
    done(who="anna")
    page = text("/queues/main/bull:mail/jobs/42")
    assert "Requeued by anna" in page
    assert "eu-2 starved (#1)" in page


def test_harmful_names_are_only_text(desk: Desk) -> None:
    number = done(Action.REQUEUE, NASTY, who=NASTY, reason=NASTY, why=NASTY)
    assert "<img" not in text()
    assert "<img" not in text(f"/audit/{number}")
