"""/api/v1/idempotency of a real web process over a real state store: who may call, who gets it, and what is said."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from dashboard.api.view_decorator import BODY_LIMIT
from recovery.domain.idempotency import KEEP, KEY_LIMIT, OWNER_LIMIT, RESULT_LIMIT, TTL
from recovery.stores.state import state_keys
from tests.support.idempotency import LONG, Desk
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until
from tests.web.gate.test_gate import bearer

SECONDS = 30.0
CLIENTS = 1_000
LIMITS = {
    "dashboard.idempotency.lifespan.FRESH_SECONDS": 0.2,
    "dashboard.idempotency.lifespan.KEPT_SECONDS": 1.0,
    "dashboard.idempotency.asgi.WAIT_SECONDS": 60.0,  # more than a busy machine needs
}
ROOT = "/api/v1/idempotency"
STEPS = ("claim", "renew", "complete", "release")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store("valkey") as store:
        yield store


def environ(store: Store) -> dict[str, str]:
    return {"UNSTALL_STATE_URL": store.url, "UNSTALL_REDIS_URL": store.url.replace("/0", "/1")}


@pytest.fixture(scope="module")
def web(store: Store) -> Iterator[WebProcess]:
    with WebProcess(environ(store), LIMITS) as process:
        yield process


@pytest.fixture(scope="module")
def api(web: WebProcess) -> Iterator[httpx.Client]:
    url = f"http://127.0.0.1:{web.port}"
    with httpx.Client(base_url=url, headers=bearer(web, "billing", "idempotency"), timeout=SECONDS) as client:
        yield client


def call(api: httpx.Client, step: str, status: int, **body: Any) -> dict[str, Any]:
    answer = api.post(f"{ROOT}/{step}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, Any] = answer.json()
    assert ("error" in found) is (status >= 400)
    return found


def claim(api: httpx.Client, key: str, status: int = 201, ttl: int = LONG, **body: Any) -> dict[str, Any]:
    return call(api, "claim", status, key=key, ttl=ttl, **body)


def code(answer: httpx.Response, status: int) -> str:
    """Of a failure, in the API's one shape."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == {"code", "message", "advice"}
    return str(answer.json()["error"]["code"])


def test_the_whole_life_of_a_claim(api: httpx.Client) -> None:
    won = claim(api, "life/ü 1", owner="w-1")
    assert (won["state"], won["owner"], won["by"], won["key"]) == ("claimed", "w-1", "billing", "life/ü 1")
    assert won["until"] - won["since"] == LONG
    refused = claim(api, "life/ü 1", 409, owner="w-2")
    assert refused["error"]["code"] == "claimed"
    assert (refused["owner"], refused["token"], refused["until"]) == ("w-1", won["token"], won["until"])
    assert call(api, "renew", 200, key="life/ü 1", token=won["token"], ttl=2 * LONG)["until"] > won["until"]
    assert call(api, "complete", 409, key="life/ü 1", token=won["token"] - 1)["error"]["code"] == "late"
    result = {"id": "ch_1", "big": 2**70, "exact": 0.1, "text": "ü😀", "none": None, "list": []}
    done = call(api, "complete", 200, key="life/ü 1", token=won["token"], result=result, keep=90_000)
    assert (done["state"], done["result"], done["until"]) == ("completed", result, None)
    assert done["kept_until"] - done["completed_at"] == 90_000
    later = claim(api, "life/ü 1", 409)
    assert (later["error"]["code"], later["result"]) == ("completed", result)
    assert call(api, "complete", 200, key="life/ü 1", token=won["token"], result=7)["result"] == result
    shown = api.get(ROOT, params={"key": "life/ü 1"}).json()
    assert {**shown, "now": 0} == {**{name: later[name] for name in shown}, "now": 0}


def test_a_released_key_is_free_and_says_so(api: httpx.Client) -> None:
    token = claim(api, "released")["token"]
    assert call(api, "release", 200, key="released", token=token)["state"] == "free"
    assert call(api, "complete", 409, key="released", token=token)["error"]["code"] == "free"
    assert claim(api, "released")["token"] > token


