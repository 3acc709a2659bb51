"""Serves /metrics as a small ASGI application beside Django, so that it answers even while pages are slow.

In order: 1. check the method, 2. authenticate the scraper, 3. choose the format, 4. return the text, rendered at most
once a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Iterable

from django.db import DatabaseError

from dashboard.accounts import token_cache, tokens
from dashboard.accounts.token_cache import TokenCache, TokenLookupsBusy
from dashboard.accounts.token_scopes import TokenScope as Right
from dashboard.live.asgi import Headers, Receive, Scope, Send, refuse
from dashboard.live.cached_state import CachedState
from dashboard.metrics.exposition import MetricsFormat
from dashboard.metrics.render import pieces
from dashboard.metrics.scrape_input import ScrapeInput
from dashboard.server.loopback import is_local
from recovery import config, shared_clock

log = logging.getLogger(__name__)

PATH = "/metrics"
KEPT_SECONDS = 1.0  # below any sensible scrape interval; more frequent or concurrent scrapes get the same text
_GZIP = 16 + zlib.MAX_WBITS  # of zlib: with the header that gzip has
SQUEEZE = 1  # of gzip: three times as fast as the default, and the text becomes a fifteenth anyway
COME_BACK_SECONDS = b"5"
_HOW = (
    "Send a token with the scope metrics in the header Authorization: Bearer …; an admin can create one under /tokens."
)
_CHALLENGE: Headers = [(b"www-authenticate", b'Bearer realm="Unstall"')]
_LATER: Headers = [(b"retry-after", COME_BACK_SECONDS)]


class ScrapeRefused(Exception):
    def __init__(self, status: int, why: str, headers: Headers | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers


class MetricsApp:
    """ASGI application. `picture` returns the cached state, `streams` the number of open event streams."""

    def __init__(self, picture: Callable[[], CachedState | None], streams: Callable[[], int]) -> None:
        self._picture = picture
        self._streams = streams
        self._bearers = TokenCache()
        self._writing = asyncio.Lock()
        self._kept: dict[tuple[MetricsFormat, bool], tuple[float, bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._admit(scope)
            await self._answer(scope, send)
        except ScrapeRefused as refused:
            await refuse(send, refused.status, str(refused), refused.headers)

    async def _admit(self, scope: Scope) -> None:
        """Raises Refused."""
        if scope["method"] not in ("GET", "HEAD"):
            raise ScrapeRefused(405, "Metrics accept GET only.", [(b"allow", b"GET, HEAD")])
        if tokens.LIKE_A_TOKEN.search(scope.get("query_string", b"").decode("latin-1")):
            raise ScrapeRefused(400, f"A token must not be part of a URL. {_HOW} Revoke this one: URLs end up in logs.")
        written = token_cache.token_from_headers(scope["headers"])
        if written:
            await self._admit_token(written)
        elif not (config.current().metrics.open_on_loopback and is_local(scope)):
            raise ScrapeRefused(401, f"This requires a token. {_HOW}", _CHALLENGE)

    async def _admit_token(self, written: str) -> None:
        try:
            allowed = await self._bearers.allowed(written)
        except tokens.TokenUnknown:
            raise ScrapeRefused(401, "Unknown token.", _CHALLENGE) from None
        except tokens.TokenSpent as spent:
            raise ScrapeRefused(401, str(spent), _CHALLENGE) from None
        except TokenLookupsBusy:
            raise ScrapeRefused(503, "Too many token lookups at once.", _LATER) from None
        except DatabaseError as error:
            log.warning("a token for /metrics cannot be checked: %s", error)
            raise ScrapeRefused(503, "The database does not answer, so the token cannot be checked.", _LATER) from None
        if Right.METRICS not in allowed:
            raise ScrapeRefused(403, "This requires a token with the scope metrics.")

    async def _answer(self, scope: Scope, send: Send) -> None:
        asked = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        dialect, kind = MetricsFormat.of(asked.get(b"accept", ""))
        squeezed = _takes_gzip(asked.get(b"accept-encoding", ""))
        body = await self._body(dialect, squeezed)
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"vary", b"Accept, Accept-Encoding"),
            *([(b"content-encoding", b"gzip")] if squeezed else []),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _body(self, dialect: MetricsFormat, squeezed: bool) -> bytes:
        """Returns the text, kept for a second; renders it in a thread, one at a time. Raises Refused."""
        async with self._writing:
            made_at, body = self._kept.get((dialect, squeezed), (0.0, b""))
            if body and time.monotonic() - made_at < KEPT_SECONDS:
                return body
            image = self._picture()
            if image is None:
                raise ScrapeRefused(503, "This process is starting or stopping.", _LATER)
            body = await asyncio.to_thread(_made, image, dialect, squeezed, self._streams())
            self._kept[dialect, squeezed] = time.monotonic(), body
            return body


def _takes_gzip(accepted: str) -> bool:
    named = (part.replace(" ", "").lower().partition(";q=") for part in accepted.split(","))
    return any(name == "gzip" and (not weight or weight.strip("0.")) for name, _, weight in named)


def _made(image: CachedState, dialect: MetricsFormat, squeezed: bool, streams: int) -> bytes:
    told = pieces(ScrapeInput.of(image, config.current(), shared_clock.now()), dialect, streams)
    return _squeezed(told) if squeezed else "".join(told).encode()


def _squeezed(told: Iterable[str]) -> bytes:
    gzip = zlib.compressobj(SQUEEZE, zlib.DEFLATED, _GZIP)
    return b"".join([*(gzip.compress(piece.encode()) for piece in told), gzip.flush()])
