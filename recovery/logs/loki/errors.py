"""Turns failed answers of a Loki, or of a proxy in front of it, into errors with advice."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from recovery.domain.redaction import redact
from recovery.errors import AccessDenied, Garbled, NotReady, StatementRefused, StoreError, TimedOut

NO_LOKI = "Is this the address of a Loki, without /loki/api/v1 at the end?"
_SAID = 200  # characters of what it says of itself
_LONGEST_REST = 60.0  # seconds: a Loki that wants more is asked again all the same
_TENANT = "This Loki has several tenants: set yours as tenant."
_LOGIN = "Check token_file, or username and password_file, and whether this tenant may be read."
_NARROW = "Choose a label, or a shorter time range; its administrator can raise the limit."
_BUSY = "It is retried automatically. If this continues, its query limits are too low."
_SLOW = "Choose a label, or a shorter time range. Queries are limited by its query_timeout."
_OWN_LOG = "Check its own log. It is retried automatically."
_ADVICE = {
    HTTPStatus.NOT_FOUND: NO_LOKI,
    HTTPStatus.METHOD_NOT_ALLOWED: NO_LOKI,
    HTTPStatus.REQUEST_URI_TOO_LONG: "The query is too long for a proxy in front of it: choose fewer values.",
}
_TOO_MANY = re.compile(r"max_entries_limit_per_query \((\d+) > (\d+)\)")
_TOO_MUCH = ("time range exceeds the limit", "too many bytes", "too many chunks", "query too large")


class LokiLimitExceeded(StatementRefused):
    """Raised when it gives fewer lines at once than were asked for; `most` says how many."""

    def __init__(self, target: str, reason: str, most: int) -> None:
        self.most = most
        super().__init__(target, reason)


class LokiRangeTooWide(StatementRefused):
    """Raised when it reads less at once than this query needs."""


class LokiBusy(NotReady):
    """Raised when it wants a pause: `rest` seconds."""

    rest = 0.0


def error_from(target: str, status: int, headers: Mapping[str, str], body: bytes) -> StoreError:
    said = _said(headers, body)
    reason = f"it answers {status} {_phrase(status)}".rstrip() + (f": {said}" if said else "")
    if status == HTTPStatus.BAD_REQUEST:
        return _bad(target, reason, said)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AccessDenied(target, reason, advice=_TENANT if "org id" in said else _LOGIN)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        busy = LokiBusy(target, reason, advice=_BUSY)
        busy.rest = _rest(headers.get("retry-after", ""))
        return busy
    if status in (HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.REQUEST_TIMEOUT):
        return TimedOut(target, reason, advice=_SLOW)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _failed(target, reason, said)
    return Garbled(target, reason, advice=_ADVICE.get(HTTPStatus(status), NO_LOKI) if _phrase(status) else NO_LOKI)


def _bad(target: str, reason: str, said: str) -> StoreError:
    if found := _TOO_MANY.search(said):
        return LokiLimitExceeded(target, reason, int(found[2]))
    if any(words in said for words in _TOO_MUCH):
        return LokiRangeTooWide(target, reason, advice=_NARROW)
    if "org id" in said:
        return AccessDenied(target, reason, advice=_TENANT)
    return StatementRefused(target, reason, advice="Is match in this source of [[logs]] right?")


def _failed(target: str, reason: str, said: str) -> StoreError:
    """Returns the error of a 5xx. An older Loki answers 500 also when it was too slow, or was asked for too much."""
    if "deadline exceeded" in said or "context canceled" in said:
        return TimedOut(target, reason, advice=_SLOW)
    return NotReady(target, reason, advice=_OWN_LOG)


def _said(headers: Mapping[str, str], body: bytes) -> str:
    """Returns its message in one line, without secrets. A page for people says nothing here."""
    text = body[: 16 * _SAID].decode("utf-8", "replace")
    if "html" in headers.get("content-type", "") or text.lstrip().startswith("<"):
        return ""
    line = " ".join("".join(char if char.isprintable() else " " for char in _inner(text)).split())
    return redact.text(line)[:_SAID]


def _inner(text: str) -> str:
    """Returns the message; some answers are JSON."""
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(told, dict):
        return text
    return str(told.get("message") or told.get("error") or "").encode("utf-8", "replace").decode()


def _rest(header: str) -> float:
    """Returns the seconds of Retry-After: a number of seconds, or a date."""
    if header.isascii() and header.isdigit():
        return min(float(header), _LONGEST_REST)
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return 0.0
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, min((until - datetime.now(UTC)).total_seconds(), _LONGEST_REST))


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
