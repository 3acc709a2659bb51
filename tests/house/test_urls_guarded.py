"""Every address × method × person: what is not open on purpose is closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import URLPattern, reverse

from dashboard import asgi, urls
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
        *("scanner-pause", "policy-edit", "brake-release", "alert-test", "drill-order", "drill-stop", "once-forget"),
    ),
    Role.ADMIN,
) | dict.fromkeys(("act", "audit-restore", "scan-order", "once-release"), Role.OPERATOR)
# The API takes tokens and no logins: each of its methods and the one scope that it takes.
SCOPES = {
    ("api-queues", "GET"): Scope.READ,
    ("api-queue", "GET"): Scope.READ,
    ("api-jobs", "GET"): Scope.READ,
    ("api-job", "GET"): Scope.READ,
    ("api-orphans", "GET"): Scope.READ,
    ("api-n8n", "GET"): Scope.READ,
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
    ("api-alerts", "GET"): Scope.READ,
    ("api-servers", "GET"): Scope.READ,
    ("api-server", "GET"): Scope.READ,
    ("api-audit", "GET"): Scope.AUDIT,
    ("api-entry", "GET"): Scope.AUDIT,
    ("api-restore", "POST"): Scope.ACT,
}
ANY_TOKEN = {"api-document", "api-nowhere"}
SAMPLES = {"deployment": "main", "base": "bull:jobs", "id": "1", "number": 1, "rest": "x"}
SAMPLES |= {"pk": 1, "token": "nope", "path": "x", "scanner": "stale-check", "channel": "ops", "server": "eu-1"}
SAMPLES |= {"key": "x"}
# Applications that stand beside Django, and whose addresses it does not know.
_OF_LOGS = ("", "/older", "/around", "/labels", "/download")
BESIDE = ("/live/events", "/metrics", *(f"/live/logs{path}" for path in _OF_LOGS))
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


CLOSED = sorted(set(ROUTES) - OPEN)


@pytest.mark.parametrize("method", METHODS)
def test_a_stranger_is_sent_to_the_login(method: str) -> None:
    stranger = browser()
    for name in CLOSED:
        answer = stranger.generic(method, address(ROUTES[name]))
        assert answer.status_code == 302, name
        assert answer.headers["Location"].startswith("/login?next=/"), name


@pytest.mark.parametrize("role", Role)
def test_who_has_less_than_the_role_is_refused(role: Role) -> None:
    client = browser(person(role))
    for name in sorted(EXPECTED):
        for method in METHODS if not role.allows(EXPECTED[name]) else ():
            answer = client.generic(method, address(ROUTES[name]))
            # 405 comes first where the method does not exist at all.
            assert answer.status_code in (403, 405), f"{method} {name}"


@pytest.mark.parametrize("role", Role)
def test_who_has_the_role_is_let_in(role: Role) -> None:
    client = browser(person(role))
    for name in CLOSED:
        if role.allows(EXPECTED.get(name, Role.VIEWER)) and name != "logout":
            _is_let_in(client.get(address(ROUTES[name])), name)
    _is_let_in(client.get(address(ROUTES["logout"])), "logout")


def _is_let_in(answer: HttpResponse, name: str) -> None:
    assert answer.status_code not in (401, 403, 500), name
    assert not answer.headers.get("Location", "").startswith("/login?"), name


@pytest.mark.parametrize("who", PEOPLE)
def test_what_is_open_is_open_to_everybody(who: Role | None) -> None:
    for name in sorted(OPEN):
        answer = browser(person(who) if who else None).get(address(ROUTES[name]))
        assert not answer.headers.get("Location", "").startswith("/login"), name
        assert answer.status_code not in (401, 403), name


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
def test_the_api_is_closed_without_a_token_whoever_is_logged_in(method: str) -> None:
    stranger, admin = Machine(), browser(person(Role.ADMIN))
    for name in sorted(API):
        assert stranger.send(method, address(API[name])).status_code == 401, name
        if (name, method) != ("api-document", "GET"):
            assert admin.generic(method, address(API[name])).status_code == 401, name


def test_all_other_scopes_together_are_refused() -> None:
    others = {scope: Machine(*(set(Scope) - {scope}), name=scope) for scope in Scope}
    for (name, method), scope in sorted(SCOPES.items()):
        answer = others[scope].send(method, address(API[name]), body={})
        assert answer.status_code == 403, (name, method, answer.content)


def test_the_scope_is_enough() -> None:
    holders = {scope: Machine(scope, name=scope) for scope in Scope}
    for (name, method), scope in sorted(SCOPES.items()):
        answer = holders[scope].send(method, address(API[name]), body={})
        assert answer.status_code not in (401, 403, 405, 500), (name, method, answer.content)


@pytest.mark.parametrize("method", METHODS)
def test_the_api_knows_no_other_method(method: str) -> None:
    machine = Machine(*Scope)
    for name in sorted(set(API) - ANY_TOKEN):
        if (name, method) not in SCOPES:
            assert machine.send(method, address(API[name])).status_code == 405, name


@pytest.mark.parametrize("path", BESIDE)
async def test_what_stands_beside_django_is_closed_too(path: str) -> None:
    """No cookie and no token; the header is what a proxy would add, or anybody who wants to look like one."""
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"127.0.0.1:8000"), (b"x-forwarded-for", b"127.0.0.1")]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
    await asgi.application({**scope, "client": ("127.0.0.1", 40_000)}, receive, send)
    assert told[0]["status"] == 401
