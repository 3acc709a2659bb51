"""Every address × method × person: what is not open on purpose is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.urls import URLPattern, reverse

from dashboard import urls
from dashboard.access import Role
from dashboard.scopes import Scope
from tests.machines import Machine
from tests.people import browser, person

pytestmark = pytest.mark.django_db

OPEN = frozenset({"login", "welcome", "healthz", "readyz"})
# Everything else asks for a login; these for more than that.
EXPECTED = dict.fromkeys(
    (
        *("users", "user-add", "user-role", "user-active", "user-link", "tokens", "token-make", "token-revoke"),
        *("bulk-stop", "bulk-go-on", "audit-verify", "audit-export"),
        *("scanner-pause", "policy-edit", "brake-release"),
    ),
    Role.ADMIN,
) | dict.fromkeys(("act", "audit-restore", "scan-order"), Role.OPERATOR)
# The API takes tokens and no logins: each of its methods and the one scope that it takes.
SCOPES = {
    ("api-queues", "GET"): Scope.READ,
    ("api-queue", "GET"): Scope.READ,
    ("api-jobs", "GET"): Scope.READ,
    ("api-job", "GET"): Scope.READ,
    ("api-orphans", "GET"): Scope.READ,
    ("api-actions", "GET"): Scope.READ,
    ("api-actions", "POST"): Scope.ACT,
    ("api-bulk", "GET"): Scope.BULK,
    ("api-bulk", "POST"): Scope.BULK,
    ("api-run", "GET"): Scope.BULK,
    ("api-results", "GET"): Scope.BULK,
    ("api-stop", "POST"): Scope.BULK,
    ("api-policies", "GET"): Scope.READ,
    ("api-policies", "PUT"): Scope.BULK,
    ("api-scanners", "GET"): Scope.READ,
    ("api-scanner-runs", "GET"): Scope.READ,
    ("api-scanner-runs", "POST"): Scope.BULK,
    ("api-scan-run", "GET"): Scope.READ,
    ("api-scan-finds", "GET"): Scope.READ,
    ("api-sweeps", "POST"): Scope.BULK,
    ("api-audit", "GET"): Scope.AUDIT,
    ("api-entry", "GET"): Scope.AUDIT,
    ("api-restore", "POST"): Scope.ACT,
}
ANY_TOKEN = {"api-document", "api-nowhere"}
SAMPLES = {"deployment": "main", "base": "bull:jobs", "id": "1", "number": 1, "rest": "x"}
SAMPLES |= {"pk": 1, "token": "nope", "path": "x", "scanner": "stale-check"}
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


ALL = {name_of(pattern): pattern for pattern in routes()}
API = {name: pattern for name, pattern in ALL.items() if str(pattern.pattern).startswith("api/")}
ROUTES = {name: pattern for name, pattern in ALL.items() if name not in API}


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


def test_every_route_of_the_api_says_its_scopes() -> None:
    assert set(API) == {name for name, _ in SCOPES} | ANY_TOKEN


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", sorted(API))
def test_the_api_is_closed_without_a_token_whoever_is_logged_in(name: str, method: str) -> None:
    assert Machine().send(method, address(API[name])).status_code == 401
    if (name, method) != ("api-document", "GET"):
        assert browser(person(Role.ADMIN)).generic(method, address(API[name])).status_code == 401


@pytest.mark.parametrize(("name", "method"), sorted(SCOPES))
def test_all_other_scopes_together_are_refused(name: str, method: str) -> None:
    others = set(Scope) - {SCOPES[name, method]}
    answer = Machine(*others).send(method, address(API[name]), body={})
    assert answer.status_code == 403, answer.content


@pytest.mark.parametrize(("name", "method"), sorted(SCOPES))
def test_the_scope_is_enough(name: str, method: str) -> None:
    answer = Machine(SCOPES[name, method]).send(method, address(API[name]), body={})
    assert answer.status_code not in (401, 403, 405, 500), answer.content


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", sorted(set(API) - ANY_TOKEN))
def test_the_api_knows_no_other_method(name: str, method: str) -> None:
    if (name, method) not in SCOPES:
        assert Machine(*Scope).send(method, address(API[name])).status_code == 405
