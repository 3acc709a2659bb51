"""Guards every API view: no token in the URL, not too large, a valid token.

The number of calls that one token has at once is limited before: dashboard/server/page_concurrency.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt

from dashboard.accounts import tokens
from dashboard.accounts.roles import role_of
from dashboard.api import error_responses
from dashboard.api.auth import ApiCaller
from dashboard.api.error_responses import ApiError
from dashboard.server import page_concurrency

View = Callable[..., HttpResponseBase]

BODY_LIMIT = 1024 * 1024  # bytes; a thousand jobs with everything that was seen of them are a third of it
_TOKEN_PARAMETERS = frozenset({"token", "access_token", "api_key", "apikey", "authorization", "bearer"})
_HOW = "Send it in the header Authorization: Bearer …"


def api_view(view: View, *, opens_to_people: bool = False) -> View:
    """Makes a view accept tokens only. It ignores cookies, so that another site can make no browser call it (CSRF).

    `opens_to_people`: logged-in users may read this one as well.
    """

    @wraps(view)
    def passed(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            _refuse_token_in_address(request)
            if opens_to_people and request.method == "GET" and role_of(request.user):
                return view(request, *args, **kwargs)
            _refuse_large(request)
            caller = _caller(request)
            caller.enter(request)
            return _told(view(request, *args, **kwargs))
        except Exception as fault:  # noqa: BLE001 -- the edge: each failure leaves in the API's shape
            return error_responses.answer(request, fault)

    return login_not_required(csrf_exempt(passed))


def _refuse_token_in_address(request: HttpRequest) -> None:
    """Refuses a token in a URL, which ends up in logs, histories and error reports: that token has to be revoked."""
    named = any(name.lower() in _TOKEN_PARAMETERS for name in request.GET)
    if named or tokens.LIKE_A_TOKEN.search(request.get_full_path()):
        advice = f"{_HOW} Revoke this token under /tokens: URLs end up in logs."
        raise ApiError(400, "token_in_address", "A token must not be part of a URL.", advice)


def _refuse_large(request: HttpRequest) -> None:
    if len(request.body) > BODY_LIMIT:
        raise ApiError(413, "too_large", f"The request is larger than {BODY_LIMIT:,} bytes.")


def _caller(request: HttpRequest) -> ApiCaller:
    scheme, _, written = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not written.strip():
        raise ApiError(401, "token_missing", "This requires a token.", f"{_HOW} An admin can create one under /tokens.")
    try:
        token = tokens.find(written.strip())
    except tokens.TokenUnknown:
        raise ApiError(401, "token_unknown", "Unknown token.", "An admin can create one under /tokens.") from None
    except tokens.TokenSpent as spent:
        raise ApiError(401, "token_spent", str(spent), "An admin can create a new one under /tokens.") from None
    tokens.note_use(token)
    page_concurrency.note_valid(request)
    return ApiCaller(token, request.META.get("REMOTE_ADDR") or "")


def _told(response: HttpResponseBase) -> HttpResponseBase:
    if not isinstance(response, HttpResponseNotAllowed):
        return response
    told = error_responses.response(
        405, "method_not_allowed", f"Allowed here: {response['Allow']}.", "See /api for every call."
    )
    told["Allow"] = response["Allow"]
    return told
