"""The dialog and the API name every job that changes with another one, and do no more than they showed."""

from __future__ import annotations

import pytest
from django.test import Client

from dashboard.accounts.reauthentication import SESSION_NAME
from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from recovery.actions.runner import NAMED_FROM
from tests.support.machines import Machine, told
from tests.support.people import browser, person
from tests.support.processes.families import child_of, job
from tests.web.acting import BASE, REASON, ask, confirm, look, queue, token
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
OTHER = "bull:invoices"


@pytest.fixture
def admin() -> Client:
    return browser(person(UserRole.ADMIN))


@pytest.fixture
def parent(desk: Desk) -> str:
    queue(desk)
    key = job(desk.client, BASE, "p")
    for number in range(25):
        child_of(desk.client, key, BASE, f"c{number}")
    child_of(desk.client, key, OTHER, "9")
    look(desk)
    return key


def chosen(client: Client, shown: bytes, **how: str) -> bytes:
    """The dialog again, with these ticked."""
    form = {"token": token(shown), "step": "look", "has_children": "1", "has_other_queues": "1", **how}
    page: bytes = client.post(ask("remove", "p"), form).content
    return page


def test_children_are_off_and_listed_once_they_are_chosen(desk: Desk, admin: Client, parent: str) -> None:
    first = admin.get(ask("remove", "p")).content
    assert b'name="children" id="how-children" data-looks>' in first.replace(b' aria-describedby="about-children"', b"")
    assert b"Also changed" not in first
    page = chosen(admin, first, children="on").decode()
    assert page.count("removed</span>") == 20
    assert "and 5 more" in page
    assert OTHER not in page.partition("<dt>Risk")[0]
    both = chosen(admin, first, children="on", other_queues="on").decode()
    assert "and 6 more" in both


def test_what_was_shown_is_what_goes(desk: Desk, admin: Client, parent: str) -> None:
    first = admin.get(ask("remove", "p")).content
    page = chosen(admin, first, children="on")
    fields = {"has_children": "1", "has_other_queues": "1", "children": "on"}
    child_of(desk.client, parent, BASE, "late")
    again = confirm(admin, ask("remove", "p"), page, **fields)
    assert "Jobs changed since this was shown" in again.content.decode()
    assert desk.client.exists(f"{BASE}:c1", f"{BASE}:late") == 2
    confirm(admin, ask("remove", "p"), again.content, **fields)
    assert desk.client.exists(f"{BASE}:p", f"{BASE}:c1", f"{BASE}:late") == 0
    assert desk.client.exists(f"{OTHER}:9")


def test_children_count_where_many_jobs_take_the_name_of_the_queue_and_the_password(desk: Desk, admin: Client) -> None:
    queue(desk)
    key = job(desk.client, BASE, "p")
    for number in range(NAMED_FROM - 1):
        child_of(desk.client, key, BASE, f"c{number}")
    look(desk)
    first = admin.get(ask("remove", "p")).content
    assert b'id="act-word"' not in first
    page = chosen(admin, first, children="on").decode()
    assert f"This affects {NAMED_FROM} jobs." in page
    assert 'id="act-word"' in page
    session = admin.session
    session[SESSION_NAME] = 0
    session.save()
    form = {"token": token(page.encode()), "step": "confirm", "has_children": "1", "children": "on", "reason": REASON}
    answer = admin.post(ask("remove", "p"), form | {"word": BASE})
    assert answer.headers["Location"].startswith("/password/again?")
    assert desk.client.exists(f"{BASE}:p", f"{BASE}:c1") == 2


def test_an_operator_is_told_which_right_it_takes(desk: Desk, parent: str) -> None:
    client = browser(person(UserRole.OPERATOR))
    page = chosen(client, client.get(ask("remove", "p")).content, children="on").decode()
    assert "It would also change 25 other jobs" in page
    assert "needs the permission to act in bulk" in page


def test_a_parent_in_another_queue_is_a_tick_of_its_own(desk: Desk, admin: Client) -> None:
    queue(desk)
    above = job(desk.client, OTHER, "p", "waiting-children")
    child_of(desk.client, above, BASE, "1")
    look(desk)
    page = admin.get(ask("remove", "1")).content.decode()
    assert "It would change jobs of other queues (bull:invoices p)." in page
    assert 'name="other_queues"' in page


def test_the_audit_page_lists_them(desk: Desk, admin: Client, parent: str) -> None:
    page = chosen(admin, admin.get(ask("remove", "p")).content, children="on")
    fields = {"has_children": "1", "has_other_queues": "1", "children": "on", "reason": REASON}
    confirm(admin, ask("remove", "p"), page, **fields)
    entry = admin.get("/audit/1").content.decode()
    assert entry.count("also changed: bull:mail c") == 20
    assert "and 5 more" in entry


def test_the_api_tells_them_too(desk: Desk, parent: str) -> None:
    machine = Machine(TokenScope.READ, TokenScope.ACT, TokenScope.BULK, TokenScope.AUDIT)
    order = {"act": "remove", "queue": f"main/{BASE}", "jobs": [{"id": "p"}], "reason": "a test"}
    (plain,) = told(machine.post("actions", order | {"dry_run": True}))["results"]
    assert (plain["affected"], plain["affected_total"]) == ([], 0)
    whole = order | {"options": {"children": True, "other_queues": True}}
    (foretold,) = told(machine.post("actions", whole | {"dry_run": True}))["results"]
    assert (len(foretold["affected"]), foretold["affected_total"]) == (20, 26)
    assert {one["change"] for one in foretold["affected"]} == {"removed"}
    (done,) = told(machine.post("actions", whole))["results"]
    assert (done["outcome"], done["affected_total"]) == ("done", 26)
    assert desk.client.exists(f"{OTHER}:9") == 0
    (audited,) = told(machine.get(f"audit/{done['audit']}"))["jobs"]
    assert (len(audited["affected"]), audited["affected_total"]) == (20, 26)


def test_a_token_for_single_jobs_takes_none_along(desk: Desk, parent: str) -> None:
    machine = Machine(TokenScope.READ, TokenScope.ACT)
    order = {"act": "remove", "queue": f"main/{BASE}", "jobs": [{"id": "p"}], "reason": "a test"}
    (refused,) = told(machine.post("actions", order | {"options": {"children": True}}))["results"]
    assert (refused["outcome"], "needs the permission to act in bulk" in refused["why"]) == ("refused", True)
    assert desk.client.exists(f"{BASE}:p", f"{BASE}:c1") == 2
