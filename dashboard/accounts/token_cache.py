"""Caches verified machine tokens for the ASGI endpoints beside Django, whose clients call often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db import DatabaseError, connections
from django.utils import timezone

from dashboard.accounts import tokens
from dashboard.accounts.token_scopes import TokenScope

KEPT_SECONDS = 30.0  # a token that was revoked is refused within this time
FRESH_SECONDS = 20.0  # a token that is used later than this is looked up again in the background
REFUSED_SECONDS = 10.0  # for so long an invalid token is refused without another lookup
GRACE_SECONDS = 600.0  # for so long a token that was valid is accepted while the database does not answer
REMEMBERED = 1_000  # tokens; when there are so many, nearly all of them are invalid
LOOKUPS = 2  # at once; one database connection each, closed after use
WAITING = 20  # lookups beyond these are refused, but for tokens that were valid

_BEARER = "bearer "


class TokenLookupsBusy(Exception):
    """Raised when more unknown tokens arrive at once than are looked up."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Valid token: its name and its scopes."""

    name: str
    allowed: frozenset[TokenScope]


@dataclass(frozen=True, slots=True)
class _Known:
    """Result of one lookup. `bearer` None: the token is invalid, and `trouble` says why."""

    bearer: VerifiedToken | None
    trouble: str
    until: float
    asked_at: float


def token_from_headers(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Returns the token of `Authorization: Bearer …`; "" when there is none."""
    written = next((value.decode("latin-1") for name, value in headers if name.lower() == b"authorization"), "")
    return written[len(_BEARER) :].strip() if written.lower().startswith(_BEARER) else ""


class TokenCache:
    """Cache of token lookups, used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._places = asyncio.Semaphore(LOOKUPS)
        self._lookups: dict[str, asyncio.Task[_Known]] = {}

    async def allowed(self, written: str) -> frozenset[TokenScope]:
        """Returns the scopes of this token. Raises TokenUnknown, TokenSpent, Busy, and DatabaseError."""
        return (await self.bearer(written)).allowed

    async def bearer(self, written: str) -> VerifiedToken:
        """Returns the name and the scopes of this token. Raises as `allowed` does."""
        key, now = tokens.digest(written), self._clock()
        known = self._known.get(key)
        if known is None or known.until < now:
            known = await self._asked(key, written, known)
        elif known.bearer and now - known.asked_at > FRESH_SECONDS and len(self._lookups) < WAITING:
            self._lookup(key, written)
        if known.bearer is not None:
            return known.bearer
        raise tokens.TokenSpent(known.trouble) if known.trouble else tokens.TokenUnknown

    async def _asked(self, key: str, written: str, before: _Known | None) -> _Known:
        is_new = before is None or before.bearer is None
        if is_new and key not in self._lookups and len(self._lookups) >= WAITING:
            raise TokenLookupsBusy
        try:
            return await asyncio.shield(self._lookup(key, written))
        except DatabaseError:
            if before is None or before.bearer is None or self._clock() - before.asked_at > GRACE_SECONDS:
                raise
            return before

    def _lookup(self, key: str, written: str) -> asyncio.Task[_Known]:
        """Starts a lookup, or returns the one that already runs for the same token."""
        if key not in self._lookups:
            self._lookups[key] = task = asyncio.create_task(self._look_up(key, written))
            task.add_done_callback(lambda done: self._settle(key, done))
        return self._lookups[key]

    async def _look_up(self, key: str, written: str) -> _Known:
        async with self._places:
            known = await asyncio.to_thread(_looked_up, written, self._clock)
        self._keep(key, known)
        return known

    def _settle(self, key: str, done: asyncio.Task[_Known]) -> None:
        del self._lookups[key]
        if not done.cancelled():
            done.exception()  # retrieved here, so that asyncio does not report it; callers that wait get it too

    def _keep(self, key: str, known: _Known) -> None:
        """Stores a lookup. Invalid tokens are evicted first, or made-up ones could push out valid ones."""
        self._known.pop(key, None)
        if len(self._known) >= REMEMBERED:
            since = self._clock() - GRACE_SECONDS
            self._known = {name: one for name, one in self._known.items() if one.bearer and one.asked_at >= since}
        while len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = known


def _looked_up(written: str, clock: Callable[[], float]) -> _Known:
    """Looks a token up and notes its use. Blocks on the database."""
    now = clock()
    try:
        token = tokens.find(written)
        tokens.note_use(token)
    except tokens.TokenSpent as spent:
        return _Known(None, str(spent), now + REFUSED_SECONDS, now)
    except tokens.TokenUnknown:
        return _Known(None, "", now + REFUSED_SECONDS, now)
    finally:
        connections.close_all()
    left = (token.expires_at - timezone.now()).total_seconds()
    return _Known(VerifiedToken(token.name, token.allowed), "", now + min(KEPT_SECONDS, left), now)
