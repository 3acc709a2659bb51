"""The password again: a stolen session changes no account, deletes nothing in bulk, and guesses no password."""

from __future__ import annotations

import pytest
from django.contrib.auth.hashers import make_password
from django.test import Client
from pytest_django import Settings

from dashboard.accounts import reauthentication
from dashboard.accounts.failed_logins import FailedLogins
from dashboard.accounts.login_limits import MOST, LoginFailureKind
from dashboard.accounts.reauthentication import SESSION_NAME
from dashboard.accounts.roles import UserRole
from dashboard.models import MachineToken, User
from recovery.reads.audit import queries as book
from tests.support.people import PASSWORD, browser, person
from tests.support.stuck.watching import bullmq
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def sums(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> FailedLogins:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    own = FailedLogins()
    monkeypatch.setattr("dashboard.accounts.login_views.failed_logins", own)
    return own


@pytest.fixture
def ada() -> User:
    return User.objects.create(username="ada", role=UserRole.ADMIN, password=make_password(PASSWORD))


def stolen(user: User) -> Client:
    """A session whose password was typed long ago."""
    client = browser(user)
    session = client.session
    session[SESSION_NAME] = 0
    session.save()
    return client


def test_a_form_waits_for_the_password_and_changes_nothing_meanwhile(ada: User) -> None:
    client = stolen(ada)
    sent = {"name": "ci", "scopes": "read", "days": "7"}
    assert client.post("/tokens/make", sent).headers["Location"] == "/password/again?next=%2Ftokens"
    assert not MachineToken.objects.exists()
    page = client.get("/password/again?next=/tokens").content.decode()
    assert 'value="/tokens"' in page
    answer = client.post("/password/again", {"old_password": PASSWORD, "next": "/tokens"})
    assert answer.headers["Location"] == "/tokens"
    assert client.post("/tokens/make", sent).status_code == 201
    assert [line.act for line in book.entries().lines] == ["create token", "confirm password"]


def test_a_hash_that_is_renewed_ends_no_session(ada: User, settings: Settings) -> None:
    client = stolen(ada)
    settings.PASSWORD_HASHERS = [
        f"django.contrib.auth.hashers.{name}Hasher" for name in ("PBKDF2Password", "MD5Password")
    ]
    client.post("/password/again", {"old_password": PASSWORD, "next": "/users"})
    ada.refresh_from_db()
    assert ada.password.startswith("pbkdf2_")
    assert client.get("/users").status_code == 200


def test_a_log_in_counts_for_a_while(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client = browser()
    client.post("/login", {"username": "ada", "password": PASSWORD})
    assert client.get("/users").status_code == 200
    monkeypatch.setattr(reauthentication, "RECENT_SECONDS", -1)
    assert client.get("/users").status_code == 302


def test_a_fragment_leads_the_whole_tab_there(ada: User) -> None:
    answer = stolen(ada).get("/users", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["HX-Redirect"]) == (200, "/password/again?next=%2Fusers")


def test_the_password_leads_nowhere_else(ada: User) -> None:
    answer = stolen(ada).post("/password/again", {"old_password": PASSWORD, "next": "https://evil.example/"})
    assert answer.headers["Location"] == "/queues"


@pytest.mark.parametrize("page", ["/password/again", "/password"])
def test_a_session_that_guesses_the_password_ends(ada: User, page: str, sums: FailedLogins) -> None:
    client, other = stolen(ada), browser(ada)
    sent = {"old_password": "wrong", "new_password1": "another quiet night", "new_password2": "another quiet night"}
    statuses = [client.post(page, sent).status_code for _ in range(MOST[LoginFailureKind.SESSION])]
    assert statuses == [422] * (MOST[LoginFailureKind.SESSION] - 1) + [302]
    assert client.get("/sessions").status_code == 302
    assert other.get("/sessions").status_code == 200
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)
    line = book.entries().lines[0]
    assert (line.act, line.actor, line.reason) == ("end session", "ada", "Too many wrong passwords in it.")
    sums.write(is_last=True)
    assert "failed log-in" in [line.act for line in book.entries().lines]


def test_the_right_password_forgets_the_slips_before_it(ada: User) -> None:
    client = stolen(ada)
    for _ in range(3):
        for _ in range(MOST[LoginFailureKind.SESSION] - 1):
            assert client.post("/password/again", {"old_password": "wrong"}).status_code == 422
        assert client.post("/password/again", {"old_password": PASSWORD}).status_code == 302


@pytest.fixture
def queue(desk: Desk) -> str:
    bullmq(desk.client, "bull:mail")
    desk.look("bull:mail")
    return "main/bull:mail"


@pytest.mark.parametrize("act", ["drain", "clean"])
def test_what_deletes_many_jobs_asks_first(queue: str, ada: User, act: str) -> None:
    address = f"/act?act={act}&queue={queue}"
    answer = stolen(ada).get(address)
    assert answer.headers["Location"] == f"/password/again?next=%2Fact%3Fact%3D{act}%26queue%3Dmain%2Fbull%3Amail"
    assert browser(ada).get(address).status_code == 200


def test_what_was_shown_before_is_not_done_without_the_password(queue: str, ada: User) -> None:
    client = browser(ada)
    address = f"/act?act=drain&queue={queue}"
    token = str(client.get(address).context["token"])
    session = client.session
    session[SESSION_NAME] = 0
    session.save()
    sent = {"step": "confirm", "token": token, "reason": "test", "word": "bull:mail"}
    assert client.post(address, sent).headers["Location"].startswith("/password/again?")
    assert not book.entries().lines


def test_what_puts_jobs_back_in_line_never_waits_for_a_password(queue: str, ada: User) -> None:
    client = stolen(ada)
    for act in ("pause", "resume"):
        assert client.get(f"/act?act={act}&queue={queue}").status_code == 200


def test_nobody_is_asked_who_reads(ada: User) -> None:
    client = stolen(person(UserRole.ADMIN))
    assert {client.get(page).status_code for page in ("/queues", "/audit", "/sessions", "/sessions/all")} == {200}
