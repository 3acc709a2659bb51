from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from dashboard.accounts.login_limits import MOST, LoginFailureKind
from dashboard.accounts.roles import UserRole
from dashboard.models import User
from tests.support.people import PASSWORD, browser, person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _quick(settings: Settings) -> None:
    """A password is checked at once, and not after the half second that the product's own hash takes."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def anna() -> User:
    return User.objects.create(username="anna", role=UserRole.OPERATOR, password=make_password(PASSWORD))


def attempt(client: object, password: str, **more: str) -> object:
    return client.post(reverse("login"), {"username": "anna", "password": password, **more})  # type: ignore[attr-defined]


def test_the_right_password_leads_to_the_page_that_was_asked_for(anna: User) -> None:
    client = browser()
    asked = client.get("/users")
    assert asked.status_code == 302
    assert asked.headers["Location"] == "/login?next=/users"
    answer = attempt(client, PASSWORD, next="/users")
    assert answer.headers["Location"] == "/users"  # type: ignore[attr-defined]
    assert client.session["_auth_user_id"] == str(anna.pk)


def test_the_login_leads_nowhere_else(anna: User) -> None:
    answer = attempt(browser(), PASSWORD, next="https://evil.example/")
    assert answer.headers["Location"] == reverse("overview")  # type: ignore[attr-defined]


def test_a_wrong_password_and_an_unknown_name_read_the_same(anna: User) -> None:
    wrong = browser().post("/login", {"username": "anna", "password": "no"}).content.decode()
    unknown = browser().post("/login", {"username": "nobody", "password": "no"}).content.decode()
    sentence = "Wrong user name or password."
    assert sentence in wrong
    assert sentence in unknown


def test_too_many_wrong_passwords_bring_a_pause_even_for_the_right_one(anna: User) -> None:
    client = browser()
    for _ in range(MOST[LoginFailureKind.PAIR]):
        answer = attempt(client, "wrong")
    answer = attempt(client, PASSWORD)
    assert answer.status_code == 429  # type: ignore[attr-defined]
    assert "Try again in 10 minutes" in answer.content.decode()  # type: ignore[attr-defined]
    assert answer.headers["Retry-After"] == "600"  # type: ignore[attr-defined]
    assert "_auth_user_id" not in client.session


def test_the_pause_is_for_one_name_from_one_address(anna: User) -> None:
    client = browser()
    for _ in range(MOST[LoginFailureKind.PAIR]):
        attempt(client, "wrong")
    elsewhere = client.post("/login", {"username": "anna", "password": PASSWORD}, REMOTE_ADDR="10.0.0.9")
    assert elsewhere.status_code == 302


def test_who_is_locked_out_is_out_at_once() -> None:
    viewer = person(UserRole.VIEWER)
    client = browser(viewer)
    assert client.get("/password").status_code == 200
    User.objects.filter(pk=viewer.pk).update(is_active=False)
    assert client.get("/password").status_code == 302


def test_a_lost_session_moves_the_whole_tab_not_a_table_cell() -> None:
    answer = browser().get("/banner", headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/queues?q=a"})
    assert answer.status_code == 200
    assert answer.headers["HX-Redirect"] == "/login?next=/queues%3Fq%3Da"
    assert answer.content == b""


def test_logging_out_ends_the_session_and_takes_a_post() -> None:
    client = browser(person(UserRole.VIEWER))
    assert client.get("/logout").status_code == 405
    assert client.post("/logout").headers["Location"] == "/login"
    assert client.get("/password").status_code == 302


def test_a_changed_password_ends_the_other_sessions(anna: User) -> None:
    here, there = browser(anna), browser(anna)
    new = "another quiet night"
    answer = here.post("/password", {"old_password": PASSWORD, "new_password1": new, "new_password2": new})
    assert answer.status_code == 302
    assert here.get("/password").status_code == 200
    assert there.get("/password").status_code == 302


def test_a_weak_password_is_refused_with_the_reason(anna: User) -> None:
    sent = {"old_password": PASSWORD, "new_password1": "12345", "new_password2": "12345"}
    answer = browser(anna).post("/password", sent)
    assert answer.status_code == 422
    assert "too short" in answer.content.decode()


def test_a_session_lasts_as_long_as_is_configured() -> None:
    client = browser(person(UserRole.VIEWER))
    ends = client.session.get_expiry_date()
    assert abs(ends - timezone.now() - timedelta(days=settings.SESSION_DAYS)) < timedelta(minutes=1)


def test_nobody_is_told_before_the_first_admin_how_to_make_one() -> None:
    assert "manage.py first-link" in browser().get("/login").content.decode()
    person(UserRole.ADMIN)
    assert "manage.py first-link" not in browser().get("/login").content.decode()
