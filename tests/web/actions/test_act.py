"""Acting: what was shown is what is done, to whom it is allowed, and nothing else ever."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.actions import confirmation
from recovery.domain.stuck.types import VerdictKind
from recovery.models import AuditEntry, BulkRun
from recovery.stores import registry
from tests.support.people import browser, person
from tests.web.acting import (
    BASE,
    REASON,
    active,
    ask,
    attended,
    completed,
    confirm,
    failed,
    look,
    picture,
    queue,
    through,
    token,
)
from tests.web.conftest import Desk
from tests.web.inbox import found, stuck

# The audit commits its intent before anything is done: a test's own transaction would be in its way.
pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}


@pytest.fixture
def operator() -> Client:
    return browser(person(UserRole.OPERATOR))


@pytest.fixture
def admin() -> Client:
    return browser(person(UserRole.ADMIN))


@pytest.fixture(autouse=True)
def mail(desk: Desk) -> None:
    queue(desk)


def nothing_was_done(desk: Desk) -> bool:
    return AuditEntry.objects.count() == 0 and desk.client.llen(f"{BASE}:wait") == 0


def test_the_dialog_says_what_how_many_and_at_what_risk_and_changes_nothing(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    before = picture(desk)
    page = operator.get(ask("requeue", "7")).content.decode()
    assert "Requeue 1 job in" in page
    assert "goes back to wait" in page
    assert "runs again from its start" in page
    assert 'name="reason"' in page
    assert picture(desk) == before
    assert AuditEntry.objects.count() == 0


def test_what_was_confirmed_is_done_and_recorded(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    answer = through(operator, ask("requeue", "7"))
    assert answer.status_code == 200
    assert b"1 job requeued" in answer.content
    assert desk.client.lrange(f"{BASE}:wait", 0, -1) == [b"7"]
    assert desk.client.llen(f"{BASE}:active") == 0
    intent, outcome = AuditEntry.objects.order_by("number")
    assert (intent.phase, intent.actor, intent.reason) == ("intent", "some-operator", REASON)
    assert (outcome.phase, outcome.intent) == ("outcome", intent.number)


def test_with_scripts_the_answer_is_a_toast_and_the_page_refreshes(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    answer = through(operator, ask("requeue", "7"), headers=HTMX)
    assert answer.status_code == 204
    told = json.loads(answer.headers["HX-Trigger"])
    assert "unstall:acted" in told
    assert told["unstall:toast"] == {"text": "1 job requeued in bull:mail.", "tone": "good"}


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_viewer_is_refused(desk: Desk, method: str) -> None:
    active(desk, "7")
    look(desk)
    answer = getattr(browser(person(UserRole.VIEWER)), method)(ask("requeue", "7"))
    assert answer.status_code == 403
    assert nothing_was_done(desk)


def test_an_operator_without_the_right_to_many_acts_on_one_job_and_not_on_two(
    desk: Desk, operator: Client, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(desk, "bull:video")
    active(desk, "7", "8")
    active(desk, "9", base="bull:video")
    look(desk, BASE, "bull:video")
    monkeypatch.setenv("UNSTALL_OPERATORS_MAY", "nothing")
    registry.reset()
    assert operator.get(ask("requeue", "7", "8")).status_code == 403
    in_two_queues = f"{ask('requeue', '7')}&job=main/bull:video/9"
    assert operator.get(in_two_queues).status_code == 403
    assert through(admin, ask("requeue", "7", "8")).status_code == 200
    assert desk.client.llen(f"{BASE}:wait") == 2


def test_a_post_that_no_dialog_of_ours_sent_is_refused(desk: Desk) -> None:
    active(desk, "7")
    look(desk)
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(person(UserRole.OPERATOR), backend="django.contrib.auth.backends.ModelBackend")
    assert client.post(ask("requeue", "7"), {"step": "confirm", "reason": "x"}).status_code == 403
    assert nothing_was_done(desk)


@pytest.mark.parametrize("forged", ["", "nonsense", "eyJhIjoxfQ:1abc:xyz"])
def test_without_its_token_it_is_shown_again(desk: Desk, operator: Client, forged: str) -> None:
    active(desk, "7")
    look(desk)
    address = ask("requeue", "7")
    answer = confirm(operator, address, operator.get(address).content, token=forged)
    assert b"does not belong to this dialog" in answer.content
    assert nothing_was_done(desk)


def test_a_token_is_only_for_whom_it_was_made(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    address = ask("requeue", "7")
    shown = browser(person(UserRole.OPERATOR, "somebody-else")).get(address).content
    assert b"opened by another user" in confirm(operator, address, shown).content
    assert nothing_was_done(desk)


def test_a_token_is_only_for_what_was_shown(desk: Desk, operator: Client) -> None:
    active(desk, "7", "8")
    look(desk)
    shown = operator.get(ask("requeue", "7")).content
    assert b"Jobs changed" in confirm(operator, ask("requeue", "8"), shown).content
    assert b"You changed the options" in confirm(operator, ask("fail", "7"), shown).content
    assert nothing_was_done(desk)


def test_an_old_token_is_stale(desk: Desk, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    active(desk, "7")
    look(desk)
    address = ask("requeue", "7")
    shown = operator.get(address).content
    monkeypatch.setattr(confirmation, "LIFE_SECONDS", -1)
    assert b"older than ten minutes" in confirm(operator, address, shown).content
    assert nothing_was_done(desk)


def test_what_moved_meanwhile_is_shown_again_as_it_is_now(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    address = ask("requeue", "7")
    shown = operator.get(address).content
    desk.client.set(f"{BASE}:7:lock", "worker-a:1", px=20_000)
    again = confirm(operator, address, shown).content.decode()
    assert "Jobs changed since this was shown" in again
    assert "main/bull:mail#7" in again
    assert "A worker holds its lock" in again
    assert nothing_was_done(desk)


def test_what_is_shown_again_can_be_confirmed(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    address = ask("requeue", "7")
    shown = operator.get(address).content
    desk.client.hset(f"{BASE}:7", "stc", 1)
    again = confirm(operator, address, shown).content
    assert token(again) != token(shown)
    assert b"1 job requeued" in confirm(operator, address, again).content


def test_a_changed_option_is_looked_at_before_it_is_done(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    address = ask("requeue", "7")
    shown = operator.get(address).content
    how = {"has_reset_stalls": "1", "reset_stalls": "on", "has_counts_as_stall": "1"}
    again = confirm(operator, address, shown, **how)
    assert b"Check the result again" in again.content
    assert nothing_was_done(desk)
    assert b"1 job requeued" in confirm(operator, address, again.content, **how).content
    assert desk.client.hget(f"{BASE}:7", "stc") in (None, b"0")


def test_a_reason_is_required(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    answer = through(operator, ask("requeue", "7"), reason="   ")
    assert b"Enter a reason" in answer.content
    assert nothing_was_done(desk)


def test_what_ends_for_good_asks_for_the_queues_name(desk: Desk, admin: Client) -> None:
    failed(desk, "1")
    queue_jobs = ("a", "b")
    desk.client.rpush(f"{BASE}:wait", *queue_jobs)
    for id in queue_jobs:
        desk.client.hset(f"{BASE}:{id}", mapping={"name": "x", "data": "{}", "timestamp": 1, "opts": "{}"})
    look(desk)
    address = ask("drain", queue=f"main/{BASE}")
    wrong = through(admin, address, word="bull:male")
    assert "The text does not match “bull:mail”" in wrong.content.decode()
    assert desk.client.llen(f"{BASE}:wait") == 2
    done = confirm(admin, address, wrong.content, word=" bull:mail ")
    assert b"2 removed" in done.content
    assert desk.client.llen(f"{BASE}:wait") == 0
    assert desk.client.zcard(f"{BASE}:failed") == 1


def test_what_was_removed_can_be_restored(desk: Desk, operator: Client) -> None:
    failed(desk, "9")
    look(desk)
    done = through(operator, ask("remove", "9"))
    assert b">Restore</a>" in done.content
    assert not desk.client.exists(f"{BASE}:9")
    number = AuditEntry.objects.order_by("-number")[0].number
    address = f"/audit/{number}/restore"
    assert b"Restore 1 job" in operator.get(address).content
    assert b"Enter a reason" in operator.post(address, {"reason": ""}).content
    assert b"1 job restored" in operator.post(address, {"reason": "it was the wrong one"}).content
    assert desk.client.zscore(f"{BASE}:failed", "9") is not None
    assert operator.get(address).status_code == 404


def test_what_is_refused_says_why_and_cannot_be_confirmed(desk: Desk, operator: Client) -> None:
    active(desk, "7", lock="worker-a:1")
    look(desk)
    page = operator.get(ask("requeue", "7")).content.decode()
    assert "A worker holds its lock" in page
    assert 'value="confirm"' not in page


def test_force_is_offered_with_its_warning_only_where_it_is_needed(desk: Desk, operator: Client) -> None:
    active(desk, "7", lock="worker-a:1")
    active(desk, "8")
    with attended(desk):
        look(desk)
        held = operator.get(ask("release", "7")).content.decode()
        assert "will run twice" in held
        assert 'name="force"' in held
        assert 'name="force"' not in operator.get(ask("requeue", "8")).content.decode()


def test_a_job_that_completed_meanwhile_is_retried_only_with_a_tick(desk: Desk, operator: Client) -> None:
    completed(desk, "7")
    look(desk)
    address = ask("retry", "7", **{"in": "failed"})
    page = operator.get(address).content.decode()
    assert "It has completed: a retry does its work a second time." in page
    assert 'name="rerun_completed"' in page
    assert 'value="confirm"' not in page
    how = {"has_rerun_completed": "1", "rerun_completed": "on"}
    again = operator.post(address, how).content
    assert b"1 job retried" in confirm(operator, address, again, **how).content


def test_all_completed_jobs_are_retried_by_who_names_them(desk: Desk, admin: Client) -> None:
    completed(desk, "1", "2")
    look(desk)
    address = ask("retry", queue=f"main/{BASE}", all="completed")
    confirm(admin, address, admin.get(address).content)
    assert json.loads(BulkRun.objects.get().options)["rerun_completed"] is True


@pytest.mark.parametrize(("act", "did"), [("requeue", "requeued"), ("release", "released")])
def test_a_line_of_the_inbox_says_at_once_what_was_done_to_it(desk: Desk, operator: Client, act: str, did: str) -> None:
    active(desk, "7", "8", lock="gone:1" if act == "release" else "")
    look(desk)
    lines = [stuck("7", VerdictKind.WORKER_LOST if act == "release" else VerdictKind.ORPHAN), stuck("8")]
    found(desk, lines)
    before = operator.get("/stuck").content.decode()
    through(operator, ask(act, "7"))
    page = operator.get("/stuck/rows").content.decode()
    assert f'data-state="done">{did}</span>' in page
    assert f"{did.capitalize()} by <b>some-operator</b>" in page
    assert "%2F7" in before
    assert "%2F7" not in page, "nothing is offered for it"
    assert "%2F8" in page
    found(desk, lines, age=-5000)
    assert operator.get("/stuck/rows").content.decode().count('data-state="done"') == 0, "it was looked at since"


def test_a_list_shows_at_once_what_was_done(desk: Desk, operator: Client) -> None:
    active(desk, "7")
    look(desk)
    page = f"/queues/main/{BASE}/?tab=active"
    assert b"/jobs/7" in operator.get(page).content
    through(operator, ask("requeue", "7"))
    assert b"/jobs/7" not in operator.get(page).content


def test_a_job_that_is_gone_is_told_and_the_others_are_done(desk: Desk, admin: Client) -> None:
    active(desk, "7")
    look(desk)
    page = admin.get(ask("requeue", "7", "none")).content
    assert b"The job does not exist (any more)." in page
    assert b"1 job requeued" in confirm(admin, ask("requeue", "7", "none"), page).content


def test_all_of_a_list_becomes_a_bulk_run(desk: Desk, admin: Client, viewer: Client) -> None:
    failed(desk, "1", "2", "3")
    look(desk)
    address = ask("retry", queue=f"main/{BASE}", all="failed")
    assert viewer.get(address).status_code == 403
    page = admin.get(address)
    assert b"Retry 3 failed jobs in" in page.content
    answer = confirm(admin, address, page.content)
    run = BulkRun.objects.get()
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/bulk/{run.pk}")
    assert json.loads(run.selection)["state"] == "failed"
    assert desk.client.zcard(f"{BASE}:failed") == 3, "the scheduler does it, not the request"


def test_all_orphans_are_counted_and_a_name_is_typed_from_a_hundred_on(desk: Desk, admin: Client) -> None:
    look(desk)
    address = ask("requeue", queue=f"main/{BASE}", all="orphan")
    unknown = admin.get(address).content.decode()
    assert "How many jobs this affects is not known. Type <code>bull:mail</code>" in unknown
    found(
        desk, [stuck("1", VerdictKind.ORPHAN), stuck("2", VerdictKind.ABANDONED), stuck("3", VerdictKind.WORKER_LOST)]
    )
    few = admin.get(address).content.decode()
    assert "Requeue 2 orphans in" in few
    assert ">Requeue 2 jobs</button>" in few
    assert 'name="word"' not in few
    found(desk, [stuck("1")], more=99)
    many = admin.get(address).content.decode()
    assert "This affects 100 jobs. Type <code>bull:mail</code>" in many


@pytest.mark.parametrize(
    "query",
    [
        "",
        "act=explode&job=main/bull:mail/1",
        "act=requeue",
        "act=requeue&job=1",
        "act=requeue&job=main/bull~zz/1",
        "act=retry&queue=main/bull:mail&all=everything",
        "act=requeue&" + "&".join(f"job=main/bull:mail/{n}" for n in range(101)),
    ],
)
def test_an_address_that_asks_for_nothing_is_told_so(desk: Desk, admin: Client, query: str) -> None:
    look(desk)
    answer = admin.get(f"/act?{query}")
    assert answer.status_code == 400
    assert b"This cannot be done" in answer.content


def test_harmful_names_are_only_text(desk: Desk, operator: Client) -> None:
    nasty = '"><img src=x onerror=alert(1)>'
    active(desk, nasty, name="<script>alert(2)</script>")
    look(desk)
    page = operator.get(ask("requeue", nasty)).content.decode()
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert "<script>alert" not in page
    assert b"1 job requeued" in through(operator, ask("requeue", nasty)).content
    assert nasty.encode() in desk.client.lrange(f"{BASE}:wait", 0, -1)


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_it_leads_back_only_into_our_own_house(desk: Desk, operator: Client, elsewhere: str) -> None:
    active(desk, "7")
    look(desk)
    assert b"evil" not in operator.get(ask("requeue", "7", back=elsewhere)).content
    assert b"javascript:" not in operator.get(ask("requeue", "7", back=elsewhere)).content


def test_without_the_audit_nothing_is_done(desk: Desk, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def full(*_: object, **__: object) -> None:
        raise OperationalError("database or disk is full")

    active(desk, "7")
    look(desk)
    page = operator.get(ask("requeue", "7")).content
    monkeypatch.setattr(AuditEntry, "save", full)
    answer = confirm(operator, ask("requeue", "7"), page)
    assert answer.status_code == 503
    assert b"Nothing was done" in answer.content
    assert desk.client.llen(f"{BASE}:active") == 1
