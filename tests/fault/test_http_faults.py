"""Pages read by HTTP: every fault is told in words, within its time, and costs the pages beside it nothing."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.errors import AccessDenied, Garbled, NotReady, StoreError, TimedOut, TlsMismatch, Unreachable
from recovery.stores.http import http_client
from recovery.stores.http.http_client import HttpGetRequest, HttpGetResponse, fetch_all
from tests.support.odd_pages import OK, OddPages
from tests.support.waiting import until

GOOD = OK + b"hello"


def of(url: str) -> HttpGetRequest:
    return HttpGetRequest(HttpEndpoint(url))


def test_every_fault_is_told() -> None:
    with OddPages() as pages:
        redirect = b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/x?token=secret\r\n\r\n"
        starting = b'HTTP/1.1 503 X\r\n\r\n{"error": "starting\\nup"}'
        half = OK.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\n") + b"half"
        packed = OK.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
        expected: list[tuple[str, type[StoreError], str]] = [
            ("http://127.0.0.1:1/", Unreachable, "connection refused"),
            ("http://no-such-host.invalid/", Unreachable, "host"),
            (pages.page(b""), Unreachable, "it closed the connection"),
            (pages.page(half), Unreachable, "it closed the connection"),
            (pages.page(b"+PONG\r\n\r\n"), Garbled, "does not speak HTTP"),
            (pages.page(GOOD).replace("http:", "https:"), TlsMismatch, "does not speak TLS"),
            (pages.page(b"HTTP/1.1 401 X\r\n\r\n"), AccessDenied, "401 Unauthorized"),
            (pages.page(redirect), Garbled, "302 Found, which is not followed"),
            (pages.page(b"HTTP/1.1 404 X\r\n\r\n"), Garbled, "404 Not Found"),
            (pages.page(starting), NotReady, "503 Service Unavailable: starting up"),
            (pages.page(OK + b"x" * (http_client.LARGEST + 1)), Garbled, "more than 8 MB"),
            (pages.page(packed), Garbled, "compressed"),
        ]
        fine = pages.page(GOOD)
        *faults, last = fetch_all([of(url) for url, _, _ in expected] + [of(fine)], seconds=60)
    assert last == HttpGetResponse(b"hello", "127.0.0.1")
    for (url, kind, says), fault in zip(expected, faults, strict=True):
        assert isinstance(fault, kind), (url, fault)
        assert says in fault.reason, fault
        assert fault.advice
        assert "redis" not in fault.advice.lower()
        assert "secret" not in fault.advice


def test_the_silent_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent after the connect, within TLS, between two bytes of its headers, and for the name server."""
    awake, woken, real = threading.Event(), list[object](), socket.getaddrinfo

    def resolve(host: str, *rest: object, **named: object) -> object:
        if host in ("silent.invalid", b"silent.invalid"):
            awake.wait(100)
            woken.append(host)
        return real(host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with OddPages() as pages:
        silent = [
            *(pages.page(None), pages.page(None).replace("http:", "https:")),
            *(pages.page(GOOD * 100, drip=0.2), "http://silent.invalid/"),
        ]
        asked = [of(url) for url in (*silent, pages.page(GOOD))]
        try:
            # On a busy machine the good one may be late too.
            answers = until(
                lambda: isinstance((found := fetch_all(asked, seconds=1.0))[-1], HttpGetResponse) and found, 60
            )
            assert not woken
        finally:
            awake.set()
    for url, answer in zip(silent, answers, strict=False):
        assert isinstance(answer, TimedOut), url
        assert answer.reason == "no answer within 1 s"


def test_whom_to_trust_is_configured(certificates: Path) -> None:
    """A server whose certificate nobody known has signed is not read, and gets no password."""
    from tests.support.processes.measuring import NodeExporter

    web = {
        "tls_server_config": {
            "cert_file": str(certificates / "server.crt"),
            "key_file": str(certificates / "server.key"),
        },
        # "open sesame"
        "basic_auth_users": {"unstall": "$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"},
    }
    ca = str(certificates / "ca.crt")
    with NodeExporter(web) as exporter:
        strange, closed, open_ = fetch_all(
            [
                HttpGetRequest(HttpEndpoint(exporter.page, username="unstall", password="open sesame")),
                HttpGetRequest(HttpEndpoint(exporter.page, ca=ca)),
                HttpGetRequest(HttpEndpoint(exporter.page, username="unstall", password="open sesame", ca=ca)),
            ],
            seconds=60,
        )
    assert isinstance(strange, TlsMismatch)
    assert "certificate was rejected" in strange.reason
    assert isinstance(closed, AccessDenied)
    assert isinstance(open_, HttpGetResponse)
    assert b"node_load1" in open_.body
