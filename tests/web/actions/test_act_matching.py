"""Acting on all that match a filter of the inbox: what was shown is what is done, in every queue of them."""

from __future__ import annotations

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.actions import action_preview, confirmation
from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.types import VerdictKind
from recovery.models import AuditEntry, BulkItem, BulkRun
from tests.support.people import browser, person
from tests.web.acting import BASE, active, confirm, look, queue, through
from tests.web.conftest import Desk
from tests.web.inbox import found, stuck

pytestmark = pytest.mark.django_db(transaction=True)
VIDEO = "bull:video"
ALL = "/act?act=requeue&matching=stuck"
ABANDONED = f"{ALL}&verdict=abandoned"


@pytest.fixture
def admin() -> Client:
    return browser(person(UserRole.ADMIN))


@pytest.fixture(autouse=True)
def two_queues(desk: Desk) -> None:
    """1 and 2 of mail and 4 of video are abandoned; 3 of mail is doomed."""
    queue(desk)
    queue(desk, VIDEO)
    active(desk, "1", "2", "3")
    active(desk, "4", base=VIDEO)
    look(desk, BASE, VIDEO)
    found(desk, [stuck("1"), stuck("2"), stuck("4", base=VIDEO), stuck("3", VerdictKind.WORKER_LOST)])


def waits(desk: Desk, base: str = BASE) -> set[bytes]:
    return set(desk.client.lrange(f"{base}:wait", 0, -1))


def nothing_was_done(desk: Desk) -> bool:
    return AuditEntry.objects.count() == 0 and not waits(desk) and not waits(desk, VIDEO)


def test_every_job_that_matches_is_done_in_every_queue(desk: Desk, admin: Client) -> None:
    page = admin.get(ABANDONED).content.decode()
    assert "Requeue 3 jobs in 2 queues" in page
    assert "All jobs listed as stuck, verdict abandoned." in page
    assert nothing_was_done(desk)
    assert b"3 jobs requeued" in through(admin, ABANDONED).content
    assert (waits(desk), waits(desk, VIDEO)) == ({b"1", b"2"}, {b"4"})
    assert desk.client.lrange(f"{BASE}:active", 0, -1) == [b"3"]


def test_the_filter_holds_a_queue_too(desk: Desk, admin: Client) -> None:
    address = f"{ALL}&queue=main/{VIDEO}"
    assert "Requeue 1 job in <code>bull:video</code>" in admin.get(address).content.decode()
    assert b"1 job requeued" in through(admin, address).content
    assert (waits(desk), waits(desk, VIDEO)) == (set(), {b"4"})


def test_it_takes_the_right_to_act_on_many_jobs(desk: Desk) -> None:
    viewer = browser(person(UserRole.VIEWER))
    assert viewer.get(ABANDONED).status_code == 403
    assert viewer.post(ABANDONED, {"step": "confirm", "reason": "x"}).status_code == 403
    assert nothing_was_done(desk)


def test_what_came_after_it_was_shown_is_not_meant(desk: Desk, admin: Client) -> None:
    found(desk, [stuck("1")])
    shown = admin.get(ABANDONED).content
    found(desk, [stuck("1"), stuck("2")])
    assert b"1 job requeued" in confirm(admin, ABANDONED, shown).content
    assert waits(desk) == {b"1"}


def test_what_was_put_right_meanwhile_is_shown_again(desk: Desk, admin: Client) -> None:
    shown = admin.get(ABANDONED).content
    found(desk, [stuck("1"), stuck("4", base=VIDEO)])
    again = confirm(admin, ABANDONED, shown)
    assert b"Jobs changed since this was shown" in again.content
    assert b"main/bull:mail#2" in again.content
    assert nothing_was_done(desk)
    assert b"2 jobs requeued" in confirm(admin, ABANDONED, again.content).content


def test_a_job_that_is_locked_again_is_shown_again(desk: Desk, admin: Client) -> None:
    shown = admin.get(ABANDONED).content
    desk.client.set(f"{BASE}:1:lock", "worker-a:1", px=20_000)
    again = confirm(admin, ABANDONED, shown).content
    assert b"Jobs changed" in again
    assert b"A worker holds its lock" in again
    assert nothing_was_done(desk)


def test_a_token_is_only_for_the_filter_that_was_shown(desk: Desk, admin: Client) -> None:
    shown = admin.get(ABANDONED).content
    assert b"You changed the options" in confirm(admin, ALL, shown).content
    assert nothing_was_done(desk)


def test_a_queue_that_is_gone_is_told_and_the_others_are_done(desk: Desk, admin: Client) -> None:
    found(desk, [stuck("1"), stuck("9", base="bull:gone"), stuck("8", base="bull:gone")])
    page = admin.get(ABANDONED).content.decode()
    assert "<code>bull:gone</code> 2 jobs: " in page
    assert b"1 job requeued" in confirm(admin, ABANDONED, page.encode()).content


def test_a_cut_list_is_said(desk: Desk, admin: Client) -> None:
    found(desk, [stuck("1"), stuck("2")], more=432)
    page = admin.get(ALL).content.decode()
    assert "The list has the 2 most urgent; 432 more are not listed and not selected." in page


@pytest.mark.parametrize("published", [True, False])
def test_when_nothing_matches_there_is_nothing_to_confirm(desk: Desk, admin: Client, published: bool) -> None:
    if published:
        found(desk)
    else:
        desk.state.client.flushdb()
        look(desk, BASE, VIDEO)
    page = admin.get(ALL)
    assert page.status_code == 200
    assert b'value="confirm"' not in page.content
    assert (b"Stuck jobs have not been checked yet" in page.content) is not published


def test_many_become_a_bulk_run_for_each_queue(desk: Desk, admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_preview, "JOBS_LIMIT", 2)
    answer = through(admin, ABANDONED)
    assert b"in bulk" in answer.content
    assert nothing_is_waiting(desk), "the scheduler does it, not the request"
    jobs = BulkItem.objects.values_list("run__base", "job")
    items = {base: {job for run, job in jobs if run == base} for base, _ in jobs}
    assert items == {BASE: {"1", "2"}, VIDEO: {"4"}}
    for run in BulkRun.objects.all():
        assert f'href="/bulk/{run.pk}"' in answer.content.decode()


def nothing_is_waiting(desk: Desk) -> bool:
    return not waits(desk) and not waits(desk, VIDEO)


@pytest.mark.parametrize("query", ["act=retry&matching=stuck", "act=requeue&matching=stuck&job=main/bull:mail/1"])
def test_what_is_not_understood_is_told_so(desk: Desk, admin: Client, query: str) -> None:
    assert admin.get(f"/act?{query}").status_code == 400


def test_ids_of_any_length_fit_into_the_form(desk: Desk, admin: Client) -> None:
    long = "x" * 5_000
    one, other = (QueueRef("main", BASE).job(f"{long}{end}") for end in "ab")
    assert len(confirmation.short_job_name(one)) < 400
    assert confirmation.short_job_name(one) != confirmation.short_job_name(other)
    active(desk, one.id)
    look(desk, BASE)
    found(desk, [stuck(one.id), stuck("1")])
    page = admin.get(ALL).content
    assert b"2 jobs requeued" in confirm(admin, ALL, page).content
