from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client, override_settings

from dashboard.accounts.roles import UserRole
from tests.support.people import browser, person

pytestmark = pytest.mark.django_db


def policy(answer: object) -> dict[str, list[str]]:
    written = answer.headers["Content-Security-Policy"]  # type: ignore[attr-defined]
    return {name: values for name, *values in (part.split() for part in written.split(";"))}


@pytest.mark.parametrize("path", ["/login", "/welcome/nope", "/users", "/nowhere", "/banner"])
def test_every_answer_says_what_a_browser_may_do(path: str) -> None:
    answer = browser(person(UserRole.VIEWER)).get(path)
    found = policy(answer)
    assert found["default-src"] == ["'none'"]
    assert found["frame-ancestors"] == ["'none'"]
    assert found["base-uri"] == ["'none'"]
    assert found["form-action"] == ["'self'"]
    assert found["script-src"] == ["'self'"]


def test_nothing_unsafe_and_nobody_else_is_allowed() -> None:
    written = browser().get("/login").headers["Content-Security-Policy"]
    assert "unsafe" not in written
    assert "http" not in written
    assert "*" not in written
    assert "data:" not in written


def test_no_cache_keeps_a_page_or_mixes_it_up_with_its_fragment() -> None:
    answer = browser(person(UserRole.VIEWER)).get("/password")
    assert answer.headers["Cache-Control"] == "no-store"
    assert "HX-Request" in answer.headers["Vary"]
    assert "Cookie" in answer.headers["Vary"]


def test_pages_are_compressed() -> None:
    answer = browser(person(UserRole.ADMIN)).get("/users", headers={"accept-encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"


def test_cookies_are_kept_from_scripts_and_other_sites() -> None:
    answer = browser(person(UserRole.VIEWER)).get("/password")
    csrf = answer.cookies["unstall-csrf"]
    assert csrf["httponly"]
    assert csrf["samesite"] == "Lax"


def test_plotly_and_htmx_are_served_by_ourselves() -> None:
    assert finders.find("plotly/plotly.min.js")
    assert not finders.find("plotly/widgetbundle.js")
    answer = browser().get("/static/django_htmx/htmx-2.min.js")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/javascript")


def test_a_static_file_needs_no_login_and_is_asked_for_once() -> None:
    first = browser().get("/static/css/tokens.css")
    again = browser().get("/static/css/tokens.css", headers={"if-modified-since": first.headers["Last-Modified"]})
    assert first.status_code == 200
    assert "max-age" in first.headers["Cache-Control"]
    assert again.status_code == 304
    assert again.content == b""


def test_a_file_that_was_edited_while_we_run_comes_whole(tmp_path: Path) -> None:
    (tmp_path / "note.css").write_text("short")
    with override_settings(STATIC_ROOT=tmp_path):
        client = Client()  # of its own: it looks for its files anew
        assert client.get("/static/note.css").content == b"short"
        (tmp_path / "note.css").write_text("rather longer")
        answer = client.get("/static/note.css")
    assert answer.content == b"rather longer"
    assert answer.headers["Content-Length"] == "13"
