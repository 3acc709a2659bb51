"""Limits how many requests run at once before Django sees them: all pages, heavy pages, password hashes.

Each client gets only a share: a user of the heavy pages, a browser or a token of all, an address of the hashes.
Anybody can make up cookies and tokens, so until Django has found one valid it counts as its address. In order,
because a place that is waited for must not hold another: 1. hash or heavy, 2. the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase
from django.urls import Resolver404, resolve

from dashboard.accounts import sessions, token_cache, tokens
from dashboard.accounts.login_limits import network_of
from dashboard.api import error_responses
from dashboard.live import session
from dashboard.live.asgi import Scope, cookies_of
from dashboard.live.session import Visitor
from dashboard.server.fair_semaphore import ANY, FairSemaphore, NoFreeSlot
from dashboard.server.request_body import RequestRefused

# Django takes a thread and a database connection for every request in flight. When five hundred tabs ask in the
# same second, more of them at once make all of them slower; those beyond wait here, where waiting costs nothing.
PAGES_AT_ONCE = 8
PAGES_EACH = 4  # of one browser, token or address: half, so that others are always served
PAGES_WAITING = 1_000  # of an address: requests of strangers that wait, each with its body
HEAVY_EACH = 1  # of one person: payloads in whole, searches, exports, files to analyze
HEAVY_WAITING = 6  # tabs of one person that wait for it
HEAVY_SECONDS = 20.0
LOOKUP_SECONDS = 1.0  # to learn which user asks for a heavy page
HASHES_AT_ONCE = 1  # a password hash takes a core for a third of a second
HASHES_WAITING = 4  # log-ins from one address that wait for it
HASHES_QUEUE = 24  # and from all
HASH_SECONDS = 10.0
VALID = "unstall.valid"  # in a scope: Django has found its session or its token valid
VALID_MOST = 10_000  # sessions and tokens that are remembered as valid
RETRY_SECONDS = 2

V = TypeVar("V", bound=Callable[..., HttpResponseBase])


def hashes_password(view: V) -> V:
    """Marks a view whose POST makes or checks a password hash."""
    view.hashes_password = True  # type: ignore[attr-defined]  # read by PageConcurrency
    return view


def heavy(*fields: str) -> Callable[[V], V]:
    """Marks a view that takes long or makes much. `fields`: only when its address has one of these; none: always."""

    def decorate(view: V) -> V:
        view.heavy = frozenset(fields)  # type: ignore[attr-defined]  # read by PageConcurrency
        return view

    return decorate


def note_valid(request: HttpRequest) -> None:
    """Marks the session or the token of this request as valid: its next requests count as its own."""
    getattr(request, "scope", {})[VALID] = True


class PageConcurrency:
    """Concurrency limits of one web process. `visitor_of` says whose session these cookies are."""

    def __init__(self, visitor_of: Callable[[str], Awaitable[Visitor | None]]) -> None:
        self._visitor_of = visitor_of
        self.pages = FairSemaphore(PAGES_AT_ONCE, PAGES_EACH)
        self.heavy = FairSemaphore(ANY, HEAVY_EACH, seconds=HEAVY_SECONDS)
        self.hashes = FairSemaphore(HASHES_AT_ONCE, HASHES_AT_ONCE, queue=HASHES_QUEUE, seconds=HASH_SECONDS)
        self._valid: dict[str, None] = {}  # holders, the last seen at the end

    async def take(self, scope: Scope, answered: ExitStack, sent: ExitStack) -> None:
        """Waits for the places of a request. Raises Refused. Closing `answered` and `sent` gives the places back.

        `answered` is closed when Django has made the answer, `sent` when its last byte is taken: what is heavy may be
        made while it is sent, and who takes it slowly keeps nobody waiting but themselves.
        """
        view = _view(scope["path"])
        if scope["method"] == "POST" and hasattr(view, "hashes_password"):
            answered.callback(await self._hash(scope))
        elif _is_heavy(view, scope):
            sent.callback(await self._of_person(scope))
        answered.callback(await self._page(scope))

    async def _hash(self, scope: Scope) -> Callable[[], None]:
        try:
            return await self.hashes.take(_address(scope), waiting=HASHES_WAITING)
        except NoFreeSlot as none:
            if none.is_own:
                raise RequestRefused(429, "Too many password checks from your IP address. Try again.", 2) from None
            raise RequestRefused(503, "Too many password checks at once. Try again in a moment.", 5) from None

    async def _of_person(self, scope: Scope) -> Callable[[], None]:
        """Takes a place for a heavy page, per user, whatever the browser; none for strangers, who are sent away.

        While the database does not answer, the browser's session counts instead; the page reports that it does not.
        """
        cookies = cookies_of(scope)
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                visitor = await self._visitor_of(cookies)
        except (DatabaseError, TimeoutError):
            holder = f"session {sessions.digest(session.key(cookies))}"
        else:
            if visitor is None:
                return lambda: None
            holder = f"user {visitor.id}"
        try:
            return await self.heavy.take(holder, waiting=HEAVY_WAITING)
        except NoFreeSlot:
            why = "You have requested several large pages at once. Wait until one has loaded and try again."
            raise RequestRefused(429, why, RETRY_SECONDS) from None

    async def _page(self, scope: Scope) -> Callable[[], None]:
        """Takes a place for a page. A token is refused at once beyond its share: a program can wait by itself."""
        written = (
            token_cache.token_from_headers(scope["headers"]) if scope["path"].startswith(error_responses.ROOT) else ""
        )
        key = session.key(cookies_of(scope))
        holder = f"token {tokens.digest(written)}" if written else f"session {sessions.digest(key)}" if key else ""
        if holder not in self._valid:
            give_back = await self._of_address(scope)
        elif not written:
            give_back = await self.pages.take(holder)
        else:
            try:
                give_back = await self.pages.take(holder, waiting=0)
            except NoFreeSlot:
                why = f"This token has {PAGES_EACH} running calls. Wait until one ends."
                raise RequestRefused(429, why, 1) from None

        def answered() -> None:
            give_back()
            if VALID in scope:
                self._remember(holder)

        return answered

    async def _of_address(self, scope: Scope) -> Callable[[], None]:
        try:
            return await self.pages.take(_address(scope), waiting=PAGES_WAITING)
        except NoFreeSlot:
            why = "Too many requests from your IP address are waiting. Try again in a moment."
            raise RequestRefused(503, why, RETRY_SECONDS) from None

    def _remember(self, holder: str) -> None:
        self._valid.pop(holder, None)
        self._valid[holder] = None
        if len(self._valid) > VALID_MOST:
            del self._valid[next(iter(self._valid))]


def _view(path: str) -> Any:
    """Returns the view of a path; None for static files and unknown paths."""
    if path.startswith(settings.STATIC_URL):
        return None
    try:
        return resolve(path).func
    except Resolver404:
        return None


def _is_heavy(view: Any, scope: Scope) -> bool:
    fields: Iterable[str] | None = getattr(view, "heavy", None)
    if fields is None:
        return False
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    return not fields or any(name in fields for name, _ in query)


def _address(scope: Scope) -> str:
    return f"address {network_of((scope.get('client') or ('',))[0])}"
