"""Turns every failure into one shape: `{"error": {"code", "message", "advice"}}`. What broke stays in our log."""

from __future__ import annotations

import logging
import re

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja.errors import HttpError, ValidationError

from recovery.domain.identifiers import printable
from recovery.errors import (
    BadOrder,
    ConfigError,
    Forbidden,
    Missing,
    NotRecorded,
    StoreError,
    UnstallError,
    Unsupported,
)

log = logging.getLogger(__name__)

ROOT = "/api/"
RETRY_SECONDS = 5  # a store that comes back is seen within this time
MESSAGE_LIMIT = 2_000  # characters: a refusal, not a page
PROBLEMS_TOLD = 10  # of a body that does not fit; the first ones explain the others
_LOOK_FIRST = "It is not known whether the change was made. Check before you repeat it."
_REFERENCE = "See /api for every call."
_DOCTOR = "manage.py doctor shows the cause."
# Status, advice, and seconds until it is worth another try; the last one is any other.
_OF_ENGINE: tuple[tuple[type[UnstallError], int, str, int], ...] = (
    (NotRecorded, 503, "Nothing was done.", RETRY_SECONDS),
    (ConfigError, 503, _DOCTOR, RETRY_SECONDS),
    (Missing, 404, "It was removed or renamed.", 0),
    (Forbidden, 403, "An admin can create a token with other scopes under /tokens.", 0),
    (BadOrder, 422, _REFERENCE, 0),
    (Unsupported, 409, "The library or version of this queue does not support this.", 0),
    (UnstallError, 409, "", 0),
)
_OF_REQUEST: tuple[tuple[type[Exception], int, str, str], ...] = (
    (RequestDataTooBig, 413, "too_large", "The request is too large."),
    (Http404, 404, "no_such_address", "There is no such URL."),
    (PermissionDenied, 403, "forbidden", "This is not allowed."),
    (SuspiciousOperation, 400, "bad_request", "The request is malformed."),
)
_OF_SITE = {
    400: "bad_request",
    403: "forbidden",
    404: "no_such_address",
    408: "too_slow",
    413: "too_large",
    414: "too_long",
    429: "too_many",
    500: "broken",
    503: "database_down",
}


class ApiError(Exception):
    """Raised to answer a request with this error and nothing else."""

    def __init__(self, status: int, code: str, message: str, advice: str = "", *, retry: int = 0) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.advice = advice
        self.retry = retry
        super().__init__(message)


def is_api_request(request: HttpRequest) -> bool:
    return request.path_info.startswith(ROOT)


def answer(request: HttpRequest, fault: Exception) -> HttpResponse:
    """Returns the response to any exception."""
    refusal = fault if isinstance(fault, ApiError) else _refusal(request, fault)
    return response(refusal.status, refusal.code, refusal.message, refusal.advice, retry=refusal.retry)


def response(status: int, code: str, message: str, advice: str = "", *, retry: int = 0) -> HttpResponse:
    told = {"code": code, "message": printable(message)[:MESSAGE_LIMIT], "advice": advice}
    made = JsonResponse({"error": told}, status=status)
    if retry:
        made["Retry-After"] = str(retry)
    if status == 401:
        made["WWW-Authenticate"] = 'Bearer realm="Unstall"'
    return made


def site_error(status: int, message: str, advice: str = "") -> HttpResponse:
    """Returns the response to a failure outside the API: an unknown URL, a forbidden host, a dead database."""
    return response(status, _OF_SITE.get(status, "refused"), message, advice)


def _refusal(request: HttpRequest, fault: Exception) -> ApiError:
    if isinstance(fault, UnstallError):
        return _of_engine(request, fault)
    if isinstance(fault, OperationalError | InterfaceError):
        log.warning("the database does not answer: %s", fault)
        return _down("database_down", "The database does not answer.", _DOCTOR, request)
    return _of_request(fault)


def _of_engine(request: HttpRequest, fault: UnstallError) -> ApiError:
    code, text = _code(fault), str(fault)
    if isinstance(fault, StoreError):
        log.warning("%s", fault)
        return _down(f"store_{code}", text, fault.advice, request)
    _, status, advice, retry = next(rule for rule in _OF_ENGINE if isinstance(fault, rule[0]))
    return ApiError(status, code, text or "Not found.", advice, retry=retry)


def _of_request(fault: Exception) -> ApiError:
    if isinstance(fault, ValidationError):
        return ApiError(422, "invalid", _problems(fault), _REFERENCE)
    if isinstance(fault, HttpError):
        return ApiError(fault.status_code, "bad_request", fault.message, _REFERENCE)
    for kind, status, code, text in _OF_REQUEST:
        if isinstance(fault, kind):
            return ApiError(status, code, text, _REFERENCE)
    log.error("an API request failed", exc_info=fault)
    return ApiError(500, "broken", "This is a bug in Unstall. The log of the web process has the details.")


def _down(code: str, text: str, advice: str, request: HttpRequest) -> ApiError:
    if request.method != "GET":
        text = f"{text.rstrip('.')}. {_LOOK_FIRST}"
    return ApiError(503, code, text, advice, retry=RETRY_SECONDS)


def _problems(fault: ValidationError) -> str:
    """Describes each problem with its place, never with what was sent, which may be a secret in the wrong field."""
    told = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in fault.errors[:PROBLEMS_TOLD]]
    left = len(fault.errors) - len(told)
    return "; ".join(told) + (f"; and {left:,} more" if left else "")


def _code(fault: UnstallError) -> str:
    """Returns the error code of an exception: `JobMissing` → `job_missing`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(fault).__name__).lower()
