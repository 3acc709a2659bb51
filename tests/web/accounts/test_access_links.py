from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from dashboard.accounts import invitations
from dashboard.accounts.roles import UserRole
from dashboard.models import Invitation, User
from recovery import config
from tests.support.people import PASSWORD, browser, person

pytestmark = pytest.mark.django_db
FIRST = {"username": "anna", "password": PASSWORD}


def first_path() -> str:
    path = invitations.first_link()
    assert path is not None
    return path


def test_the_first_link_makes_an_admin_who_is_logged_in() -> None:
    client = browser()
    path = first_path()
    assert "Create the first admin account" in client.get(path).content.decode()
    answer = client.post(path, FIRST)
    assert answer.status_code == 302
    anna = User.objects.get()
    assert (anna.username, anna.role) == ("anna", UserRole.ADMIN)
    assert client.get("/users").status_code == 200


def test_there_is_no_first_link_once_there_is_an_admin() -> None:
    person(UserRole.ADMIN)
    assert invitations.first_link() is None


def test_an_admin_who_is_locked_out_does_not_count() -> None:
    User.objects.create(username="gone", role=UserRole.ADMIN, is_active=False)
    assert invitations.first_link()


def test_a_link_works_once() -> None:
    path = first_path()
    browser().post(path, FIRST)
    User.objects.all().delete()
    again = browser().post(path, {**FIRST, "username": "boris"})
    assert again.status_code == 404
    assert not User.objects.exists()


def test_looking_at_a_link_does_not_burn_it() -> None:
    path = first_path()
    browser().get(path)
    assert browser().post(path, FIRST).status_code == 302


def test_only_the_hash_of_a_token_is_kept() -> None:
    token = first_path().rpartition("/")[2]
    kept = Invitation.objects.get()
    assert token not in kept.token_hash
    assert len(kept.token_hash) == 64


def test_a_link_expires() -> None:
    path = first_path()
    Invitation.objects.update(expires_at=timezone.now())
    assert browser().get(path).status_code == 404


def test_a_newer_link_takes_the_place_of_the_older() -> None:
    older = first_path()
    first_path()
    assert browser().get(older).status_code == 404


def test_a_first_link_is_dead_once_another_way_made_an_admin() -> None:
    path = first_path()
    person(UserRole.ADMIN)
    assert browser().post(path, FIRST).status_code == 404


def test_of_two_who_use_a_link_at_the_same_moment_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has already been let through by the look when the first burns the link."""
    token = first_path().rpartition("/")[2]
    look = invitations.find

    def look_and_lose(token: str) -> Invitation:
        found = look(token)
        monkeypatch.setattr(invitations, "find", look)
        invitations.accept(token, username="quick", password=PASSWORD)
        return found

    monkeypatch.setattr(invitations, "find", look_and_lose)
    with pytest.raises(invitations.LinkSpent):
        invitations.accept(token, username="slow", password=PASSWORD)
    assert not User.objects.filter(username="slow").exists()


def test_a_person_keeps_name_and_role_and_chooses_only_the_password() -> None:
    chiara = person(UserRole.VIEWER, "chiara")
    path = invitations.link_for(chiara)
    browser().post(path, {"username": "emperor", "role": "admin", "password": PASSWORD})
    chiara.refresh_from_db()
    assert (chiara.username, chiara.role) == ("chiara", UserRole.VIEWER)
    assert chiara.check_password(PASSWORD)
    assert User.objects.count() == 1


def test_the_link_of_who_is_locked_out_is_dead() -> None:
    chiara = person(UserRole.VIEWER, "chiara")
    path = invitations.link_for(chiara)
    User.objects.update(is_active=False)
    assert browser().get(path).status_code == 404


@pytest.mark.parametrize(
    ("name", "password", "why"),
    [("anna", "short", "too short"), ("anna", "password1234", "too common"), ("a b<i>", PASSWORD, "valid username")],
)
def test_a_bad_choice_is_refused_and_the_link_stays_good(name: str, password: str, why: str) -> None:
    path = first_path()
    answer = browser().post(path, {"username": name, "password": password})
    assert answer.status_code == 422
    assert why in answer.content.decode()
    assert browser().get(path).status_code == 200


@pytest.mark.parametrize(
    ("environ", "origin"),
    [
        ({}, "http://127.0.0.1:8000"),
        ({"UNSTALL_TRUSTED_ORIGINS": "https://unstall.example.com,https://b"}, "https://unstall.example.com"),
        ({"UNSTALL_PUBLIC_URL": "https://console.example.com/"}, "https://console.example.com"),
    ],
    ids=["neither", "origins", "public"],
)
def test_the_command_prints_a_whole_link_or_says_that_there_is_an_admin(
    environ: dict[str, str], origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    config.current.cache_clear()
    out = StringIO()
    call_command("first-link", stdout=out)
    config.current.cache_clear()
    link = out.getvalue().strip()
    assert link.startswith(f"{origin}/welcome/")
    assert browser().get(link.removeprefix(origin)).status_code == 200
    person(UserRole.ADMIN)
    with pytest.raises(CommandError, match="There is already an admin"):
        call_command("first-link")
