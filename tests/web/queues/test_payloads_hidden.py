"""Nobody reads a value of a payload on any page, in any answer of the API or in any export without revealing it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.live import events
from dashboard.live.cached_state import CachedState
from recovery.domain.redaction.payload_shape import shape
from recovery.reads.queues import snapshot_store
from tests.support.machines import Machine
from tests.support.people import browser, person
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
BASE = "bull:mail"
QUEUE = f"/queues/main/{BASE}/"
STATES = ("waiting", "active", "failed", "completed", "delayed")
IDS = tuple(f"j-{state}" for state in STATES)
PARTS = ("data", "opts", "returnvalue", "progress", "custom")
TABS = ("error", "data", "options", "result", "logs", "raw", "family")
LISTS = (
    "active",
    "waiting",
    "delayed",
    "completed",
    "failed",
    "prioritized",
    "history",
    "workers",
    "schedulers",
    "policy",
)
MARKERS = st.integers(0, 2**64).map(lambda number: f"Zq{number:020d}qZ")
NUMBERS = st.integers(7 * 10**14, 8 * 10**14)
KEYS = st.sampled_from(
    ["to", "user", "order", "items", "attempts", "delay", "type", "name", "id", "value", "städte", "a.b"]
)


@st.composite
def payloads(draw: st.DrawFn) -> tuple[Any, list[str]]:
    """A nested value with markers as texts, as numbers, and in JSON that stands in a text."""
    planted: list[str] = []

    def leaf() -> Any:
        kind = draw(st.sampled_from(["text", "text", "number", "json", "long"]))
        if kind == "number":
            number = draw(NUMBERS)
            planted.append(str(number))
            return number
        marker = draw(MARKERS)
        planted.append(marker)
        return {"json": json.dumps({"inner": marker}), "long": f"{marker} " * 40}.get(kind, marker)

    def node(depth: int) -> Any:
        kind = draw(st.sampled_from(["leaf", "dict", "list"])) if depth < 4 else "leaf"
        if kind == "dict":
            return {draw(KEYS): node(depth + 1) for _ in range(draw(st.integers(1, 3)))}
        return [node(depth + 1) for _ in range(draw(st.integers(1, 3)))] if kind == "list" else leaf()

    return node(0), planted


@settings(max_examples=150)
@given(payloads(), st.sampled_from([None, 2]), st.booleans(), st.data())
def test_no_value_is_in_a_shape_however_it_was_written_and_cut(
    case: tuple[Any, list[str]], indent: int | None, is_ascii: bool, data: st.DataObject
) -> None:
    value, planted = case
    whole = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    cut = data.draw(st.integers(0, len(whole)))
    for given_text in (whole, whole[:cut], whole[cut:], json.dumps(whole)):
        told = shape(given_text, "data")
        assert [marker for marker in planted if marker in told or marker[:8] in told] == []


@settings(max_examples=150)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(), inner, max_size=8),
    )
)
def test_any_payload_has_a_bounded_shape(value: Any) -> None:
    told = shape(json.dumps(value), "data")
    told.encode()
    assert len(told) < 400_000


def test_a_key_that_is_data_is_told_by_its_length() -> None:
    data = {"ada@example.org": 1, "550e8400-e29b-41d4-a716-446655440000": 2, "Ada Lovelace": 3, "größe": 4, "x" * 60: 5}
    told = json.loads(shape(json.dumps(data), "data"))
    assert list(told) == [
        *("<key 1 of 15 characters>", "<key 2 of 36 characters>", "<key 3 of 12 characters>"),
        *("größe", "<key 5 of 60 characters>"),
    ]


def test_a_shape_is_bounded_in_depth_and_number() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    assert shape(json.dumps(deep), "data").count("{") == 12
    wide = json.loads(shape(json.dumps({f"k{chr(97 + n % 26)}{'x' * (n // 26)}": n for n in range(500)}), "data"))
    assert len(wide) == 101
    assert wide["…"] == "<400 more keys>"
    assert json.loads(shape(json.dumps(list(range(5000))), "data"))[-1] == "<4,980 more items>"
    assert len(shape(json.dumps([[[[0] * 20] * 20] * 20] * 20), "data")) < 50_000


def planted(desk: Desk, value: Any) -> None:
    """A job of every state that carries the value in every part."""
    text = json.dumps(value)
    client, now = desk.client, now_ms()
    bullmq(client, BASE)
    fields = dict.fromkeys(PARTS, text)
    for id in IDS:
        add(
            client,
            BASE,
            id,
            processedOn=now - 2000,
            finishedOn=now,
            failedReason="no route",
            stacktrace='["Error: x"]',
            **fields,
        )
        client.lrem(f"{BASE}:wait", 1, id)
    client.lpush(f"{BASE}:wait", "j-waiting")
    client.lpush(f"{BASE}:active", "j-active")
    for state in ("failed", "completed", "delayed"):
        client.zadd(f"{BASE}:{state}", {f"j-{state}": now})
    client.hset(f"{BASE}:j-failed:processed", mapping={f"{BASE}:j-completed": text})
    client.sadd(f"{BASE}:j-failed:dependencies", f"{BASE}:j-waiting")
    client.hset(f"{BASE}:j-failed:failed", mapping={f"{BASE}:j-delayed": text})
    client.rpush(f"{BASE}:j-failed:logs", "a line")
    desk.look(BASE)
    desk.forget()


def addresses() -> Iterator[str]:
    yield from (f"{QUEUE}?tab={tab}" for tab in LISTS)
    yield from (f"{QUEUE}tab?tab={tab}" for tab in LISTS)
    for id in IDS:
        job = f"{QUEUE}jobs/{id}"
        yield from (f"{job}?tab={tab}" for tab in TABS)
        yield from (f"{job}?tab={tab}&whole" for tab in ("data", "raw"))
        yield from (f"{job}/tab?tab=data", f"{job}/life", f"{job}/log?first=1&after=1")
    yield from ("/search?q=j-failed&by=id", f"/search?q=job&by=name&queue=main/{BASE}", "/palette?q=j-failed")
    yield from (f"/act?act={act}&queue=main/{BASE}&job=j-failed" for act in ("retry", "remove"))
    yield from (f"/act?act={act}&queue=main/{BASE}&job=j-active" for act in ("requeue", "fail"))
    yield from ("/stuck", "/stuck/rows", "/audit", "/audit/1", "/audit/export?format=csv", "/audit/export?format=json")
    yield from ("/queues", "/queues/rows", "/banner", "/scanners")


def answers(role: UserRole) -> Iterator[tuple[str, str]]:
    client = browser(person(role))
    for address in addresses():
        for headers in ({}, {"HX-Request": "true"}):
            answer = client.get(address, headers=headers)
            content = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[arg-type]
            assert answer.status_code < 500, address
            yield f"{role} {address}", content.decode()


def of_streams(desk: Desk) -> Iterator[tuple[str, str]]:
    """What a browser is sent by itself; the fragments that it then asks for are among the addresses."""
    image = CachedState(collect_every=2.0)
    image.take(snapshot_store.encode(desk.snapshot) if desk.snapshot else None, b"1")
    yield "stream", (events.opening(now_ms()) + events.tick(image, now_ms())).decode()


def of_the_api() -> Iterator[tuple[str, str]]:
    machine = Machine(
        TokenScope.READ, TokenScope.PAYLOADS, TokenScope.AUDIT, TokenScope.BULK, TokenScope.ACT, name="all but reveal"
    )
    paths = ["queues", f"queues/main/{BASE}", "orphans", "audit", "audit/1"]
    paths += [f"queues/main/{BASE}/jobs?state={state}" for state in STATES]
    paths += [f"queues/main/{BASE}/jobs/{id}?whole=true" for id in IDS]
    for path in paths:
        yield path, machine.get(path).content.decode()
    seen = {"act": "retry", "queue": f"main/{BASE}", "jobs": [{"id": "j-failed"}], "reason": "x", "dry_run": True}
    yield "actions", machine.post("actions", seen).content.decode()


@pytest.mark.parametrize("role", list(UserRole))
@settings(  # a walk takes seconds, so there is one a role, and a failure is not shrunk
    max_examples=1,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=payloads())
def test_no_page_and_no_answer_shows_a_value(desk: Desk, role: UserRole, case: tuple[Any, list[str]]) -> None:
    desk.client.flushall()
    value, markers = case
    planted(desk, value)
    machine = Machine(TokenScope.ACT, name="remover")
    order = {"act": "remove", "queue": f"main/{BASE}", "jobs": [{"id": "j-completed"}], "reason": "old"}
    machine.post("actions", order)  # what is kept for its undo, and what the audit has of it
    shown = [*answers(role), *of_streams(desk), *(of_the_api() if role is UserRole.ADMIN else ())]
    found = [where for where, content in shown if any(marker in content for marker in markers)]
    assert found == []


def test_the_walk_would_find_a_value(desk: Desk, operator: Client) -> None:
    """The same addresses show what is no payload, and the job is where they look."""
    planted(desk, {"to": "Zq-marker"})
    shown = dict(answers(UserRole.OPERATOR))
    assert "j-failed" in shown[f"operator {QUEUE}?tab=failed"]
    assert "text of 9 characters" in shown[f"operator {QUEUE}jobs/j-failed?tab=data"]
    assert "Zq-marker" in operator.post(f"{QUEUE}jobs/j-failed/reveal?tab=data").content.decode()


def test_who_may_not_see_values_cannot_ask_for_them_by_searching(desk: Desk, viewer: Client) -> None:
    planted(desk, {"to": "Zq-marker"})
    for address in (f"/search?q=Zq-marker&by=data&queue=main/{BASE}", f"/search/part?q=Zq&by=data&queue=main/{BASE}"):
        assert viewer.get(address).status_code == 403
    for way in ("id", "name"):
        page = viewer.get(f"/search?q=Zq-marker&by={way}&queue=main/{BASE}").content.decode()
        assert 'jobs/j-failed"' not in page
