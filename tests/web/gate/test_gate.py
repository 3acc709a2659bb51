"""/cpu-gate of real web processes over a real state store: who may ask, and one admission at a time among several."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dashboard.accounts.tokens import MARK
from recovery.gate import queries as gate_queries
from tests.support.processes.web_process import Answer, WebProcess
from tests.support.stores.stores import Store
from tests.support.stuck.gating import steady
from tests.support.waiting import until

POLL = 2_000  # of the servers here: fresh for six seconds, settling for four
SETTLING = 4.0
SECONDS = 30.0
LIMITS = {
    "dashboard.live.state_cache.POLL_SECONDS": 0.2,
    "dashboard.accounts.token_cache.KEPT_SECONDS": 1.0,
    "dashboard.accounts.token_cache.FRESH_SECONDS": 0.5,
}


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store("valkey") as store:
        yield store


@pytest.fixture(scope="module")
def web(store: Store) -> Iterator[WebProcess]:
    # Nobody reads the queues' store here.
    environ = {"UNSTALL_STATE_URL": store.url, "UNSTALL_REDIS_URL": store.url.replace("/0", "/1")}
    with WebProcess({**environ, "UNSTALL_SERVER_ID": "web-1"}, LIMITS) as process:
        yield process


@pytest.fixture(scope="module")
def headers(web: WebProcess) -> dict[str, str]:
    return bearer(web, "ci")


def bearer(web: WebProcess, name: str, scope: str = "gate") -> dict[str, str]:
    """The header with a new token."""
    written = MARK + hashlib.sha256(f"{name}{scope}{time.monotonic_ns()}".encode()).hexdigest()
    digest = hashlib.sha256(written.encode()).hexdigest()
    web.change(
        "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, datetime('now'), datetime('now', '+1 day'))",
        name,
        digest,
        written[:14],
        scope,
    )
    return {"Authorization": f"Bearer {written}"}


def ask(web: WebProcess, headers: dict[str, str], query: str) -> Answer:
    return web.get(f"/cpu-gate?{query}", headers=headers, seconds=SECONDS)


def let_in(web: WebProcess, headers: dict[str, str], query: str) -> None:
    until(lambda: ask(web, headers, query).status == 200, SECONDS, "somebody is let in")


def test_only_a_token_for_the_gate_opens_it_and_a_revoked_one_no_longer(web: WebProcess, store: Store) -> None:
    with steady(store.client, "eu-auth", 20.0, poll=POLL):
        good, other = bearer(web, "good"), bearer(web, "other", "read metrics")
        let_in(web, good, "server=eu-auth")
        for wrong, status in (({}, 401), ({"Authorization": f"Bearer {MARK}{'x' * 43}"}, 401), (other, 403)):
            answer = ask(web, wrong, "server=eu-auth")
            assert (answer.status, answer.headers["cache-control"]) == (status, "no-store")
        assert web.get("/cpu-gate?server=eu-auth", "admin").status == 401  # a login is no token
        web.change("UPDATE dashboard_machinetoken SET revoked_at = datetime('now') WHERE name = 'good'")
        until(lambda: ask(web, good, "server=eu-auth").status == 401, SECONDS, "the revoked token is refused")


def test_many_that_ask_at_once_with_a_new_token_wait_for_one_lookup(web: WebProcess) -> None:
    new = bearer(web, "new")
    with ThreadPoolExecutor(40) as threads:
        told = list(threads.map(lambda _: json.loads(ask(web, new, "server=web-1").body), range(40)))
    assert [one["error"] for one in told if "error" in one] == []


def test_an_admission_settles_and_then_the_next_one_goes(
    web: WebProcess, store: Store, headers: dict[str, str]
) -> None:
    with steady(store.client, "eu-burst", 20.0, poll=POLL) as server:
        until(lambda: ask(web, headers, "server=eu-burst").status == 200, SECONDS)
        until(lambda: _first_of_ten(web, headers), SECONDS, "ten at once, of whom one is let in")
        server.cpu = 96.0
        until(lambda: json.loads(ask(web, headers, "server=eu-burst").body)["reason"] == "closed", SECONDS)
        server.cpu = 20.0
        let_in(web, headers, "server=eu-burst&caller=imports")
    until(lambda: any(one.ready for one in _noted(store, "eu-burst", "imports")), SECONDS, "the admission is noted")
    assert any(one.token == "ci" and not one.ready for one in _noted(store, "eu-burst", "ci"))


def _first_of_ten(web: WebProcess, headers: dict[str, str]) -> bool:
    began = time.monotonic()
    with ThreadPoolExecutor(10) as threads:
        told = list(threads.map(lambda _: ask(web, headers, "server=eu-burst").status, range(10)))
    took = time.monotonic() - began
    assert told.count(200) <= 1 + took / SETTLING
    assert set(told) <= {200, 503}
    return 200 in told


def _noted(store: Store, server: str, caller: str) -> list[gate_queries.GateDecision]:
    return [one for one in gate_queries.decisions(store.client, server, 0) if one.caller == caller]


def test_a_server_that_falls_silent_is_refused_and_one_that_nobody_knows_too(
    web: WebProcess, store: Store, headers: dict[str, str]
) -> None:
    with steady(store.client, "eu-silent", 20.0, poll=500):
        let_in(web, headers, "server=eu-silent")

    def is_refused() -> bool:
        answer = ask(web, headers, "server=eu-silent")
        return answer.status == 503 and json.loads(answer.body)["reason"] == "no_fresh_sample"

    until(is_refused, SECONDS, "it says that there is no fresh sample")
    nobody = ask(web, headers, "server=nobody")
    assert nobody.status == 404
    assert "eu-silent" in json.loads(nobody.body)["servers"]


def test_without_a_monitor_it_measures_by_itself_and_says_so(web: WebProcess, headers: dict[str, str]) -> None:
    def is_measured() -> bool:
        told = json.loads(ask(web, headers, "server=web-1").body)
        return told["source"] == "local" and told["cpu_raw"] is not None

    until(is_measured, SECONDS, "it has measured")
    told = json.loads(ask(web, headers, "server=web-1").body)
    assert told["server"] == "web-1"
    assert "the web process measured it" in told["reason"]


def test_of_two_web_processes_one_lets_in_each_settling_period(
    web: WebProcess, store: Store, headers: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "unstall.toml").write_text("[gate]\nopen_on_loopback = true\n")
    environ = {"UNSTALL_STATE_URL": store.url, "UNSTALL_REDIS_URL": store.url.replace("/0", "/1")}
    environ["UNSTALL_CONFIG"] = str(tmp_path / "unstall.toml")
    with WebProcess(environ, LIMITS) as second, steady(store.client, "eu-two", 20.0, poll=POLL):
        began, admitted = time.monotonic(), 0
        doors = ((web, headers), (second, {})) * 2

        def asked_everywhere() -> bool:
            nonlocal admitted
            with ThreadPoolExecutor(4) as threads:
                told = list(threads.map(lambda door: ask(*door, "server=eu-two").status, doors))
            admitted += told.count(200)
            assert admitted <= 1 + (time.monotonic() - began) / SETTLING
            return admitted >= 3

        until(asked_everywhere, 2 * SECONDS, "three were let in, one after the other")
        assert ask(second, {"X-Forwarded-For": "127.0.0.1"}, "server=eu-two").status == 401


def test_it_is_silent_while_the_store_is_away_and_goes_on_by_itself(
    web: WebProcess, store: Store, headers: dict[str, str]
) -> None:
    with steady(store.client, "eu-back", 20.0, poll=POLL):
        let_in(web, headers, "server=eu-back")
        store.stop()
        until(lambda: "no_fresh_sample" in ask(web, headers, "server=eu-back").body.decode(), SECONDS, "it is old")
        store.start()
        let_in(web, headers, "server=eu-back&caller=back")
        until(lambda: _noted(store, "eu-back", "back"), SECONDS, "the admission is noted")
