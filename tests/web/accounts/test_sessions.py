"""Sessions: what is kept of them, when they end, and who may end them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.hashers import make_password
from django.db import DatabaseError
from django.test import AsyncClient, Client, RequestFactory
from django.utils import timezone
from pytest_django import Settings

from dashboard.accounts import sessions, tokens
from dashboard.accounts.roles import UserRole
from dashboard.accounts.sessions import SessionStore, browser_name
from dashboard.accounts.token_scopes import TokenScope
from dashboard.live import session as live
from dashboard.models import LoginSession, User
from dashboard.server.page_concurrency import VALID
from recovery.reads.audit import queries as book
from tests.support.people import PASSWORD, browser, person

pytestmark = pytest.mark.django_db
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"


def is_in(client: Client) -> bool:
    return client.get("/sessions").status_code == 200


def row(client: Client) -> LoginSession:
    return LoginSession.objects.get(key_hash=sessions.digest(client.session.session_key or ""))


def test_the_key_of_a_session_is_nowhere_in_the_database() -> None:
    client = browser(person(UserRole.VIEWER))
    assert is_in(client)
    key = client.cookies["unstall-session"].value
    assert LoginSession.objects.count() == 1
    assert key not in str(LoginSession.objects.values().get())
    thief = Client()
    thief.cookies["unstall-session"] = LoginSession.objects.get().key_hash
    assert not is_in(thief)


def test_a_session_is_found_written_renewed_and_deleted_by_its_key() -> None:
    store = SessionStore()
    store["n"] = 1
    store.save()
    key = store.session_key
    assert key
    assert store.exists(key)
    assert SessionStore(key)["n"] == 1
    store["n"] = 2
    store.save()
    store.cycle_key()
    store.save()
    assert not store.exists(key)
    assert SessionStore(store.session_key)["n"] == 2
    store.flush()
    assert not LoginSession.objects.exists()


def test_a_session_that_was_ended_meanwhile_is_not_written_again() -> None:
    store = SessionStore()
    store.save()
    LoginSession.objects.all().delete()
    store["n"] = 1
    with pytest.raises(sessions.UpdateError):
        store.save()


def test_an_idle_session_is_over(settings: Settings) -> None:
    client = browser(person(UserRole.VIEWER))
    assert is_in(client)
    LoginSession.objects.update(last_used_at=timezone.now() - settings.SESSION_IDLE + timedelta(minutes=5))
    assert is_in(client)
    LoginSession.objects.update(last_used_at=timezone.now() - settings.SESSION_IDLE - timedelta(seconds=1))
    assert not is_in(client)


def test_without_an_idle_time_out_a_session_lasts(settings: Settings) -> None:
    settings.SESSION_IDLE = None
    client = browser(person(UserRole.VIEWER))
    LoginSession.objects.update(last_used_at=timezone.now() - timedelta(days=3))
    assert is_in(client)


def test_use_does_not_move_the_end_of_a_session() -> None:
    client = browser(person(UserRole.VIEWER))
    ends = timezone.now() + timedelta(minutes=5)
    LoginSession.objects.update(expires_at=ends)
    changed = client.session
    changed["n"] = 1
    changed.save()
    assert is_in(client)
    assert LoginSession.objects.get().expires_at == ends
    LoginSession.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not is_in(client)


def test_what_a_page_asks_for_by_itself_is_no_use() -> None:
    client = browser(person(UserRole.VIEWER))
    before = timezone.now() - timedelta(hours=1)
    LoginSession.objects.update(last_used_at=before)
    client.get("/sessions", headers={"X-Unstall-By-Itself": "1"})
    assert LoginSession.objects.get().last_used_at == before
    client.get("/sessions", REMOTE_ADDR="192.0.2.7", headers={"User-Agent": FIREFOX + "\x1b[31m" + "x" * 300})
    used = LoginSession.objects.get()
    assert used.last_used_at > before
    assert used.address == "192.0.2.7"
    assert used.browser.startswith(FIREFOX)
    assert "\x1b" not in used.browser


def test_the_use_is_written_once_a_minute() -> None:
    client = browser(person(UserRole.VIEWER))
    client.get("/sessions")
    first = LoginSession.objects.get().last_used_at
    client.get("/sessions")
    assert LoginSession.objects.get().last_used_at == first
    LoginSession.objects.update(last_used_at=first - timedelta(minutes=2))
    client.get("/sessions")
    assert LoginSession.objects.get().last_used_at > first


def test_a_database_that_cannot_be_written_keeps_nobody_from_reading(
    rf: RequestFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise DatabaseError("database or disk is full")

    request = rf.get("/queues")
    request.session = SessionStore(browser(person(UserRole.VIEWER)).session.session_key)
    assert request.session.keys()
    request.session.last_used_at = timezone.now() - timedelta(hours=1)
    monkeypatch.setattr(sessions, "_rows", full)
    sessions.note_use(request)


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/126.0 Safari/537.36 Edg/126.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5 Safari/604.1", "Safari on iPhone"),
        ("curl/8.1.2 more", "curl/8.1.2"),
        ("", "unknown"),
    ],
)
def test_a_browser_has_a_name_that_people_know(agent: str, name: str) -> None:
    assert browser_name(agent) == name


def test_a_person_sees_and_ends_their_own_sessions() -> None:
    viewer = person(UserRole.VIEWER)
    here, there, other = browser(viewer), browser(viewer), browser(person(UserRole.OPERATOR))
    there.get("/sessions", REMOTE_ADDR="192.0.2.7", headers={"User-Agent": FIREFOX})
    LoginSession.objects.filter(pk=row(there).pk).update(address="192.0.2.7", browser=FIREFOX)
    page = here.get("/sessions").content.decode()
    assert "192.0.2.7" in page
    assert "Firefox on Linux" in page
    assert page.count("this one") == 1
    assert "some-operator" not in page
    assert here.post(f"/sessions/{row(there).pk}/end").headers["Location"] == "/sessions"
    assert not is_in(there)
    assert here.post(f"/sessions/{row(other).pk}/end").status_code == 404
    assert is_in(other)


def test_all_others_are_ended_at_once_and_it_is_noted() -> None:
    viewer = person(UserRole.VIEWER)
    here, there, other = browser(viewer), browser(viewer), browser(person(UserRole.OPERATOR))
    assert here.post("/sessions/end-others").status_code == 302
    assert [is_in(client) for client in (here, there, other)] == [True, False, True]
    line = book.entries().lines[0]
    assert (line.act, line.actor) == ("end session", "some-viewer")
    assert book.load_entry(line.number).body == {"person": "some-viewer", "sessions": 1}


def test_ending_this_session_leads_to_the_login() -> None:
    client = browser(person(UserRole.VIEWER))
    assert client.post(f"/sessions/{row(client).pk}/end").headers["Location"] == "/login"
    assert not is_in(client)


def test_an_admin_sees_and_ends_those_of_everybody() -> None:
    admin, viewer = browser(person(UserRole.ADMIN)), browser(person(UserRole.VIEWER))
    assert "some-viewer" in admin.get("/sessions/all").content.decode()
    ended = admin.post(f"/sessions/{row(viewer).pk}/end", {"next": "/sessions/all"})
    assert ended.headers["Location"] == "/sessions/all"
    assert not is_in(viewer)
    assert book.load_entry(book.entries().lines[0].number).body == {"person": "some-viewer", "sessions": 1}


def test_whoever_is_locked_out_has_no_session_to_come_back_to() -> None:
    admin, viewer = browser(person(UserRole.ADMIN)), person(UserRole.VIEWER)
    theirs = browser(viewer)
    admin.post(f"/users/{viewer.pk}/active")
    assert not LoginSession.objects.filter(user=viewer).exists()
    admin.post(f"/users/{viewer.pk}/active", {"active": "on"})
    assert not is_in(theirs)


def test_a_new_password_ends_all_other_sessions(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    anna = User.objects.create(username="anna", role=UserRole.OPERATOR, password=make_password(PASSWORD))
    here, there = browser(anna), browser(anna)
    new = "another quiet night"
    here.post("/password", {"old_password": PASSWORD, "new_password1": new, "new_password2": new})
    assert is_in(here)
    assert not is_in(there)
    assert list(LoginSession.objects.values_list("user", flat=True)) == [anna.pk]


def test_signing_out_is_noted() -> None:
    browser(person(UserRole.VIEWER)).post("/logout")
    assert book.entries().lines[0].act == "log out"


@pytest.mark.django_db(transaction=True)
def test_who_watches_is_asked_in_one_query_however_many_there_are(django_assert_num_queries: object) -> None:
    """More often than before, so it has to be cheap."""
    viewers = [browser(person(UserRole.VIEWER, f"viewer-{number}")) for number in range(30)]
    known = [live.visitor(client.session.session_key or "") for client in viewers]
    watching = [visitor for visitor in known if visitor]
    assert len(watching) == 30
    User.objects.filter(username="viewer-3").update(is_active=False)
    User.objects.filter(username="viewer-4").update(role=UserRole.ADMIN)
    User.objects.filter(username="viewer-5").update(password="other")
    LoginSession.objects.filter(user__username="viewer-6").delete()
    with django_assert_num_queries(1):  # type: ignore[operator]
        ended = live.find_endings(watching)
    names = {User.objects.get(pk=visitor.id).username: ending.value for visitor, ending in ended.items()}
    signed_out = {f"viewer-{number}": "logged-out" for number in (3, 5, 6)}
    assert names == {**signed_out, "viewer-4": "role-changed"}


@pytest.mark.parametrize(
    ("to", "leads"),
    [
        ("/sessions/all", "/sessions/all"),
        ("logout", "/sessions"),
        ("x", "/sessions"),
        ("//evil.example/", "/sessions"),
        ("", "/sessions"),
    ],
)
def test_after_an_end_one_comes_back_to_a_place_of_ours(to: str, leads: str) -> None:
    user = person(UserRole.VIEWER)
    client = browser(user)
    browser(user)
    other = LoginSession.objects.exclude(pk=row(client).pk).get()
    answer = client.post(f"/sessions/{other.pk}/end", {"next": to})
    assert (answer.status_code, answer["Location"]) == (302, leads)


def test_whoever_gives_out_places_hears_which_sessions_and_tokens_are_valid() -> None:
    asked = AsyncClient()

    def is_valid(path: str, **headers: Any) -> bool:
        return VALID in async_to_sync(asked.get)(path, **headers).asgi_request.scope  # type: ignore[attr-defined] # of ASGI

    token = tokens.make("reader", frozenset({TokenScope.READ}), 1, None)[1]
    assert is_valid("/api/v1/queues", headers={"Authorization": f"Bearer {token}"})
    assert not is_valid("/api/v1/queues", headers={"Authorization": f"Bearer {token}x"})
    asked.cookies["unstall-session"] = "made-up"
    assert not is_valid("/sessions")
    assert not is_valid("/login")
    asked.cookies = browser(person(UserRole.VIEWER)).cookies
    assert is_valid("/sessions")
