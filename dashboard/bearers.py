"""Tokens of programs that ask often, for what runs beside Django: looked up once, and remembered for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db import DatabaseError, connections
from django.utils import timezone

from dashboard import tokens
from dashboard.scopes import Scope

KEPT_SECONDS = 30.0  # a token that was revoked is refused within this time
FRESH_SECONDS = 20.0  # one that is asked with later is looked up again, and nobody waits for that
REFUSED_SECONDS = 10.0  # what is no token now will be none in a moment either
GRACE_SECONDS = 600.0  # while the database is away, a token that was good counts: nobody can ask for another
REMEMBERED = 1_000  # tokens, nearly all of them wrong ones when there are so many
LOOKUPS = 2  # at once; one database connection each, closed after use
WAITING = 20  # lookups beyond these are refused, but for tokens that were valid

_BEARER = "bearer "


class Busy(Exception):
    """More unknown tokens at once than are looked up."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """A valid token, as its holder is called, and what it may."""

    name: str
    allowed: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class _Known:
    """`bearer` None: it opens nothing, and `trouble` says why."""

    bearer: Bearer | None
    trouble: str
    until: float
    asked_at: float


def of_headers(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token in `Authorization: Bearer …`; "" when there is none."""
    written = next((value.decode("latin-1") for name, value in headers if name.lower() == b"authorization"), "")
    return written[len(_BEARER) :].strip() if written.lower().startswith(_BEARER) else ""


class Bearers:
    """Used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._places = asyncio.Semaphore(LOOKUPS)
        self._lookups: dict[str, asyncio.Task[_Known]] = {}

    async def allowed(self, written: str) -> frozenset[Scope]:
        """What this token may. Raises TokenUnknown, TokenSpent, Busy, and DatabaseError."""
        return (await self.bearer(written)).allowed

    async def bearer(self, written: str) -> Bearer:
        """Whose token it is. Raises as `allowed` does."""
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
            raise Busy
        try:
            return await asyncio.shield(self._lookup(key, written))
        except DatabaseError:
            if before is None or before.bearer is None or self._clock() - before.asked_at > GRACE_SECONDS:
                raise
            return before

    def _lookup(self, key: str, written: str) -> asyncio.Task[_Known]:
        """One for all who ask with the same token meanwhile."""
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
            done.exception()  # whoever waits for it has it; when nobody does, the next one asks anew

    def _keep(self, key: str, known: _Known) -> None:
        """The newest. What opens nothing goes first, or anybody could push out valid tokens with made-up ones."""
        self._known.pop(key, None)
        if len(self._known) >= REMEMBERED:
            since = self._clock() - GRACE_SECONDS
            self._known = {name: one for name, one in self._known.items() if one.bearer and one.asked_at >= since}
        while len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = known


def _looked_up(written: str, clock: Callable[[], float]) -> _Known:
    """Blocks on the database."""
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
    return _Known(Bearer(token.name, token.allowed), "", now + min(KEPT_SECONDS, left), now)
