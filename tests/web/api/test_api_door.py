"""Who comes in to the API: a valid token in the header, and nothing else."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from dashboard import asgi
from dashboard.accounts import tokens
from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.api import view_decorator
from dashboard.logging_config import redacted
from dashboard.models import MachineToken
from dashboard.server import request_body
from tests.support.machines import Machine, refused, told
from tests.support.people import browser, person
from tests.support.stuck.watching import bullmq
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(desk: Desk) -> Machine:
    bullmq(desk.client, "bull:mail")
    desk.look("bull:mail")
    return Machine(TokenScope.READ)


def test_a_valid_token_is_let_in(reader: Machine) -> None:
    assert told(reader.get("queues"))["matched"] == 1


def test_without_a_token_nothing_is_said(desk: Desk) -> None:
    answer = Machine().get("queues")
    refused(answer, 401, "token_missing")
    assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["Bearer", "Bearer  ", "Basic YTpi", "unstall_x", "Bearer nope", "Bearer \xff\xfe"])
def test_any_other_header_is_refused(desk: Desk, header: str) -> None:
    answer = Client().get("/api/v1/queues", headers={"Authorization": header})
    assert answer.status_code == 401


def test_a_session_opens_nothing(desk: Desk) -> None:
    admin = browser(person(UserRole.ADMIN))
    for method in ("GET", "POST", "DELETE"):
        refused(admin.generic(method, "/api/v1/queues"), 401, "token_missing")


def test_an_expired_token_says_since_when(reader: Machine) -> None:
    MachineToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert "expired at 20" in refused(reader.get("queues"), 401, "token_spent")["message"]


def test_a_revoked_token_is_refused_at_once(reader: Machine) -> None:
    told(reader.get("queues"))
    tokens.revoke(reader.kept)
    assert "was revoked" in refused(reader.get("queues"), 401, "token_spent")["message"]


@pytest.mark.parametrize("name", ["token", "access_token", "API_KEY", "authorization"])
def test_a_token_in_the_address_is_refused_and_burnt(reader: Machine, name: str) -> None:
    """Also beside a good one in the header: whoever wrote that address has to hear of it."""
    fault = refused(reader.get("queues", **{name: "x"}), 400, "token_in_address")
    assert "Revoke this token" in fault["advice"]


def test_a_token_under_any_other_name_in_the_address_is_seen(reader: Machine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        refused(reader.get("queues", q=reader.token), 400, "token_in_address")
        refused(reader.get(f"queues/main/{reader.token}"), 400, "token_in_address")
    assert not [record for record in caplog.records if reader.token in redacted(record.getMessage())]


def test_no_log_line_keeps_a_token(reader: Machine) -> None:
    assert redacted(f"GET /api/v1/queues/{reader.token}") == "GET /api/v1/queues/***"


def test_only_the_hash_is_kept(reader: Machine) -> None:
    kept = MachineToken.objects.values().get()
    assert reader.token not in str(kept)
    assert reader.token.startswith(kept["prefix"])
    assert len(reader.token) - len(kept["prefix"]) > 32


def test_the_last_use_is_written_once_a_minute(reader: Machine, django_assert_num_queries: object) -> None:
    reader.get("queues")
    first = MachineToken.objects.get().last_used_at
    assert first is not None
    reader.get("queues")
    assert MachineToken.objects.get().last_used_at == first
    MachineToken.objects.update(last_used_at=first - timedelta(minutes=2))
    reader.get("queues")
    assert MachineToken.objects.get().last_used_at > first


def test_a_database_that_cannot_be_written_keeps_nobody_from_reading(
    reader: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def filter(self, *_: object, **__: object) -> None:
            raise OperationalError("database or disk is full")

    token = MachineToken.objects.get()
    monkeypatch.setattr(MachineToken, "objects", Full())
    tokens.note_use(token)


def test_a_dead_database_is_told_without_its_address(reader: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(_: str) -> None:
        raise OperationalError("connection to 10.1.2.3 refused")

    monkeypatch.setattr(tokens, "find", dead)
    answer = reader.get("queues")
    refused(answer, 503, "database_down")
    assert answer["Retry-After"]
    assert "10.1.2.3" not in answer.content.decode()


def test_a_large_body_is_refused(reader: Machine) -> None:
    refused(reader.post("queues", b"x" * (view_decorator.BODY_LIMIT + 1)), 413, "too_large")
    refused(reader.post("queues", b"x" * (3 * 1024 * 1024)), 413, "too_large")


@pytest.mark.parametrize(("path", "is_json"), [("/api/v1/actions", True), ("/search", False)])
async def test_what_the_process_does_not_take_in_is_told_in_the_same_shape(
    monkeypatch: pytest.MonkeyPatch, path: str, is_json: bool
) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 100, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    monkeypatch.setattr(request_body, "BODY_LIMIT", 10)
    await asgi.application({"type": "http", "path": path, "method": "POST", "headers": []}, receive, send)
    start, body = sent
    assert start["status"] == 413
    assert (b"content-type", b"application/json") in start["headers"] or not is_json
    if is_json:
        assert json.loads(body["body"])["error"]["code"] == "too_large"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
def test_another_method_is_told_which_there_are(reader: Machine, method: str) -> None:
    answer = reader.send(method, "queues")
    assert answer.status_code == 405
    assert answer["Allow"] == "GET"
    if method != "HEAD":
        refused(answer, 405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/api/v1", "/api/v1/", "/api/v1/nope", "/api/x", "/api/v2/queues", "/api/v1/queues/"])
def test_what_does_not_exist_is_told_in_json(reader: Machine, path: str) -> None:
    refused(reader.get(path), 404, "no_such_address")
    refused(Machine().get(path), 401, "token_missing")


def test_the_root_is_no_page_either(reader: Machine) -> None:
    refused(Machine().get("/api/"), 404, "no_such_address")


def test_a_fault_of_ours_is_told_without_what_broke(reader: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from recovery.reads.queues import overview

    def broken(*_: object) -> None:
        raise KeyError("secret-of-the-house")

    monkeypatch.setattr(overview, "view", broken)
    answer = reader.get("queues")
    refused(answer, 500, "broken")
    assert "secret-of-the-house" not in answer.content.decode()


def test_a_wrong_host_is_told_in_json(reader: Machine) -> None:
    answer = Client(raise_request_exception=False).get("/api/v1/queues", headers={"Host": "evil.example"})
    refused(answer, 400, "bad_request")
