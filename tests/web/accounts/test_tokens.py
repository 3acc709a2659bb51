"""/tokens: admins make machine tokens, see them once, and revoke them; the audit hears of it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.models import MachineToken
from recovery.actions.audit import audit_log
from recovery.errors import NotRecorded
from recovery.models import AuditEntry
from tests.support.machines import Machine, told
from tests.support.people import browser, person
from tests.support.stuck.watching import bullmq
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
FORM = {"name": "deploy", "scopes": ["read", "act"], "days": "30"}


@pytest.fixture
def admin() -> Client:
    return browser(person(UserRole.ADMIN, "anna"))


def made(admin: Client, **changed: object) -> str:
    page = admin.post("/tokens/make", FORM | changed)
    assert page.status_code == 201
    found = re.search(r'value="(unstall_[A-Za-z0-9_-]+)"', page.content.decode())
    assert found
    return found[1]


def test_a_token_is_shown_once_and_works(admin: Client, desk: Desk) -> None:
    bullmq(desk.client, "bull:mail")
    desk.look("bull:mail")
    machine = Machine()
    machine.token = made(admin)
    assert told(machine.get("queues"))["matched"] == 1
    page = admin.get("/tokens").content.decode()
    assert machine.token not in page
    assert machine.token[:14] in page
    assert "read act" in page


def test_it_expires_when_it_was_said(admin: Client) -> None:
    made(admin)
    left = MachineToken.objects.get().expires_at - timezone.now()
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30)
    assert '<option value="90" selected>' in admin.get("/tokens").content.decode()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": ""}, "required"),
        ({"name": "<b>"}, "Letters, digits"),
        ({"name": "x" * 61}, "at most 60"),
        ({"name": "a\x00b"}, "Null characters"),
        ({"scopes": []}, "Select at least one scope"),
        ({"scopes": ["read", "everything"]}, "not one of the available"),
        ({"days": "0"}, "not one of the available"),
        ({"days": "36500"}, "not one of the available"),
        ({"days": ""}, "required"),
    ],
)
def test_what_cannot_be_is_not_made(admin: Client, changed: dict[str, object], why: str) -> None:
    answer = admin.post("/tokens/make", FORM | changed)
    assert answer.status_code == 422
    assert why in answer.content.decode()
    assert not MachineToken.objects.exists()


def test_a_name_is_used_once_also_after_it_was_revoked(admin: Client) -> None:
    made(admin)
    token = MachineToken.objects.get()
    admin.post(f"/tokens/{token.pk}/revoke")
    answer = admin.post("/tokens/make", FORM | {"name": "DEPLOY"})
    assert answer.status_code == 422
    assert "already in use" in answer.content.decode()


def test_two_who_take_one_name_at_once_do_not_both_get_it(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made(admin)
    monkeypatch.setattr("dashboard.accounts.forms.TokenForm.clean_name", lambda form: form.cleaned_data["name"])
    answer = admin.post("/tokens/make", FORM)
    assert answer.status_code == 422
    assert MachineToken.objects.count() == 1


def test_the_audit_hears_of_both_and_keeps_no_token(admin: Client) -> None:
    written = made(admin)
    token = MachineToken.objects.get()
    admin.post(f"/tokens/{token.pk}/revoke")
    admin.post(f"/tokens/{token.pk}/revoke")
    entries = list(AuditEntry.objects.order_by("number"))
    assert [(entry.act, entry.actor, entry.phase) for entry in entries] == [
        ("create token", "anna", "note"),
        ("revoke token", "anna", "note"),
    ]
    assert '"token":"deploy"' in entries[0].body
    assert written not in entries[0].body


def test_what_cannot_be_audited_is_not_made(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise NotRecorded("The audit cannot be written, so nothing was changed.")

    monkeypatch.setattr(audit_log, "note", full)
    answer = admin.post("/tokens/make", FORM)
    assert answer.status_code in (409, 503)
    assert not MachineToken.objects.exists()


def test_revoking_takes_effect_at_once_and_is_listed(admin: Client, desk: Desk) -> None:
    machine = Machine()
    machine.token = made(admin)
    answer = admin.post(f"/tokens/{MachineToken.objects.get().pk}/revoke", follow=True)
    assert "Token deploy was revoked" in answer.content.decode()
    assert "revoked" in admin.get("/tokens").content.decode()
    assert machine.get("queues").status_code == 401


def test_a_token_that_does_not_exist_is_not_revoked(admin: Client) -> None:
    assert admin.post("/tokens/77/revoke").status_code == 404


@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.OPERATOR])
def test_nobody_else_makes_sees_or_revokes_any(role: UserRole) -> None:
    Machine(TokenScope.READ)
    other = browser(person(role))
    assert other.get("/tokens").status_code == 403
    assert other.post("/tokens/make", FORM).status_code == 403
    assert other.post(f"/tokens/{MachineToken.objects.get().pk}/revoke").status_code == 403
    assert MachineToken.objects.get().revoked_at is None
    for page in ("/password", "/api"):
        assert 'href="/tokens"' not in other.get(page).content.decode()


def test_a_form_without_its_csrf_token_makes_none(admin: Client) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(person(UserRole.ADMIN, "anna"), backend="django.contrib.auth.backends.ModelBackend")
    assert client.post("/tokens/make", FORM).status_code == 403
    assert not MachineToken.objects.exists()


def test_scopes_of_another_version_are_no_right(desk: Desk) -> None:
    machine = Machine(TokenScope.READ)
    MachineToken.objects.update(scopes="gate everything")
    assert machine.get("queues").status_code == 403


def test_a_dead_database_makes_none(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr("dashboard.accounts.tokens.make", dead)
    assert admin.post("/tokens/make", FORM).status_code == 503
