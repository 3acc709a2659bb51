"""Each operation of the OpenAPI document × each token × each method, asked of a real web process.

What Django serves and what stands beside it is asked alike. The document itself says which scope it wants, and
tests/house/test_urls_guarded.py has the same in a table of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.accounts.token_scopes import TokenScope
from dashboard.accounts.tokens import MARK
from dashboard.api.openapi import document
from tests.house.test_urls_guarded import SAMPLES
from tests.support.patience import patience
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.web.gate.test_gate import bearer

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND")
# Beside the API: one method and one scope each.
BESIDE = {"/metrics": TokenScope.METRICS, "/cpu-gate": TokenScope.GATE}
AT_ONCE = 3  # of one token four calls are taken at once
SECONDS = 30.0


def _operations() -> dict[tuple[str, str], TokenScope]:
    """Maps method and path, with samples for its parameters, to the scope that it wants."""
    found = {
        (method.upper(), _filled(path, call)): TokenScope(call["x-scope"])
        for path, calls in document()["paths"].items()
        for method, call in calls.items()
    }
    return found | {("GET", path): scope for path, scope in BESIDE.items()}


def _filled(path: str, call: dict[str, list[dict[str, str]]]) -> str:
    for parameter in call.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(SAMPLES.get(parameter["name"], 1)))
    assert "{" not in path
    return path


OPERATIONS = _operations()
PATHS = sorted({path for _, path in OPERATIONS})


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with Store() as queues, Store() as state:
        environ = {"UNSTALL_STATE_URL": state.url, "UNSTALL_REDIS_URL": queues.url}
        with WebProcess(environ) as process:
            yield process


@pytest.fixture(scope="module")
def callers(web: WebProcess) -> dict[str, dict[str, str]]:
    """Makes headers: a token of each scope, of all others, and what is no token at all."""
    alone = {f"{scope}": bearer(web, f"alone {scope}", scope) for scope in TokenScope}
    others = {
        f"all but {scope}": bearer(web, f"but {scope}", " ".join(set(TokenScope) - {scope})) for scope in TokenScope
    }
    return {
        **alone,
        **others,
        "no token": {},
        "an unknown token": {"Authorization": f"Bearer {MARK}{'x' * 43}"},
        "a login of an admin": {"Cookie": f"unstall-session={web.cookies['admin']}"},
        "another scheme": {"Authorization": "Basic YWRtaW46cGFzcy1hZG1pbg=="},
    }


def _statuses(web: WebProcess, asked: list[tuple[str, str, dict[str, str]]]) -> list[int]:
    def ask(one: tuple[str, str, dict[str, str]]) -> int:
        method, path, headers = one
        return web.get(path, method=method, headers=headers, seconds=patience(SECONDS)).status

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(ask, asked))


def test_an_operation_is_open_to_its_own_scope_alone(web: WebProcess, callers: dict[str, dict[str, str]]) -> None:
    cases = list(itertools.product(OPERATIONS, callers))
    asked = [(method, path, callers[caller]) for (method, path), caller in cases]
    violations = {}
    for (operation, caller), status in zip(cases, _statuses(web, asked), strict=True):
        if not _is_right(status, caller, OPERATIONS[operation]):
            violations[f"{caller}: {' '.join(operation)}"] = status
    assert violations == {}
    assert len(cases) > 600


def _is_right(status: int, caller: str, wanted: TokenScope) -> bool:
    if caller in (wanted, *(f"all but {scope}" for scope in TokenScope if scope is not wanted)):
        return status not in (401, 403, 405, 500)  # an order without a body is refused for that
    return status == (403 if caller.removeprefix("all but ") in set(TokenScope) else 401)


def test_a_method_that_the_document_does_not_have_does_not_exist(
    web: WebProcess, callers: dict[str, dict[str, str]]
) -> None:
    everything = bearer(web, "everything", " ".join(TokenScope))
    cases = [pair for pair in itertools.product(METHODS, PATHS) if pair not in OPERATIONS]
    asked = [(method, path, everything) for method, path in cases]
    statuses = dict(zip(cases, _statuses(web, asked), strict=True))
    # A scrape may be asked for its headers alone.
    violations = {
        " ".join(case): status for case, status in statuses.items() if status != 405 and case != ("HEAD", "/metrics")
    }
    assert violations == {}
