"""Every address × method × person: what is not open on purpose is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.urls import URLPattern, reverse

from dashboard import urls
from dashboard.access import Role
from tests.people import browser, person

pytestmark = pytest.mark.django_db

OPEN = frozenset({"login", "welcome", "healthz", "readyz"})
# Everything else asks for a login; these for more than that.
EXPECTED = dict.fromkeys(("users", "user-add", "user-role", "user-active", "user-link"), Role.ADMIN)
SAMPLES = {"deployment": "main", "base": "bull:jobs", "id": "1", "pk": 1, "token": "nope", "path": "x"}
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
PEOPLE = (None, *Role)


def routes() -> Iterator[URLPattern]:
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern), "a nested URL configuration would not be walked"
        yield pattern


def name_of(pattern: URLPattern) -> str:
    assert pattern.name, f"{pattern.pattern} has no name"
    return pattern.name


def address(pattern: URLPattern) -> str:
    named = pattern.pattern.converters
    return reverse(name_of(pattern), kwargs={name: SAMPLES[name] for name in named})


ROUTES = {name_of(pattern): pattern for pattern in routes()}


def test_what_is_expected_exists() -> None:
    assert set(ROUTES) >= OPEN | set(EXPECTED)


def test_each_view_says_the_role_that_is_expected_of_it() -> None:
    said = {name: view.needs for name, pattern in ROUTES.items() if hasattr(view := pattern.callback, "needs")}
    assert said == EXPECTED


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", sorted(set(ROUTES) - OPEN))
def test_a_stranger_is_sent_to_the_login(name: str, method: str) -> None:
    answer = browser().generic(method, address(ROUTES[name]))
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/login?next=/")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_who_has_less_than_the_role_is_refused(name: str, method: str) -> None:
    for role in Role:
        if role.allows(EXPECTED[name]):
            continue
        answer = browser(person(role)).generic(method, address(ROUTES[name]))
        # 405 comes first where the method does not exist at all.
        assert answer.status_code in (403, 405), f"{role} {method} {name}"


@pytest.mark.parametrize("name", sorted(set(ROUTES) - OPEN))
def test_who_has_the_role_is_let_in(name: str) -> None:
    needed = EXPECTED.get(name, Role.VIEWER)
    for role in Role:
        if not role.allows(needed):
            continue
        answer = browser(person(role)).get(address(ROUTES[name]))
        assert answer.status_code not in (401, 403, 500), f"{role} {name}"
        assert not answer.headers.get("Location", "").startswith("/login?")


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("name", sorted(OPEN))
def test_what_is_open_is_open_to_everybody(name: str, who: Role | None) -> None:
    answer = browser(person(who) if who else None).get(address(ROUTES[name]))
    assert not answer.headers.get("Location", "").startswith("/login")
    assert answer.status_code not in (401, 403)


def test_whoever_is_locked_out_is_a_stranger() -> None:
    admin = person(Role.ADMIN)
    client = browser(admin)
    admin.is_active = False
    admin.save()
    for name in sorted(set(ROUTES) - OPEN):
        assert client.get(address(ROUTES[name])).headers["Location"].startswith("/login?next=/"), name
