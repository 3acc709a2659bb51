"""Adds the security headers to each HTTP answer of the web process: pages, probes, metrics, streams and static files.

This is the one place that names them. A page has a content policy of its own (settings.CONTENT_SECURITY_POLICY); what
brings none is data, which needs no permission at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings

from dashboard.live.asgi import Headers, Message, Scope, Send

HEADERS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"cache-control", b"no-store"),
]
_TRANSPORT = b"strict-transport-security"


def wrap_send(scope: Scope, send: Send) -> Send:
    """Wraps `send` so that it completes the headers of the answer; other messages pass without another coroutine."""
    is_encrypted = scope.get("scheme") == "https"

    def complete(message: Message) -> object:
        if message["type"] == "http.response.start":
            message = {**message, "headers": add_missing_headers(message.get("headers", ()), is_encrypted=is_encrypted)}
        return send(message)

    return complete  # type: ignore[return-value]  # what `send` returns is awaited by the caller


def add_missing_headers(headers: Iterable[tuple[bytes, bytes]], *, is_encrypted: bool = False) -> Headers:
    """Returns the given headers and those that they lack."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    seconds = settings.STRICT_TRANSPORT_SECONDS if is_encrypted else 0
    wanted = [*HEADERS, *([(_TRANSPORT, b"max-age=%d" % seconds)] if seconds else [])]
    return [*given, *(header for header in wanted if header[0] not in names)]
