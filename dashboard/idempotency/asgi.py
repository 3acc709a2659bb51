"""Serves /api/v1/idempotency as a small ASGI application beside Django, because clients wait for the answer.

In order: 1. refuse a token in the URL, 2. authenticate and rate-limit the caller, 3. find the step, 4. read its body,
5. check that the state store holds no queues, 6. call the ledger. Every failure is an error response, so that no client
mistakes silence for a claim.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from urllib.parse import parse_qs

from django.db import DatabaseError

from dashboard.accounts import token_cache, tokens
from dashboard.accounts.rate_limit import TokenRateLimit
from dashboard.accounts.token_cache import TokenCache, TokenLookupsBusy
from dashboard.accounts.token_scopes import TokenScope as Right
from dashboard.api import error_responses
from dashboard.api.error_responses import RETRY_SECONDS, ApiError
from dashboard.idempotency import responses, schemas
from dashboard.idempotency.schemas import BODIES, IdempotencyBody, IdempotencyShow
from dashboard.live.asgi import Headers, Receive, Scope, Send
from dashboard.server import request_body
from dashboard.server.fair_semaphore import FairSemaphore, NoFreeSlot
from recovery import shared_clock
from recovery.domain.idempotency import ClaimReply, ClaimRequest
from recovery.errors import ConfigError, NotApart, StoreError

log = logging.getLogger(__name__)

PATH = "/api/v1/idempotency"
STEPS = {f"{PATH}/{step}": kind for step, kind in BODIES.items()}
MOST = 1_000  # calls of one token within a second, in one process
STORE_CALLS_AT_ONCE = 16  # calls of the state store at once; further ones wait here, where waiting costs nothing
STORE_CALLS_EACH = 8  # of one token: half, so that others are always served
WAIT_SECONDS = 4.0  # for a free slot; then the call is refused, before the client gives up by itself
QUERY_LIMIT = 4_096  # characters: a key of 512 bytes, each of them escaped, and then some
_HOW = "Send it in the header Authorization: Bearer …"
_MAKE = "An admin can create one with the scope idempotency under /tokens."
_KEPT = ("Retry-After", "WWW-Authenticate")
_PLAIN: Headers = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
]


class IdempotencyApp:
    """ASGI application. `do` performs one step; `apart` raises if the state store holds queues."""

    def __init__(
        self, do: Callable[[ClaimRequest], Awaitable[ClaimReply]], apart: Callable[[], Awaitable[None]]
    ) -> None:
        self._do = do
        self._apart = apart
        self._bearers = TokenCache()
        self._rate = TokenRateLimit(MOST)
        self._places = FairSemaphore(STORE_CALLS_AT_ONCE, STORE_CALLS_EACH, seconds=WAIT_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, body, more = await self._answered(scope, receive)
        except request_body.ClientDisconnected:
            return
        except Exception as fault:  # noqa: BLE001 -- the edge: each failure leaves in the API's shape
            status, body, more = _failed(fault)
        headers = [*_PLAIN, (b"content-length", str(len(body)).encode()), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes, Headers]:
        query = _query(scope)
        by = await self._caller(scope)
        body = _shown(query) if scope["path"] == PATH else await _sent(scope, receive)
        answer = await self._step(body.order(by))
        reply = responses.reply(body.key, answer)
        return reply.status, reply.body, reply.headers

    async def _step(self, order: ClaimRequest) -> ClaimReply:
        """Raises Refusal, NotApart, ConfigError, StoreError."""
        await self._apart()
        try:
            async with self._places.one(f"token {order.by}"):
                return await self._do(order)
        except NoFreeSlot as none:
            if none.is_own:
                why = f"This token has {STORE_CALLS_EACH} running calls and more waiting calls. Nothing was changed."
                raise ApiError(429, "too_many", why, retry=1) from None
            why = "Too many calls are waiting for the state store. Nothing was changed."
            raise ApiError(503, "busy", why, retry=RETRY_SECONDS) from None

    async def _caller(self, scope: Scope) -> str:
        """Returns the name of the caller's token. Raises Refusal."""
        written = token_cache.token_from_headers(scope["headers"])
        if not written:
            raise ApiError(401, "token_missing", "This requires a token.", f"{_HOW} {_MAKE}")
        try:
            bearer = await self._bearers.bearer(written)
        except tokens.TokenUnknown:
            raise ApiError(401, "token_unknown", "Unknown token.", _MAKE) from None
        except tokens.TokenSpent as spent:
            raise ApiError(401, "token_spent", str(spent), _MAKE) from None
        except TokenLookupsBusy:
            raise ApiError(503, "busy", "Too many token lookups at once.", retry=RETRY_SECONDS) from None
        except DatabaseError as error:
            log.warning("a token for %s cannot be checked: %s", PATH, error)
            why = "The database does not answer, so the token cannot be checked. Nothing was changed."
            raise ApiError(503, "database_down", why, retry=RETRY_SECONDS) from None
        if Right.IDEMPOTENCY not in bearer.allowed:
            raise ApiError(403, "scope_missing", "This requires a token with the scope idempotency.", _MAKE)
        if not self._rate.allows(bearer.name, shared_clock.now()):
            why = f"This token has called more than {MOST:,} times within a second. Nothing was changed."
            raise ApiError(429, "too_many", why, retry=1)
        _refuse_method(scope)
        return bearer.name


