"""The headers that every answer has. tests/integration/server/test_security_headers.py asks a real process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import override_settings

from dashboard import asgi
from dashboard.server import security_headers
from dashboard.server.security_headers import HEADERS, add_missing_headers

_TRANSPORT = b"strict-transport-security"


def test_what_is_lacking_is_added_and_what_is_there_stays() -> None:
    own = [(b"Content-Security-Policy", b"default-src 'self'"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    found = add_missing_headers(own)
    assert found[:3] == own
    assert {name for name, _ in found[3:]} == {name for name, _ in HEADERS} - {b"content-security-policy"}


@pytest.mark.parametrize(
    ("scheme", "seconds", "is_sent"), [("https", 60, True), ("https", 0, False), ("http", 60, False)]
)
async def test_a_browser_is_bound_to_tls_by_an_answer_over_tls_alone(scheme: str, seconds: int, is_sent: bool) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    with override_settings(STRICT_TRANSPORT_SECONDS=seconds):
        await security_headers.wrap_send({"scheme": scheme}, send)({"type": "http.response.start", "status": 200})
    assert ((_TRANSPORT, b"max-age=60") in sent[0]["headers"]) is is_sent


@pytest.mark.parametrize("path", ["/metrics", "/live/events", "/api/v1/idempotency/claim"])
async def test_a_fault_of_ours_is_answered_with_them(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would answer by itself, and with three headers."""

    async def broken(*_: Any) -> None:
        raise TypeError("hunter2")

    for name in ("_metrics", "_streams", "_idempotency"):
        monkeypatch.setattr(asgi, name, broken)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await asgi.application({"type": "http", "path": path, "method": "GET", "headers": []}, broken, send)
    start, body = sent
    assert start["status"] == 500
    assert {name for name, _ in start["headers"]} >= {name for name, _ in HEADERS}
    assert b"hunter2" not in body["body"]
    if path.startswith("/api/"):
        assert json.loads(body["body"])["error"]["code"] == "broken"


async def test_a_fault_in_an_answer_that_has_begun_is_left_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops the connection, so that nobody takes half an answer for a whole one."""
    begun: list[Any] = []

    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise TypeError("half")

    async def send(message: Any) -> None:
        if begun:
            raise RuntimeError("as uvicorn says it")
        begun.append(message)

    monkeypatch.setattr(asgi, "_metrics", half)
    with pytest.raises(TypeError, match="half"):
        await asgi.application({"type": "http", "path": "/metrics", "method": "GET", "headers": []}, half, send)
    assert [message["status"] for message in begun] == [200]
