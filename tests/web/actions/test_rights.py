"""What a page offers to a person is what the server takes from that person: every act, every role, every setting."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from recovery.actions.catalog import ENTRIES
from recovery.domain.actions.types import Action, Right
from recovery.domain.jobs import JobState
from recovery.models import BulkRun
from recovery.stores import registry
from tests.support.people import browser, person
from tests.support.stuck.watching import add, now_ms
from tests.web.acting import BASE, REASON, active, attended, failed, look, queue, through
from tests.web.conftest import Desk
from tests.web.inbox import found, stuck

pytestmark = pytest.mark.django_db(transaction=True)
PAUSED = "bull:paused"
EACH = (
    (UserRole.VIEWER, ""),
    *((UserRole.OPERATOR, setting) for setting in ("", "nothing", "many", "pause")),
    (UserRole.ADMIN, ""),
)
# Executions of n8n have pages of their own, and their acts are on single ones.
ON_PAGES = set(Action) - {Action.RETRY_EXECUTION, Action.RESCUE, Action.MARK, Action.RESTORE}
STATES = (JobState.ACTIVE, JobState.WAITING, JobState.DELAYED, JobState.COMPLETED, JobState.FAILED)


@pytest.fixture
def busy(desk: Desk) -> Iterator[Desk]:
    """Two jobs in each state, of which those that are active are orphans, but for one that is held; a queue at rest."""
    queue(desk)
    queue(desk, PAUSED)
    desk.client.hset(f"{PAUSED}:meta", "paused", 1)
    add(desk.client, BASE, "w1", "w2")
    for state, at in (("delayed", now_ms() + 3_600_000 << 12), ("completed", now_ms())):
        for number in (1, 2):
            id = f"{state}{number}"
            add(desk.client, BASE, id, finishedOn=now_ms()) if state == "completed" else add(desk.client, BASE, id)
            desk.client.lrem(f"{BASE}:wait", 1, id)
            desk.client.zadd(f"{BASE}:{state}", {id: at})
    failed(desk, "f1", "f2")
    active(desk, "a1", "a2")
    active(desk, "held", lock="token")
    desk.client.pexpire(f"{BASE}:held:lock", 3_600_000)  # however long the pages take
    with attended(desk):
        look(desk, BASE, PAUSED)
        found(desk, [stuck("a1"), stuck("a2")])
        yield desk


def allow(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("UNSTALL_OPERATORS_MAY", setting)
    registry.reset()


def offered(client: Client) -> set[str]:
    """The addresses of all buttons, with those that a form makes of two rows that are ticked."""
    tabs = [f"/queues/main/{BASE}/?tab={state}" for state in STATES]
    jobs = [f"/queues/main/{BASE}/jobs/{id}" for id in ("w1", "delayed1", "completed1", "f1", "a1", "held")]
    everything: set[str] = set()
    for address in (*tabs, *jobs, f"/queues/main/{PAUSED}/", "/stuck", "/stuck?verdict=abandoned"):
        page = client.get(address).content.decode()
        everything |= {html.unescape(link) for link in re.findall(r'href="(/act\?[^"]+)"', page)}
        ticked = re.findall(r'data-select name="job" value="([^"]+)"', page)[:2]
        picks = re.findall(r'<button type="submit" name="act" value="([\w-]+)"', page)
        everything |= {f"/act?act={act}" + "".join(f"&job={html.unescape(job)}" for job in ticked) for act in picks}
    return {re.sub(r"&back=[^&]*", "", address) for address in everything}


def test_what_is_offered_is_what_is_permitted(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    every = offered(browser(person(UserRole.ADMIN)))
    assert {act for act in ON_PAGES if any(f"act={act}" in one for one in every)} == ON_PAGES
    violations = []
    for role, setting in EACH:
        allow(monkeypatch, setting)
        client = browser(person(role))
        shown = offered(client)
        permitted = {one for one in every if client.get(one).status_code != 403}
        violations += [f"{role}, {setting!r}: {one}" for one in sorted(shown ^ permitted)]
    assert violations == []


@pytest.mark.parametrize(
    ("setting", "rights"),
    [
        ("", {Right.ACT, Right.MANY, Right.PAUSE}),
        ("nothing", {Right.ACT}),
        ("many", {Right.ACT, Right.MANY}),
        ("pause", {Right.ACT, Right.PAUSE}),
    ],
)
def test_operators_may_what_the_setting_says(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, setting: str, rights: set[Right]
) -> None:
    allow(monkeypatch, setting)
    assert UserRole.OPERATOR.rights == rights
    assert UserRole.ADMIN.rights == set(Right)
    assert UserRole.VIEWER.rights == set()


def test_nobody_but_who_may_act_in_bulk_deletes_many_jobs() -> None:
    assert {act for act, entry in ENTRIES.items() if entry.right(many=True) is Right.BULK} == {
        Action.REMOVE,
        Action.CLEAN,
        Action.DRAIN,
    }


def test_whoever_may_order_a_run_may_stop_it(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, admin = browser(person(UserRole.OPERATOR)), browser(person(UserRole.ADMIN))
    for act, may_stop in (("retry", True), ("remove", False)):
        through(admin, f"/act?act={act}&queue=main/{BASE}&all=failed")
        run = BulkRun.objects.latest("pk")
        assert (f"/bulk/{run.pk}/stop" in operator.get(f"/bulk/{run.pk}").content.decode()) is may_stop
        assert operator.post(f"/bulk/{run.pk}/stop").status_code == (302 if may_stop else 403)
        run.refresh_from_db()
        assert run.wants_stop is may_stop


def test_what_is_restored_together_takes_the_right_to_act_on_many(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = browser(person(UserRole.ADMIN))
    through(admin, f"/act?act=remove&job=main/{BASE}/f1&job=main/{BASE}/f2")
    for setting, may_restore in (("nothing", False), ("many", True)):
        allow(monkeypatch, setting)
        operator = browser(person(UserRole.OPERATOR))
        page = operator.get("/audit").content.decode()
        link = re.search(r'href="(/audit/\d+/restore)"', page)
        assert (link is not None) is may_restore
        number = re.search(r'href="(/audit/\d+/restore)"', admin.get("/audit").content.decode())
        assert number
        answer = operator.post(number[1], {"reason": REASON})
        assert answer.status_code == (200 if may_restore else 403)
