"""Every address × method × person: what is not open on purpose is closed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.test.client import ClientHandler
from django.urls import URLPattern, resolve, reverse

from dashboard import asgi, urls
from dashboard.accounts.reauthentication import SESSION_NAME
from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.openapi import document
from dashboard.idempotency import asgi as idempotency
from tests.support.machines import Machine
from tests.support.people import browser, person

pytestmark = pytest.mark.django_db

READ = frozenset({"GET", "HEAD"})
POST = frozenset({"POST"})
FORM = READ | POST  # a dialog, and what it sends
SECRET_FORM = frozenset({"GET", "POST"})
# Every page: who may have it, and by which methods. None: everybody. A page that is not in here fails a test.
RIGHTS = {
    (None, SECRET_FORM): ("login", "login-code", "welcome"),
    (UserRole.VIEWER, READ): (
        *("home", "palette", "banner", "overview", "overview-rows", "queue", "queue-tab", "queue-chart"),
        *("job", "job-life", "job-tab", "job-log", "search", "search-part", "api-reference"),
        *("stuck", "stuck-rows", "stuck-count", "n8n", "n8n-rows", "bulk", "bulk-progress", "bulk-numbers"),
        *("audit", "audit-entry", "scanners", "scanners-now", "policies", "scan-run", "scan-run-now"),
        *("scanner", "scanner-now", "servers", "server", "server-now", "server-chart", "logs"),
        *("idempotency", "idempotency-rows", "idempotency-key", "drills", "drills-now", "drill", "drill-now"),
        *("documents", "document", "alerts", "alerts-now", "sessions"),
    ),
    (UserRole.VIEWER, SECRET_FORM): ("password", "password-again"),
    (UserRole.VIEWER, FORM): ("tuning", "two-factor"),
    (UserRole.VIEWER, POST): (
        *("logout", "theme", "two-factor-codes", "two-factor-off", "sessions-end-others", "session-end"),
    ),
    (UserRole.OPERATOR, FORM): ("act", "audit-restore", "scan-order", "idempotency-release"),
    (UserRole.OPERATOR, POST): ("bulk-stop", "bulk-go-on", "job-reveal", "idempotency-reveal", "logs-reveal"),
    (UserRole.ADMIN, READ): ("users", "tokens", "audit-export", "sessions-all"),
    (UserRole.ADMIN, FORM): (
        "scanner-pause",
        "policy-edit",
        "safety-limit-release",
        "drill-order",
        "idempotency-forget",
    ),
    (UserRole.ADMIN, POST): (
        *("user-add", "user-role", "user-active", "user-link", "token-make", "token-revoke"),
        *("user-two-factor-off", "audit-verify", "alert-test", "drill-stop"),
    ),
}
NEEDED = {name: role for (role, _), names in RIGHTS.items() for name in names}
TAKEN = {name: methods for (_, methods), names in RIGHTS.items() for name in names}
OPEN = frozenset(name for name, role in NEEDED.items() if role is None)
# Everything else asks for a login; these for more than that.
EXPECTED = {name: role for name, role in NEEDED.items() if role in (UserRole.OPERATOR, UserRole.ADMIN)}
# Django's own views of log-in and log-out take OPTIONS, and a PUT as a POST; neither does more than their own methods.
LENIENT = frozenset({"login", "logout"})
# These ask for the password again; so does `act` for what deletes many (docs/decisions/0027-stolen-sessions.md).
RECENT_PASSWORD = {
    *("users", "user-add", "user-role", "user-active", "user-link", "user-two-factor-off"),
    *("tokens", "token-make", "token-revoke", "two-factor", "two-factor-codes", "two-factor-off", "idempotency-forget"),
}
HASHES_PASSWORD = {"login", "welcome", "password", "password-again"}
HEAVY = {
    "job": {"whole"},
    "job-life": {"whole"},
    "job-log": {"whole"},
    "job-tab": {"whole"},
    "job-reveal": {"whole"},
    "search": {"q", "id"},
    "search-part": {"q", "id"},
    "logs": {"plain"},
    "logs-reveal": set(),
    "tuning": set(),
    "audit-verify": set(),
    "audit-export": set(),
}
# The API takes tokens and no logins: each of its methods and the one scope that it takes.
SCOPES = {
    ("api-queues", "GET"): TokenScope.READ,
    ("api-queue", "GET"): TokenScope.READ,
    ("api-jobs", "GET"): TokenScope.READ,
    ("api-job", "GET"): TokenScope.READ,
    ("api-orphans", "GET"): TokenScope.READ,
    ("api-n8n", "GET"): TokenScope.READ,
    ("api-n8n-losses", "GET"): TokenScope.READ,
    ("api-actions", "GET"): TokenScope.READ,
    ("api-actions", "POST"): TokenScope.ACT,
    ("api-bulk", "GET"): TokenScope.BULK,
    ("api-bulk", "POST"): TokenScope.BULK,
    ("api-run", "GET"): TokenScope.BULK,
    ("api-results", "GET"): TokenScope.BULK,
    ("api-stop", "POST"): TokenScope.BULK,
    ("api-policies", "GET"): TokenScope.READ,
    ("api-policies", "PUT"): TokenScope.BULK,
    ("api-scanners", "GET"): TokenScope.READ,
    ("api-scanner-runs", "GET"): TokenScope.READ,
    ("api-scanner-runs", "POST"): TokenScope.BULK,
    ("api-scan-run", "GET"): TokenScope.READ,
    ("api-scan-finds", "GET"): TokenScope.READ,
    ("api-sweeps", "POST"): TokenScope.BULK,
    ("api-alerts", "GET"): TokenScope.READ,
    ("api-servers", "GET"): TokenScope.READ,
    ("api-server", "GET"): TokenScope.READ,
    ("api-audit", "GET"): TokenScope.AUDIT,
    ("api-entry", "GET"): TokenScope.AUDIT,
    ("api-restore", "POST"): TokenScope.ACT,
}
ANY_TOKEN = {"api-document", "api-nowhere"}
SAMPLES = {"deployment": "main", "base": "bull:jobs", "id": "1", "number": 1, "rest": "x"}
SAMPLES |= {"pk": 1, "token": "nope", "path": "x", "scanner": "stale-check", "channel": "ops", "server": "eu-1"}
SAMPLES |= {"key": "x", "name": "logs"}
# Applications that stand beside Django, and whose addresses it does not know.
_OF_LOGS = ("", "/older", "/around", "/labels", "/download")
BESIDE = ("/live/events", "/metrics", *(f"/live/logs{path}" for path in _OF_LOGS))
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND")
PEOPLE = (None, *UserRole)


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


def test_every_page_is_in_the_table_of_rights_and_no_other() -> None:
    """A new page needs an entry in RIGHTS."""
    assert set(ROUTES) == set(NEEDED)
    assert sum(len(names) for names in RIGHTS.values()) == len(NEEDED), "each once"


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
    for role in UserRole:
        client = browser(person(role))
        refused = [name for name in sorted(EXPECTED) if not role.allows(EXPECTED[name])]
        for name, method in itertools.product(refused, METHODS):
            status = client.generic(method, address(ROUTES[name])).status_code
            if status != (403 if method in TAKEN[name] else 405):
                violations[f"{role}: {method} {name}"] = status
    assert violations == {}


def test_who_has_the_role_is_let_in_by_its_methods_and_by_no_other() -> None:
    violations = {}
    for role in UserRole:
        client = browser(person(role))
        allowed = [name for name in CLOSED if role.allows(NEEDED[name] or UserRole.VIEWER) and name not in LENIENT]
        for name, method in (*itertools.product(allowed, METHODS), ("logout", "POST")):
            answer = client.generic(method, address(ROUTES[name]))
            if _is_let_in(answer) if method in TAKEN[name] else answer.status_code == 405:
                continue
            violations[f"{role}: {method} {name}"] = answer.status_code
    assert violations == {}


def _is_let_in(answer: HttpResponse) -> bool:
    sent_away = answer.headers.get("Location", "").startswith("/login?")
    return answer.status_code not in (401, 403, 405, 500) and not sent_away


def test_what_changes_something_needs_a_token_of_the_page() -> None:
    """Another site cannot make one, also for a user who is logged in."""
    client = browser(person(UserRole.ADMIN))
    client.handler = ClientHandler(enforce_csrf_checks=True)
    posts = [name for name, methods in TAKEN.items() if "POST" in methods]
    answers = {name: client.post(address(ROUTES[name]), headers={"origin": "https://evil.example"}) for name in posts}
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 403} == {}


def test_what_is_open_is_open_to_everybody() -> None:
    answers = {
        f"{who or 'a stranger'}: {name}": browser(person(who) if who else None).get(address(ROUTES[name]))
        for who in PEOPLE
        for name in sorted(OPEN)
    }
    violations = {
        what: answer.status_code
        for what, answer in answers.items()
        if answer.status_code in (401, 403) or answer.headers.get("Location", "").startswith("/login?")
    }
    assert violations == {}


def test_a_password_of_long_ago_opens_no_account() -> None:
    client = browser(person(UserRole.ADMIN))
    _forget_password(client)
    asked = {
        f"{method} {name}": client.generic(method, address(ROUTES[name]))
        for method in ("GET", "POST")
        for name in sorted(RECENT_PASSWORD)
    }
    to = {what: answer.headers.get("Location", "") for what, answer in asked.items() if answer.status_code != 405}
    assert [what for what, place in to.items() if not place.startswith("/password/again?next=")] == []
    others = {name: client.get(address(ROUTES[name])) for name in sorted(set(ROUTES) - RECENT_PASSWORD)}
    assert [name for name, answer in others.items() if "/password/again" in answer.headers.get("Location", "")] == []


def _forget_password(client: Client) -> None:
    session = client.session
    session[SESSION_NAME] = 0
    session.save()


def test_what_hashes_or_takes_long_has_places_of_its_own() -> None:
    views = {name: pattern.callback for name, pattern in ALL.items()}
    assert {name for name, view in views.items() if hasattr(view, "hashes_password")} == HASHES_PASSWORD
    assert {name: set(view.heavy) for name, view in views.items() if hasattr(view, "heavy")} == HEAVY


def test_whoever_is_locked_out_is_a_stranger() -> None:
    admin = person(UserRole.ADMIN)
    client = browser(admin)
    admin.is_active = False
    admin.save()
    answers = {name: client.get(address(ROUTES[name])) for name in CLOSED}
    violations = {name: answer.status_code for name, answer in answers.items() if not _is_sent_to_the_login(answer)}
    assert violations == {}


def test_every_route_of_the_api_says_its_scopes() -> None:
    assert set(API) == {name for name, _ in SCOPES} | ANY_TOKEN


def test_each_operation_of_the_document_has_the_scope_that_is_tried_here() -> None:
    """The calls under once stand beside Django: tests/integration/api/test_api_rights.py asks all."""
    said = {
        (resolve(_filled(path)).url_name, method.upper()): TokenScope(call["x-scope"])
        for path, calls in document()["paths"].items()
        for method, call in calls.items()
        if not path.startswith(idempotency.PATH)
    }
    assert said == SCOPES


def _filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(SAMPLES.get(found[1], 1)), path)


def test_the_api_is_closed_without_a_token_whoever_is_logged_in() -> None:
    stranger, admin = Machine(), browser(person(UserRole.ADMIN))
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
    others = {scope: Machine(*(set(TokenScope) - {scope}), name=scope) for scope in TokenScope}
    answers = _of_scopes(others)
    violations = {what: _shown(answer) for what, answer in answers.items() if answer.status_code != 403}
    assert violations == {}


def test_the_scope_is_enough() -> None:
    answers = _of_scopes({scope: Machine(scope, name=scope) for scope in TokenScope})
    bad = (401, 403, 405, 500)
    violations = {what: _shown(answer) for what, answer in answers.items() if answer.status_code in bad}
    assert violations == {}


def _of_scopes(machines: dict[TokenScope, Machine]) -> dict[str, HttpResponse]:
    """What each method of the API answers the machine that stands for its scope."""
    return {
        f"{method} {name}": machines[scope].send(method, address(API[name]), body={})
        for (name, method), scope in sorted(SCOPES.items())
    }


def _shown(answer: HttpResponse) -> str:
    return f"{answer.status_code} {answer.content.decode()}"


def test_the_api_knows_no_other_method() -> None:
    machine = Machine(*TokenScope)
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
