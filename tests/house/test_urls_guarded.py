"""Every address × method × person: what is not open on purpose is closed."""

from __future__ import annotations

import itertools
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

OPEN = frozenset({"login", "welcome"})
# Everything else asks for a login; these for more than that.
EXPECTED = dict.fromkeys(
    (
        *("users", "user-add", "user-role", "user-active", "user-link", "tokens", "token-make", "token-revoke"),
        *("audit-verify", "audit-export"),
        *("scanner-pause", "policy-edit", "brake-release", "alert-test", "drill-order", "drill-stop", "once-forget"),
    ),
    Role.ADMIN,
) | dict.fromkeys(("act", "audit-restore", "scan-order", "once-release", "bulk-stop", "bulk-go-on"), Role.OPERATOR)
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
SAMPLES |= {"key": "x", "name": "logs"}
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


def test_a_stranger_is_sent_to_the_login() -> None:
    stranger = browser()
    answers = {
        f"{method} {name}": stranger.generic(method, address(ROUTES[name])) for method in METHODS for name in CLOSED
    }
    violations = {what: answer.status_code for what, answer in answers.items() if not _is_sent_to_the_login(answer)}
    assert violations == {}


def _is_sent_to_the_login(answer: HttpResponse) -> bool:
    return answer.status_code == 302 and answer.headers["Location"].startswith("/login?next=/")


def test_who_has_less_than_the_role_is_refused() -> None:
    violations = {}
    for role in Role:
        client = browser(person(role))
        refused = [name for name in sorted(EXPECTED) if not role.allows(EXPECTED[name])]
        for name, method in itertools.product(refused, METHODS):
            status = client.generic(method, address(ROUTES[name])).status_code
            if status not in (403, 405):  # 405 comes first where the method does not exist at all
                violations[f"{role}: {method} {name}"] = status
    assert violations == {}


def test_who_has_the_role_is_let_in() -> None:
    violations = {}
    for role in Role:
        client = browser(person(role))
        allowed = [name for name in CLOSED if role.allows(EXPECTED.get(name, Role.VIEWER)) and name != "logout"]
        for name in [*allowed, "logout"]:
            answer = client.get(address(ROUTES[name]))
            if not _is_let_in(answer):
                violations[f"{role}: {name}"] = answer.status_code
    assert violations == {}


def _is_let_in(answer: HttpResponse) -> bool:
    sent_away = answer.headers.get("Location", "").startswith("/login?")
    return answer.status_code not in (401, 403, 500) and not sent_away


def test_what_is_open_is_open_to_everybody() -> None:
    answers = {
        f"{who or 'a stranger'}: {name}": browser(person(who) if who else None).get(address(ROUTES[name]))
        for who in PEOPLE
        for name in sorted(OPEN)
    }
    violations = {
        what: answer.status_code
        for what, answer in answers.items()
        if answer.status_code in (401, 403) or answer.headers.get("Location", "").startswith("/login")
    }
    assert violations == {}


def test_whoever_is_locked_out_is_a_stranger() -> None:
    admin = person(Role.ADMIN)
    client = browser(admin)
    admin.is_active = False
    admin.save()
    answers = {name: client.get(address(ROUTES[name])) for name in CLOSED}
    violations = {name: answer.status_code for name, answer in answers.items() if not _is_sent_to_the_login(answer)}
    assert violations == {}


def test_every_route_of_the_api_says_its_scopes() -> None:
    assert set(API) == {name for name, _ in SCOPES} | ANY_TOKEN


def test_the_api_is_closed_without_a_token_whoever_is_logged_in() -> None:
    stranger, admin = Machine(), browser(person(Role.ADMIN))
    violations = {}
    for name, method in itertools.product(sorted(API), METHODS):
        answers = {"a stranger": stranger.send(method, address(API[name]))}
        if (name, method) != ("api-document", "GET"):
            answers["an admin"] = admin.generic(method, address(API[name]))
        for who, answer in answers.items():
            if answer.status_code != 401:
                violations[f"{who}: {method} {name}"] = answer.status_code
    assert violations == {}


def test_all_other_scopes_together_are_refused() -> None:
    others = {scope: Machine(*(set(Scope) - {scope}), name=scope) for scope in Scope}
    answers = _of_scopes(others)
    violations = {what: _shown(answer) for what, answer in answers.items() if answer.status_code != 403}
    assert violations == {}


def test_the_scope_is_enough() -> None:
    answers = _of_scopes({scope: Machine(scope, name=scope) for scope in Scope})
    bad = (401, 403, 405, 500)
    violations = {what: _shown(answer) for what, answer in answers.items() if answer.status_code in bad}
    assert violations == {}


def _of_scopes(machines: dict[Scope, Machine]) -> dict[str, HttpResponse]:
    """What each method of the API answers the machine that stands for its scope."""
    return {
        f"{method} {name}": machines[scope].send(method, address(API[name]), body={})
        for (name, method), scope in sorted(SCOPES.items())
    }


def _shown(answer: HttpResponse) -> str:
    return f"{answer.status_code} {answer.content.decode()}"


def test_the_api_knows_no_other_method() -> None:
    machine = Machine(*Scope)
    others = [pair for pair in itertools.product(sorted(set(API) - ANY_TOKEN), METHODS) if pair not in SCOPES]
    answers = {f"{method} {name}": machine.send(method, address(API[name])) for name, method in others}
    violations = {what: answer.status_code for what, answer in answers.items() if answer.status_code != 405}
    assert violations == {}


async def test_what_stands_beside_django_is_closed_too() -> None:
    """No cookie and no token; the header is what a proxy would add, or anybody who wants to look like one."""
    statuses = {path: await _status_without_token(path) for path in BESIDE}
    violations = {path: status for path, status in statuses.items() if status != 401}
    assert violations == {}


async def _status_without_token(path: str) -> int:
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"127.0.0.1:8000"), (b"x-forwarded-for", b"127.0.0.1")]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
    await asgi.application({**scope, "client": ("127.0.0.1", 40_000)}, receive, send)
    status: int = told[0]["status"]
    return status
