from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.accounts import user_changes
from dashboard.accounts.roles import UserRole
from dashboard.models import User
from tests.support.people import PASSWORD, browser, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def anna() -> User:
    return person(UserRole.ADMIN, "anna")


@pytest.fixture
def admin(anna: User) -> Client:
    return browser(anna)


def test_a_new_person_comes_in_by_the_link_that_is_shown_once(admin: Client) -> None:
    page = admin.post("/users/add", {"username": "boris", "role": "operator"})
    assert page.status_code == 201
    found = re.search(r'value="http://testserver(/welcome/[^"]+)"', page.content.decode())
    assert found
    assert found[1] not in admin.get("/users").content.decode()
    assert browser().post(found[1], {"password": PASSWORD}).status_code == 302
    boris = User.objects.get(username="boris")
    assert boris.role == UserRole.OPERATOR
    assert boris.check_password(PASSWORD)


def test_a_new_person_has_no_password_before_that(admin: Client) -> None:
    admin.post("/users/add", {"username": "boris", "role": "viewer"})
    assert not User.objects.get(username="boris").has_usable_password()


@pytest.mark.parametrize(
    ("username", "role", "why"),
    [
        ("ANNA", "viewer", "already in use"),
        ("", "viewer", "required"),
        ("boris", "emperor", "not one of the available"),
    ],
)
def test_who_cannot_be_added_is_not(admin: Client, username: str, role: str, why: str) -> None:
    answer = admin.post("/users/add", {"username": username, "role": role})
    assert answer.status_code == 422
    assert why in answer.content.decode()
    assert User.objects.count() == 1


def test_a_role_changes_at_once(admin: Client) -> None:
    boris = person(UserRole.VIEWER, "boris")
    his = browser(boris)
    assert his.get("/users").status_code == 403
    admin.post(reverse("user-role", args=[boris.pk]), {"role": "admin"})
    assert his.get("/users").status_code == 200


def test_the_last_admin_stays_one(admin: Client, anna: User) -> None:
    for name, sent in (("user-role", {"role": "viewer"}), ("user-active", {})):
        answer = admin.post(reverse(name, args=[anna.pk]), sent)
        assert answer.status_code == 409
        assert "last active admin" in answer.content.decode()
    anna.refresh_from_db()
    assert anna.is_active
    assert anna.role == UserRole.ADMIN


def test_an_admin_who_is_locked_out_saves_nobody(anna: User) -> None:
    User.objects.create(username="gone", role=UserRole.ADMIN, is_active=False)
    with pytest.raises(user_changes.LastAdmin):
        user_changes.set_role(anna, UserRole.VIEWER)


def test_with_two_admins_one_may_go(admin: Client, anna: User) -> None:
    person(UserRole.ADMIN, "boris")
    assert admin.post(reverse("user-active", args=[anna.pk])).status_code == 302
    assert admin.get("/users").status_code == 302


def test_somebody_who_was_locked_out_may_come_back(admin: Client) -> None:
    boris = User.objects.create(username="boris", is_active=False)
    admin.post(reverse("user-active", args=[boris.pk]), {"active": "on"})
    boris.refresh_from_db()
    assert boris.is_active


def test_there_is_no_link_for_who_is_locked_out(admin: Client) -> None:
    boris = User.objects.create(username="boris", is_active=False)
    assert admin.post(reverse("user-link", args=[boris.pk])).status_code == 404


def test_a_name_is_text_whatever_it_is(admin: Client) -> None:
    User.objects.create(username="<b>x</b>")
    page = admin.get("/users").content.decode()
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x</b>" not in page


def test_a_form_without_its_token_changes_nothing(anna: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(anna, backend="django.contrib.auth.backends.ModelBackend")
    answer = client.post("/users/add", {"username": "boris", "role": "viewer"})
    assert answer.status_code == 403
    assert "The form was not accepted" in answer.content.decode()
    assert User.objects.count() == 1
