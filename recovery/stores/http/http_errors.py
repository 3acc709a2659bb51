"""Translates HTTP refusals and errors of the system, of TLS and of HTTP into the tree of errors.py."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpcore

from recovery.domain.identifiers import visible
from recovery.errors import AccessDenied, Garbled, NotReady, StoreError, TimedOut, TlsMismatch, Unreachable
from recovery.stores.redis.redis_errors import from_system

LOOK = "Open that address from this machine and check what answers."
_LOGIN = "Check token_file, or username and password_file."
_TLS = "Use https:// where it uses TLS, http:// where it does not; tls_ca names its certificate authority."
_SILENT = "It accepts connections but does not answer, or the network drops the packets."
_ADVICE: dict[type[StoreError], str] = {TimedOut: _SILENT, TlsMismatch: _TLS}
_SAID = 200  # characters of what the other side says of its own failure
_HUNG_UP = ("disconnected", "closed connection")  # as the library words it, in an error of the protocol


class HttpResponseTooLong(Garbled):
    """Raised for an answer that is larger than the caller can take."""


def timeout_error(target: str, seconds: float) -> TimedOut:
    return TimedOut(target, f"no answer within {seconds:g} s", advice=_SILENT)


def refused(target: str, status: int, headers: Mapping[str, str], body: bytes) -> StoreError:
    """Translates any response but a good one, with what it says of itself."""
    reason = f"it answers {status} {_phrase(status)}".rstrip()
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AccessDenied(target, reason, advice=_LOGIN)
    if location := headers.get("location"):
        leads = " ".join(location.partition("?")[0].split())[:_SAID]
        return Garbled(
            target, f"{reason}, which is not followed", advice=f"Write the address that it redirects to: {leads}"
        )
    said = f"{reason}: {told}" if (told := _told(body)) else reason
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return NotReady(target, said, advice="Check its own log.")
    return Garbled(target, said, advice=LOOK)


def translated(error: Exception, target: str, seconds: float) -> StoreError:
    """Translates an error of the HTTP library."""
    if isinstance(error, (TimeoutError, httpcore.TimeoutException)):
        return timeout_error(target, seconds)
    cause = _cause(error)
    if isinstance(cause, OSError):
        found = from_system(cause, target, limit=seconds)
        found.advice = _ADVICE.get(type(found), found.advice)
        return found
    if isinstance(error, (httpcore.ReadError, httpcore.WriteError)) or any(word in str(error) for word in _HUNG_UP):
        return Unreachable(target, "it closed the connection")
    return Garbled(target, "it does not speak HTTP correctly", advice=LOOK)


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""


def _told(body: bytes) -> str:
    """Returns the error in an answer as Prometheus gives it."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    said = found.get("error") if isinstance(found, dict) else ""
    return visible(" ".join(str(said or "").encode("utf-8", "replace").decode().split())[:_SAID])


def _cause(error: BaseException) -> BaseException:
    """Returns the error of the system or of TLS beneath the layers of the libraries, when there is one."""
    found = error
    while (below := found.__cause__ or found.__context__) is not None:
        found = below
        if isinstance(found, (ssl.SSLError, socket.gaierror)):
            return found
    return found