def _query(scope: Scope) -> str:
    """Returns the query string. Raises Refusal for a token in the URL: URLs end up in logs, so it must be revoked."""
    query: str = scope.get("query_string", b"").decode("latin-1")
    if tokens.LIKE_A_TOKEN.search(query) or tokens.LIKE_A_TOKEN.search(scope["path"]):
        advice = f"{_HOW} Revoke this token under /tokens: URLs end up in logs."
        raise ApiError(400, "token_in_address", "A token must not be part of a URL.", advice)
    if len(query) > QUERY_LIMIT:
        raise ApiError(414, "too_long", f"The URL has more than {QUERY_LIMIT:,} characters.")
    return query


def _refuse_method(scope: Scope) -> None:
    """Raises Refusal."""
    path = scope["path"]
    if path != PATH and path not in STEPS:
        raise ApiError(404, "no_such_address", "There is no such URL.", "See /api for every call.")
    allowed = "GET" if path == PATH else "POST"
    if scope["method"] != allowed:
        raise _WrongMethod(allowed)


class _WrongMethod(ApiError):
    def __init__(self, allowed: str) -> None:
        super().__init__(405, "method_not_allowed", f"Allowed here: {allowed}.", "See /api for every call.")
        self.allowed = allowed


def _shown(query: str) -> IdempotencyBody:
    """Reads the key of a GET from the query. Raises Refusal; a key that is no UTF-8 was never claimed."""
    found = parse_qs(query, keep_blank_values=True, errors="surrogateescape", separator="&")
    return schemas.validate(IdempotencyShow, {name: values[0] for name, values in found.items()})


async def _sent(scope: Scope, receive: Receive) -> IdempotencyBody:
    """Raises Refusal, intake.Refused, intake.Left."""
    with ExitStack() as waiting:
        message = await (await request_body.read_body(receive, waiting))()
        return schemas.parse(STEPS[scope["path"]], message["body"])


def _failed(fault: Exception) -> tuple[int, bytes, Headers]:
    """Returns a failure in the shape that all errors of the API have."""
    refusal = _refusal(fault)
    told = error_responses.response(refusal.status, refusal.code, refusal.message, refusal.advice, retry=refusal.retry)
    headers = [(name.lower().encode(), value.encode()) for name, value in told.items() if name in _KEPT]
    if isinstance(fault, _WrongMethod):
        headers.append((b"allow", fault.allowed.encode()))
    return refusal.status, told.content, headers


def _refusal(fault: Exception) -> ApiError:
    if isinstance(fault, ApiError):
        return fault
    if isinstance(fault, request_body.RequestRefused):
        return ApiError(fault.status, "too_large" if fault.status == 413 else "too_slow", str(fault))
    if isinstance(fault, NotApart):
        return ApiError(
            503, "not_apart", str(fault), "Use a separate Redis for UNSTALL_STATE_URL.", retry=RETRY_SECONDS
        )
    if isinstance(fault, StoreError):
        return _of_store(fault)
    if isinstance(fault, ConfigError):
        return ApiError(503, "config_error", str(fault), "manage.py doctor shows the cause.", retry=RETRY_SECONDS)
    log.error("an idempotency key request failed", exc_info=fault)
    return ApiError(500, "broken", "This is a bug in Unstall. The log of the web process has the details.")


def _of_store(fault: StoreError) -> ApiError:
    log.warning("the idempotency keys cannot be reached: %s", fault)
    why = f"{str(fault).rstrip('.')}. It is not known whether it was done: call again and check the owner."
    return ApiError(503, "store_down", why, fault.advice, retry=RETRY_SECONDS)
