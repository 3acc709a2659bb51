"""Who came in, and who changed what others may do, is in the audit; without it neither happens."""

from __future__ import annotations

import pytest

from dashboard.accounts.roles import UserRole
from dashboard.models import User
from recovery.actions.audit import audit_log
from recovery.errors import NotRecorded
from recovery.reads.audit import queries as book
from tests.support.people import PASSWORD, browser, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password=PASSWORD, role=UserRole.ADMIN)


def log_in(name: str = "ada") -> int:
    return browser().post("/login", {"username": name, "password": PASSWORD}).status_code


def test_a_sign_in_is_noted(ada: User) -> None:
    assert log_in() == 302
    (line,) = book.entries().lines
    assert (line.act, line.actor_kind, line.actor, line.role) == ("log in", "person", "ada", "admin")
    assert (line.address, line.queue, line.status(line.at)) == ("127.0.0.1", None, "recorded")


def test_nobody_comes_in_past_the_audit(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise NotRecorded("the disk is full")

    monkeypatch.setattr(audit_log, "note", full)
    client = browser()
    answer = client.post("/login", {"username": "ada", "password": PASSWORD})
    assert answer.status_code == 503
    assert client.get("/queues").status_code == 302


def test_a_change_of_role_is_noted_with_both_roles(ada: User) -> None:
    ben = person(UserRole.VIEWER, "ben")
    assert browser(ada).post(f"/users/{ben.pk}/role", {"role": "operator"}).status_code == 302
    (line,) = book.entries().lines
    assert (line.act, line.actor) == ("change role", "ada")
    assert book.load_entry(line.number).body == {"person": "ben", "role": "operator", "before": "viewer"}


def test_a_role_does_not_change_past_the_audit(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise NotRecorded("the disk is full")

    monkeypatch.setattr(audit_log, "note", full)
    ben = person(UserRole.VIEWER, "ben")
    browser(ada).post(f"/users/{ben.pk}/role", {"role": "admin"})
    ben.refresh_from_db()
    assert ben.role == UserRole.VIEWER


def test_a_new_person_and_their_link_are_noted_without_the_link(ada: User) -> None:
    answer = browser(ada).post("/users/add", {"username": "eve", "role": "viewer"})
    assert answer.status_code == 201
    lines = book.entries().lines
    assert [line.act for line in lines] == ["create invite link", "invite user"]
    assert all("welcome" not in book.load_entry(line.number).link.body for line in lines)
