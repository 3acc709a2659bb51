"""What every call passes first: no token in its address, not too large, a valid token, not too many at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt

from dashboard import tokens
from dashboard.access import role_of
from dashboard.api import faults
from dashboard.api.caller import Caller
from dashboard.api.faults import Refusal

View = Callable[..., HttpResponseBase]

BODY_LIMIT = 1024 * 1024  # bytes; a thousand jobs with everything that was seen of them are a third of it
AT_ONCE = 4  # calls of one token in one process: half of what it takes at once, so that people are always served
_TOKEN_PARAMETERS = frozenset({"token", "access_token", "api_key", "apikey", "authorization", "bearer"})
_HOW = "Send it as the header Authorization: Bearer …"


class Places:
    """How many calls each token has in flight in this process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[int] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, token: int) -> Iterator[None]:
        with self._lock:
            if self._taken[token] >= self._most:
                raise Refusal(
                    429, "too_many", f"This token has {self._most} calls at work.", "Wait for one to end.", retry=1
                )
            self._taken[token] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[token] -= 1
                if not self._taken[token]:
                    del self._taken[token]


places = Places(AT_ONCE)


def door(view: View, *, opens_to_people: bool = False) -> View:
    """Cookies open nothing here, so there is nothing that another site could make a browser do.

    `opens_to_people`: reading this one is allowed to whoever is logged in as well.
    """

    @wraps(view)
    def passed(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            _refuse_token_in_address(request)
            if opens_to_people and request.method == "GET" and role_of(request.user):
                return view(request, *args, **kwargs)
            _refuse_large(request)
            caller = _caller(request)
            with places.one(caller.token.pk):
                caller.enter(request)
                return _told(view(request, *args, **kwargs))
        except Exception as fault:  # noqa: BLE001 -- the edge: each failure leaves in the API's shape
            return faults.answer(request, fault)

    return login_not_required(csrf_exempt(passed))


def _refuse_token_in_address(request: HttpRequest) -> None:
    """Addresses end up in logs, histories and error reports; so a token that was in one is burnt."""
    named = any(name.lower() in _TOKEN_PARAMETERS for name in request.GET)
    if named or tokens.LIKE_A_TOKEN.search(request.get_full_path()):
        advice = f"{_HOW} Revoke this token under /tokens: addresses are kept in logs."
        raise Refusal(400, "token_in_address", "A token must not stand in an address.", advice)


def _refuse_large(request: HttpRequest) -> None:
    if len(request.body) > BODY_LIMIT:
        raise Refusal(413, "too_large", f"The request is larger than {BODY_LIMIT:,} bytes.")


def _caller(request: HttpRequest) -> Caller:
    scheme, _, written = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not written.strip():
        raise Refusal(401, "token_missing", "This needs a token.", f"{_HOW} An admin makes one under /tokens.")
    try:
        token = tokens.find(written.strip())
    except tokens.TokenUnknown:
        raise Refusal(401, "token_unknown", "There is no such token.", "An admin makes one under /tokens.") from None
    except tokens.TokenSpent as spent:
        raise Refusal(401, "token_spent", str(spent), "An admin makes a new one under /tokens.") from None
    tokens.note_use(token)
    return Caller(token, request.META.get("REMOTE_ADDR") or "")


def _told(response: HttpResponseBase) -> HttpResponseBase:
    if not isinstance(response, HttpResponseNotAllowed):
        return response
    told = faults.response(405, "method_not_allowed", f"Only {response['Allow']} here.", "/api describes every call.")
    told["Allow"] = response["Allow"]
    return told
