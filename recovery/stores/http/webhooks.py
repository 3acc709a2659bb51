"""Sends a message to a webhook: one POST, signed where there is a secret. No redirect is followed."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from recovery.domain.alerts import messages
from recovery.domain.alerts.channels import Webhook
from recovery.domain.alerts.messages import AlertMessage
from recovery.domain.identifiers import printable
from recovery.domain.redaction import redact
from recovery.errors import NotDelivered
from recovery.stores.redis.redis_errors import from_system
from recovery.stores.send_deadline import CancellableSockets, timeout_reason

# These loggers write whole URLs into the log, and the URL of some receivers is a secret.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_PORTS = {"http": 80, "https": 443}
_SAID = 200  # characters of what the other side says of its own failure
_BETWEEN = (httpx.codes.BAD_GATEWAY, httpx.codes.GATEWAY_TIMEOUT)  # of a proxy, which does not know how it ended
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.ProxyError)


def post(webhook: Webhook, told: AlertMessage, seconds: float, lifeline: CancellableSockets) -> str:
    """Sends a message. Raises NotDelivered. Proxies are those of the environment."""
    return send(webhook, told.id, messages.body(told, webhook), seconds, lifeline)


def send(webhook: Webhook, id: str, body: bytes, seconds: float, lifeline: CancellableSockets) -> str:
    """Sends any body of JSON; `id` is the same when it is sent once more. Raises NotDelivered."""
    try:
        with (
            httpx.Client(verify=_trusted(webhook.ca), timeout=seconds, follow_redirects=False) as client,
            client.stream(
                "POST",
                webhook.url,
                content=body,
                headers=_headers(webhook, id, body),
                extensions={"trace": _holding(lifeline)},
            ) as response,
        ):
            _judge(response)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise NotDelivered(_words(error, webhook, seconds), may_have=not isinstance(error, _UNSENT)) from error
    return ""


def reach(webhook: Webhook, seconds: float, lifeline: CancellableSockets) -> str:
    """Connects, with TLS where it is spoken. Returns what was left untried, else "". Raises NotDelivered."""
    parts = urlsplit(webhook.url)
    host = parts.hostname or ""
    if getproxies().get(parts.scheme) and not proxy_bypass(host):
        return "It uses the proxy of the environment: send a test from the Alerts page."
    try:
        with socket.create_connection((host, parts.port or _PORTS[parts.scheme]), seconds) as connected:
            lifeline.hold(connected)
            if parts.scheme == "https":
                _trusted(webhook.ca).wrap_socket(connected, server_hostname=host).close()
    except (OSError, ValueError) as error:
        raise NotDelivered(_words(error, webhook, seconds)) from error
    return ""


def _trusted(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca or None)


def _headers(webhook: Webhook, id: str, body: bytes) -> dict[str, str]:
    signed = {webhook.header: messages.signature(webhook.secret, body)} if webhook.secret else {}
    return {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "unstall",
        "Accept-Encoding": "identity",
        "Idempotency-Key": id,
        **signed,
    }


def _holding(lifeline: CancellableSockets) -> Callable[[str, Any], None]:
    def traced(event: str, info: Any) -> None:
        if event == "connection.connect_tcp.complete":
            lifeline.hold(info["return_value"].get_extra_info("socket"))

    return traced


def _judge(response: httpx.Response) -> None:
    """Raises NotDelivered unless the response is a success; a redirect leads to an address that is not configured."""
    if response.is_success:
        return
    status = response.status_code
    reason = f"It answers {status} {httpx.codes.get_reason_phrase(status)}".rstrip()
    if response.is_redirect:
        raise NotDelivered(f"{reason}, and redirects are not followed: write the address that it redirects to.")
    said = _said(response)
    retry = response.headers.get("Retry-After", "")
    wait = float(retry) if retry.isascii() and retry.isdigit() else 0.0
    raise NotDelivered(f"{reason}: {said}" if said else f"{reason}.", may_have=status in _BETWEEN, retry=wait)


def _said(response: httpx.Response) -> str:
    """Returns the beginning of the response's text, which is not trusted."""
    found = b""
    with suppress(httpx.HTTPError):
        found = b"".join(islice(response.iter_raw(_SAID), 1))
    return printable(redact.text(" ".join(found[:_SAID].decode("utf-8", "replace").split())))


def _words(error: Exception, webhook: Webhook, seconds: float) -> str:
    """Describes an error, never in the library's own text: it may hold the address."""
    if isinstance(error, httpx.TimeoutException):
        return timeout_reason(seconds)  # as `within` words it, which may be the first to notice
    if isinstance(error, httpx.ProxyError):
        return "The proxy of the environment refuses the connection."
    cause = _cause(error)
    if isinstance(cause, OSError):
        return f"{from_system(cause, webhook.target).reason.capitalize()}."
    if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
        return "It closed the connection, or does not speak HTTP."
    return f"It cannot be sent ({type(error).__name__})."


def _cause(error: BaseException) -> BaseException:
    """Returns the error of the system or of TLS beneath those of the libraries."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
        if isinstance(error, OSError):
            break
    return error