def test_retry_after_says_when_a_claim_lapses(api: httpx.Client) -> None:
    claim(api, "retry", ttl=90_000)
    answer = api.post(f"{ROOT}/claim", json={"key": "retry", "ttl": 1_000})
    assert 60 <= int(answer.headers["retry-after"]) <= 90
    claim(api, "retry-far", ttl=TTL[1])
    answer = api.post(f"{ROOT}/claim", json={"key": "retry-far", "ttl": 1_000})
    assert answer.headers["retry-after"] == "3600"


def test_a_result_that_is_too_large_is_not_kept_and_the_work_is_done(api: httpx.Client) -> None:
    for key, size in (("fits", RESULT_LIMIT - 2), ("large", RESULT_LIMIT)):
        token = claim(api, key)["token"]
        done = call(api, "complete", 200, key=key, token=token, result="x" * size)
        later = claim(api, key, 409)
        for told in (done, later):
            assert told["state"] == "completed"
            assert told["result"] == ("x" * size if key == "fits" else None)
            assert told["dropped"] == (None if key == "fits" else RESULT_LIMIT + 2)


BAD: tuple[tuple[str, dict[str, Any] | bytes, str], ...] = (
    ("claim", {"ttl": LONG}, "key"),
    ("claim", {"key": "", "ttl": LONG}, "key"),
    ("claim", {"key": "ü" * (KEY_LIMIT // 2 + 1), "ttl": LONG}, "key"),
    ("claim", b'{"key": "\\ud800", "ttl": 60000}', "key"),
    ("claim", {"key": 7, "ttl": LONG}, "key"),
    ("claim", {"key": "k"}, "ttl"),
    ("claim", {"key": "k", "ttl": TTL[0] - 1}, "ttl"),
    ("claim", {"key": "k", "ttl": TTL[1] + 1}, "ttl"),
    ("claim", {"key": "k", "ttl": LONG, "owner": "x" * (OWNER_LIMIT + 1)}, "owner"),
    ("claim", {"key": "k", "ttl": LONG, "owner": "two\nlines"}, "owner"),
    ("claim", {"key": "k", "ttl": LONG, "owner": "a\tb"}, "owner"),
    ("claim", {"key": "k", "ttl": LONG, "token": 1}, "token"),
    ("complete", {"key": "k"}, "token"),
    ("complete", {"key": "k", "token": 2**53}, "token"),
    ("complete", {"key": "k", "token": -1}, "token"),
    ("complete", {"key": "k", "token": 1, "keep": KEEP[0] - 1}, "keep"),
    ("complete", {"key": "k", "token": 1, "keep": KEEP[1] + 1}, "keep"),
    ("complete", b'{"key": "k", "token": 1, "result": 1e999}', "result"),
    ("renew", {"key": "k", "token": 1}, "ttl"),
    ("claim", b"[]", "body"),
)


@pytest.mark.parametrize(("step", "body", "field"), BAD, ids=range(len(BAD)))
def test_what_makes_no_sense_is_said_by_its_field(
    api: httpx.Client, step: str, body: dict[str, Any] | bytes, field: str
) -> None:
    written = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = api.post(f"{ROOT}/{step}", content=written)
    assert code(answer, 422) == "invalid"
    assert answer.json()["error"]["message"].startswith(f"{field}: ")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"key": NaN}', b"[" * 100_000], ids=range(5))
def test_what_is_no_json_is_refused(api: httpx.Client, body: bytes) -> None:
    assert code(api.post(f"{ROOT}/claim", content=body), 400) == "bad_request"


def test_a_body_without_end_is_not_taken(api: httpx.Client) -> None:
    assert code(api.post(f"{ROOT}/complete", content=b"x" * (3 * BODY_LIMIT)), 413) == "too_large"


def test_the_longest_key_of_any_characters_leads_back_to_itself(api: httpx.Client) -> None:
    for key in ("x" * KEY_LIMIT, "ü" * (KEY_LIMIT // 2), "\x00\t\r\n&=%2F+/?#", "..", "😀"):
        token = claim(api, key)["token"]
        assert api.get(ROOT, params={"key": key}).json()["token"] == token


def test_only_a_token_with_the_scope_opens_it(web: WebProcess, api: httpx.Client) -> None:
    url = f"http://127.0.0.1:{web.port}"
    others = bearer(web, "others", "read read:payloads act bulk audit gate metrics")
    with httpx.Client(base_url=url, timeout=SECONDS) as stranger:
        for path, method in ((ROOT, "GET"), *((f"{ROOT}/{step}", "POST") for step in STEPS)):
            answer = stranger.request(method, path)
            assert code(answer, 401) == "token_missing"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            wrong = {"Authorization": f"Bearer unstall_{'x' * 43}"}
            assert code(stranger.request(method, path, headers=wrong), 401) == "token_unknown"
            assert code(stranger.request(method, path, headers=others), 403) == "scope_missing"
            cookie = {"Cookie": f"unstall-session={web.cookies['admin']}"}
            assert code(stranger.request(method, path, headers=cookie), 401) == "token_missing"
    for path in (f"{ROOT}/", f"{ROOT}/forget", f"{ROOT}/claim/", f"{ROOT}/show"):
        assert code(api.post(path, json={}), 404) == "no_such_address"
    for method, path, allowed in (("POST", ROOT, "GET"), ("GET", f"{ROOT}/claim", "POST"), ("PUT", ROOT, "GET")):
        answer = api.request(method, path)
        assert (code(answer, 405), answer.headers["allow"]) == ("method_not_allowed", allowed)


def test_a_token_in_the_address_is_burnt(api: httpx.Client) -> None:
    assert code(api.get(ROOT, params={"key": "k", "x": f"unstall_{'x' * 43}"}), 400) == "token_in_address"
    assert code(api.get(ROOT), 422) == "invalid"
    assert code(api.get(f"{ROOT}?key={'%41' * 2_000}"), 414) == "too_long"


def test_a_token_that_calls_without_pause_is_held_back(store: Store) -> None:
    with WebProcess(environ(store), LIMITS | {"dashboard.idempotency.asgi.MOST": 5}) as slow:
        headers = bearer(slow, "hasty", "idempotency")
        url = f"http://127.0.0.1:{slow.port}{ROOT}?key=k"
        with httpx.Client(headers=headers, timeout=SECONDS) as client:
            seen = until(lambda: next((a for a in [client.get(url)] if a.status_code == 429), None), SECONDS)
    assert (code(seen, 429), seen.headers["retry-after"]) == ("too_many", "1")


def test_a_thousand_that_claim_one_key_at_once_have_one_winner(web: WebProcess, store: Store) -> None:
    tokens = [bearer(web, f"crowd-{number}", "idempotency")["Authorization"] for number in range(3)]
    answers = asyncio.run(_crowd(web, tokens))
    words = Counter(told["error"]["code"] if "error" in told else told["state"] for _, told in answers)
    assert words == {"claimed": CLIENTS}
    assert Counter(status for status, _ in answers) == {201: 1, 409: CLIENTS - 1}
    assert len({told["token"] for _, told in answers}) == 1, "all hear of the same claim"
    assert Desk(store.client).show("crowd").claim


async def _crowd(web: WebProcess, tokens: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """All are connected before the first one asks."""
    together = asyncio.Event()
    connected = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(CLIENTS)]

    async def one(number: int) -> tuple[int, dict[str, Any]]:
        reader, writer = connected[number]
        body = json.dumps({"key": "crowd", "ttl": LONG, "owner": str(number)}).encode()
        head = f"POST {ROOT}/claim HTTP/1.1\r\nHost: localhost\r\nAuthorization: {tokens[number % len(tokens)]}\r\n"
        await together.wait()
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        told = (await asyncio.wait_for(reader.read(), 4 * SECONDS)).split(b"\r\n\r\n", 1)
        writer.close()
        return int(told[0].split(b" ", 2)[1]), json.loads(told[1])

    tasks = [asyncio.create_task(one(number)) for number in range(CLIENTS)]
    together.set()
    return await asyncio.gather(*tasks)


_CLAIMER = """
import json, os, sys, urllib.request
def call(step, **body):
    request = urllib.request.Request(os.environ["URL"] + step, json.dumps(body).encode(), json.loads(os.environ["H"]))
    return json.load(urllib.request.urlopen(request))
token = call("claim", key="dies", ttl=2000, owner="first")["token"]
print(token, flush=True)
sys.stdin.read()
"""


def test_a_claimer_that_is_killed_is_replaced_and_its_late_completion_refused(
    web: WebProcess, api: httpx.Client
) -> None:
    headers = {**bearer(web, "dying", "idempotency"), "Content-Type": "application/json"}
    given = {**os.environ, "URL": f"http://127.0.0.1:{web.port}{ROOT}/", "H": json.dumps(headers)}
    claimer = spawn([sys.executable, "-c", _CLAIMER], environ=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert claimer.stdout
        token = int(claimer.stdout.readline())
        claimer.send_signal(signal.SIGKILL)
        claimer.wait()

        def replaced() -> dict[str, Any] | None:
            answer = api.post(f"{ROOT}/claim", json={"key": "dies", "ttl": LONG, "owner": "second"})
            return answer.json() if answer.status_code == 201 else None

        won = until(replaced, SECONDS, "it expires, and the next one gets it")
    finally:
        end(claimer)
    assert won["token"] > token
    late = call(api, "complete", 409, key="dies", token=token, result="of the dead")
    assert (late["error"]["code"], late["owner"], late["state"]) == ("late", "second", "claimed")
    assert call(api, "complete", 200, key="dies", token=won["token"], result=1)["result"] == 1
    assert call(api, "complete", 409, key="dies", token=token)["error"]["code"] == "late"


def test_while_the_store_is_away_nobody_gets_a_claim_and_then_it_goes_on(tmp_path: Path) -> None:
    with ExitStack() as stack:
        own = stack.enter_context(Store("valkey", options={"appendonly": "yes", "appendfsync": "always"}))
        web = stack.enter_context(WebProcess(environ(own), LIMITS))
        url = f"http://127.0.0.1:{web.port}"
        headers = bearer(web, "patient", "idempotency")
        api = stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=SECONDS))
        token = claim(api, "kept")["token"]
        own.kill()
        for _ in range(3):
            answer = api.post(f"{ROOT}/claim", json={"key": "new", "ttl": LONG})
            assert (code(answer, 503), answer.headers["retry-after"]) == ("store_down", "5")
        own.start()
        until(lambda: api.get(ROOT, params={"key": "kept"}).status_code == 200, SECONDS, "it answers again")
        assert claim(api, "kept", 409)["token"] == token, "a store with an append-only file has kept it"
        own.pause()
        silent = api.post(f"{ROOT}/claim", json={"key": "silent", "ttl": LONG})
        own.resume()
        assert code(silent, 503) in ("store_down", "busy")
        until(lambda: claim_of(api, "after") == 201, SECONDS, "it goes on")


def claim_of(api: httpx.Client, key: str) -> int:
    return api.post(f"{ROOT}/claim", json={"key": key, "ttl": LONG}).status_code


def test_under_two_names_for_one_database_it_refuses_and_writes_nothing() -> None:
    with Store("valkey", arguments=()) as own:
        named = {"UNSTALL_STATE_URL": own.url, "UNSTALL_REDIS_URL": _other_name(own)}
        with WebProcess(named, LIMITS) as web:
            headers = bearer(web, "misled", "idempotency")
            with httpx.Client(base_url=f"http://127.0.0.1:{web.port}", headers=headers, timeout=SECONDS) as api:
                answer = api.post(f"{ROOT}/claim", json={"key": "k", "ttl": LONG})
                assert code(answer, 503) == "not_apart"
                assert "the queues of main" in answer.json()["error"]["message"]
            page = web.get("/idempotency", "admin", seconds=SECONDS).body.decode()
            assert "is the same database as the queues of main" in page
        assert own.client.exists(state_keys.IDEMPOTENCY_RECORDS, state_keys.IDEMPOTENCY_COUNTS) == 0


def _other_name(store: Store) -> str:
    """An address of the same server that no configuration can know to be the same."""
    return store.url.replace("127.0.0.1", "0.0.0.0")
