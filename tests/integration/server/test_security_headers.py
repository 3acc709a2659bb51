"""Every answer of a real web process has the security headers: pages, files, probes, streams, and refusals."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from dashboard.server.security_headers import HEADERS
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store

NAMES = {name.decode() for name, _ in HEADERS}
PLACES = (
    *("/login", "/queues", "/welcome/nope", "/nowhere", "/theme"),
    *("/static/css/tokens.css", "/static/nope.css", "/static/plotly/plotly.min.js"),
    *("/healthz", "/readyz", "/metrics", "/cpu-gate"),
    *("/live/events", "/live/nope", "/live/logs", "/live/logs/older", "/live/logs/download"),
    *("/api", "/api/v1/queues", "/api/v1/openapi.json", "/api/v1/idempotency/claim", "/api/v1/nope"),
)
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE")
MALFORMED = (
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01 no request\r\n\r\n",
    b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /login HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    b"GET /api/v1/queues HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
)


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with Store() as state, WebProcess({"UNSTALL_STATE_URL": state.url}) as process:
        yield process


def test_every_place_and_method_answers_with_all_of_them(web: WebProcess) -> None:
    answers = {f"{method} {path}": web.get(path, method=method).headers for path in PLACES for method in METHODS}
    missing = {what: NAMES - {name.lower() for name in headers} for what, headers in answers.items()}
    violations = {what: names for what, names in missing.items() if names}
    assert violations == {}


async def test_a_stream_has_them_too(web: WebProcess) -> None:
    async with web.tab() as tab:
        assert tab.status == 200
        assert set(tab.headers) >= NAMES
        assert tab.headers["cache-control"] == "no-store, no-transform"


@pytest.mark.parametrize("sent", MALFORMED, ids=["version", "garbage", "address", "host", "host of the API"])
def test_what_is_no_good_request_is_answered_with_them(web: WebProcess, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=10) as client:
        client.sendall(sent)
        answer = b""
        while part := client.recv(65_536):
            answer += part
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    first, *lines = head.split("\r\n")
    assert first.split()[1].startswith("4"), head
    assert {line.partition(":")[0].lower() for line in lines} >= NAMES
