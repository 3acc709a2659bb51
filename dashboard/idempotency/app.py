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

from dashboard import bearers, intake, tokens
from dashboard.api import faults
from dashboard.api.faults import RETRY_SECONDS, Refusal
from dashboard.bearers import Bearers, Busy
from dashboard.fair_semaphore import FairSemaphore, NoFreeSlot
from dashboard.gate.rate import Rate
from dashboard.idempotency import answers, bodies
from dashboard.idempotency.bodies import BODIES, Body, IdempotencyShow
from dashboard.live.stream import Headers, Receive, Scope, Send
from dashboard.scopes import Scope as Right
from recovery import shared_clock
from recovery.domain.idempotency import Answer, Order
from recovery.errors import ConfigError, NotApart, StoreError

log = logging.getLogger(__name__)

PATH = "/api/v1/idempotency"
STEPS = {f"{PATH}/{step}": kind for step, kind in BODIES.items()}
MOST = 1_000  # calls of one token within a second, in one process
PLACES = 16  # calls of the state store at once; further ones wait here, where waiting costs nothing
PLACES_EACH = 8  # of one token: half, so that others are always served
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

    def __init__(self, do: Callable[[Order], Awaitable[Answer]], apart: Callable[[], Awaitable[None]]) -> None:
        self._do = do
        self._apart = apart
        self._bearers = Bearers()
        self._rate = Rate(MOST)
        self._places = FairSemaphore(PLACES, PLACES_EACH, seconds=WAIT_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, body, more = await self._answered(scope, receive)
        except intake.Left:
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
        reply = answers.reply(body.key, answer)
        return reply.status, reply.body, reply.headers

    async def _step(self, order: Order) -> Answer:
        """Raises Refusal, NotApart, ConfigError, StoreError."""
        await self._apart()
        try:
            async with self._places.one(f"token {order.by}"):
                return await self._do(order)
        except NoFreeSlot as none:
            if none.is_own:
                why = f"This token has {PLACES_EACH} running calls and more waiting calls. Nothing was changed."
                raise Refusal(429, "too_many", why, retry=1) from None
            why = "Too many calls are waiting for the state store. Nothing was changed."
            raise Refusal(503, "busy", why, retry=RETRY_SECONDS) from None

    async def _caller(self, scope: Scope) -> str:
        """Returns the name of the caller's token. Raises Refusal."""
        written = bearers.of_headers(scope["headers"])
        if not written:
            raise Refusal(401, "token_missing", "This requires a token.", f"{_HOW} {_MAKE}")
        try:
            bearer = await self._bearers.bearer(written)
        except tokens.TokenUnknown:
            raise Refusal(401, "token_unknown", "Unknown token.", _MAKE) from None
        except tokens.TokenSpent as spent:
            raise Refusal(401, "token_spent", str(spent), _MAKE) from None
        except Busy:
            raise Refusal(503, "busy", "Too many token lookups at once.", retry=RETRY_SECONDS) from None
        except DatabaseError as error:
            log.warning("a token for %s cannot be checked: %s", PATH, error)
            why = "The database does not answer, so the token cannot be checked. Nothing was changed."
            raise Refusal(503, "database_down", why, retry=RETRY_SECONDS) from None
        if Right.IDEMPOTENCY not in bearer.allowed:
            raise Refusal(403, "scope_missing", "This requires a token with the scope idempotency.", _MAKE)
        if not self._rate.allows(bearer.name, shared_clock.now()):
            why = f"This token has called more than {MOST:,} times within a second. Nothing was changed."
            raise Refusal(429, "too_many", why, retry=1)
        _refuse_method(scope)
        return bearer.name


def _query(scope: Scope) -> str:
    """Returns the query string. Raises Refusal for a token in the URL: URLs end up in logs, so it must be revoked."""
    query: str = scope.get("query_string", b"").decode("latin-1")
    if tokens.LIKE_A_TOKEN.search(query) or tokens.LIKE_A_TOKEN.search(scope["path"]):
        advice = f"{_HOW} Revoke this token under /tokens: URLs end up in logs."
        raise Refusal(400, "token_in_address", "A token must not be part of a URL.", advice)
    if len(query) > QUERY_LIMIT:
        raise Refusal(414, "too_long", f"The URL has more than {QUERY_LIMIT:,} characters.")
    return query


def _refuse_method(scope: Scope) -> None:
    """Raises Refusal."""
    path = scope["path"]
    if path != PATH and path not in STEPS:
        raise Refusal(404, "no_such_address", "There is no such URL.", "See /api for every call.")
    allowed = "GET" if path == PATH else "POST"
    if scope["method"] != allowed:
        raise _WrongMethod(allowed)


class _WrongMethod(Refusal):
    def __init__(self, allowed: str) -> None:
        super().__init__(405, "method_not_allowed", f"Allowed here: {allowed}.", "See /api for every call.")
        self.allowed = allowed


def _shown(query: str) -> Body:
    """Reads the key of a GET from the query. Raises Refusal; a key that is no UTF-8 was never claimed."""
    found = parse_qs(query, keep_blank_values=True, errors="surrogateescape", separator="&")
    return bodies.checked(IdempotencyShow, {name: values[0] for name, values in found.items()})


async def _sent(scope: Scope, receive: Receive) -> Body:
    """Raises Refusal, intake.Refused, intake.Left."""
    with ExitStack() as waiting:
        message = await (await intake.whole(receive, waiting))()
        return bodies.read(STEPS[scope["path"]], message["body"])


def _failed(fault: Exception) -> tuple[int, bytes, Headers]:
    """Returns a failure in the shape that all errors of the API have."""
    refusal = _refusal(fault)
    told = faults.response(refusal.status, refusal.code, refusal.message, refusal.advice, retry=refusal.retry)
    headers = [(name.lower().encode(), value.encode()) for name, value in told.items() if name in _KEPT]
    if isinstance(fault, _WrongMethod):
        headers.append((b"allow", fault.allowed.encode()))
    return refusal.status, told.content, headers


def _refusal(fault: Exception) -> Refusal:
    if isinstance(fault, Refusal):
        return fault
    if isinstance(fault, intake.Refused):
        return Refusal(fault.status, "too_large" if fault.status == 413 else "too_slow", str(fault))
    if isinstance(fault, NotApart):
        return Refusal(503, "not_apart", str(fault), "Use a separate Redis for UNSTALL_STATE_URL.", retry=RETRY_SECONDS)
    if isinstance(fault, StoreError):
        return _of_store(fault)
    if isinstance(fault, ConfigError):
        return Refusal(503, "config_error", str(fault), "manage.py doctor shows the cause.", retry=RETRY_SECONDS)
    log.error("an idempotency key request failed", exc_info=fault)
    return Refusal(500, "broken", "This is a bug in Unstall. The log of the web process has the details.")


def _of_store(fault: StoreError) -> Refusal:
    log.warning("the idempotency keys cannot be reached: %s", fault)
    why = f"{str(fault).rstrip('.')}. It is not known whether it was done: call again and check the owner."
    return Refusal(503, "store_down", why, fault.advice, retry=RETRY_SECONDS)
