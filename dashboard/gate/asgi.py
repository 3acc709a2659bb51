"""Serves /cpu-gate as a small ASGI application beside Django, from memory.

In order: 1. check method and URL, 2. authenticate the caller, 3. find the server, 4. read its gate; 5. if the gate is
open and other web processes may admit a caller too, let the state store choose one of them. The decision is recorded
afterwards; no request waits for that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from django.db import DatabaseError

from dashboard.accounts import token_cache, tokens
from dashboard.accounts.rate_limit import TokenRateLimit
from dashboard.accounts.token_cache import TokenCache, TokenLookupsBusy
from dashboard.accounts.token_scopes import TokenScope as Right
from dashboard.gate.admission_lock import AdmissionArbiter, AdmissionRuling
from dashboard.gate.admissions import Admissions, GateTarget, UnknownServer
from dashboard.gate.decision_log import GateDecisionLog
from dashboard.gate.responses import GateAnswer, GateReason
from dashboard.live.asgi import Headers, Receive, Scope, Send
from dashboard.server.loopback import is_local
from recovery.domain.identifiers import printable

log = logging.getLogger(__name__)

PATH = "/cpu-gate"
QUERY_LIMIT = 2_048  # characters: a server's name and a caller's are far shorter
CALLER_LIMIT = 64
KNOWN_LIMIT = 100  # names in an answer
LOOPBACK = "loopback"
_HOW = "Send a token with the scope gate in the header Authorization: Bearer …; an admin can create one under /tokens."
_CHALLENGE: Headers = [(b"www-authenticate", b'Bearer realm="Unstall"')]
_LATER: Headers = [(b"retry-after", b"5")]
_SOON: Headers = [(b"retry-after", b"1")]
_GET: Headers = [(b"allow", b"GET")]


class GateRefused(Exception):
    """Request that was rejected before the gate was read: wrong method, token, rate or server."""

    def __init__(self, status: int, error: str, why: str, headers: Headers | None = None, **more: object) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers or []
        self.told = {"error": error, "message": why, **more}


@dataclass(frozen=True, slots=True)
class GateCaller:
    """Caller as the decision log names it; `token` is "" for a request on loopback without one."""

    name: str
    token: str


class CpuGate:
    """ASGI application of /cpu-gate."""

    def __init__(
        self,
        keeper: Admissions,
        notes: GateDecisionLog,
        referee: AdmissionArbiter,
        *,
        opens_on_loopback: bool,
        clock: Callable[[], int],
    ) -> None:
        self._keeper = keeper
        self._notes = notes
        self._referee = referee
        self._opens_on_loopback = opens_on_loopback
        self._clock = clock
        self._bearers = TokenCache()
        self._rate = TokenRateLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            asked = _asked(scope)
            asker = await self._asker(scope, asked.get("caller", ""))
            answer = await self._answer(asked.get("server", ""), asker)
        except GateRefused as refused:
            await _send(send, refused.status, json.dumps(refused.told).encode("ascii"), refused.headers)
            return
        retry = [] if answer.ready else [(b"retry-after", str(answer.retry).encode())]
        await _send(send, answer.status, answer.encode(), retry)

    async def _answer(self, wanted: str, asker: GateCaller) -> GateAnswer:
        """Raises Refused."""
        now = self._clock()
        try:
            place = self._keeper.place(wanted, now)
        except UnknownServer:
            known = [printable(name) for name in sorted(self._keeper.known)[:KNOWN_LIMIT]]
            why = f"No server named {printable(wanted)!r} has ever reported."
            raise GateRefused(404, "unknown_server", why, servers=known) from None
        answer = self._keeper.judge(place, now)
        if answer.ready:
            answer = await self._admitted(place, answer, now)
        self._notes.add(answer, asker.name, asker.token, now)
        return answer

    async def _admitted(self, place: GateTarget, answer: GateAnswer, now: int) -> GateAnswer:
        before = self._keeper.admit(place, now)
        settling = self._keeper.settling(place)
        if self._keeper.is_alone(now):
            self._notes.mark(place.server, now, now + settling)
            return answer
        ruling = await self._referee.ask(place.server, now, settling)
        if ruling.mine:
            return answer
        self._keeper.retract(place, before, ruling.admitted_at)
        return self._overruled(place, ruling)

    def _overruled(self, place: GateTarget, ruling: AdmissionRuling) -> GateAnswer:
        """Returns the answer when another process was first, or when the state store cannot tell whether one was."""
        if ruling.admitted_at is None:
            return self._keeper.refused(place, GateReason.NOT_CONFIRMED, ruling.trouble)
        return self._keeper.judge(place, self._clock())

    async def _asker(self, scope: Scope, caller: str) -> GateCaller:
        """Raises Refused."""
        written = token_cache.token_from_headers(scope["headers"])
        if written:
            token = await self._token(written)
        elif self._opens_on_loopback and is_local(scope):
            token = ""
        else:
            raise GateRefused(401, "token_missing", f"This requires a token. {_HOW}", _CHALLENGE)
        if not self._rate.allows(token, self._clock()):
            raise GateRefused(429, "too_many", f"More than {self._rate.most} requests within a second.", _SOON)
        return GateCaller(printable(caller)[:CALLER_LIMIT] or token or LOOPBACK, token)

    async def _token(self, written: str) -> str:
        """Returns the name of the token. Raises Refused."""
        try:
            bearer = await self._bearers.bearer(written)
        except tokens.TokenUnknown:
            raise GateRefused(401, "token_unknown", "Unknown token.", _CHALLENGE) from None
        except tokens.TokenSpent as spent:
            raise GateRefused(401, "token_spent", str(spent), _CHALLENGE) from None
        except TokenLookupsBusy:
            raise GateRefused(503, "busy", "Too many token lookups at once.", _LATER) from None
        except DatabaseError as error:
            log.warning("a token for %s cannot be checked: %s", PATH, error)
            why = "The database does not answer, so the token cannot be checked."
            raise GateRefused(503, "database_away", why, _LATER) from None
        if Right.GATE not in bearer.allowed:
            raise GateRefused(403, "scope_missing", "This requires a token with the scope gate.")
        return bearer.name


def _asked(scope: Scope) -> dict[str, str]:
    """Returns the first value of each URL parameter. Raises Refused."""
    if scope["method"] != "GET":
        raise GateRefused(405, "method_not_allowed", "The gate accepts GET only.", _GET)
    query = scope.get("query_string", b"").decode("latin-1")
    if tokens.LIKE_A_TOKEN.search(query):
        why = f"A token must not be part of a URL. {_HOW} Revoke this one: URLs end up in logs."
        raise GateRefused(400, "token_in_address", why)
    if len(query) > QUERY_LIMIT:
        raise GateRefused(414, "too_long", f"The URL has more than {QUERY_LIMIT:,} characters.")
    found = parse_qs(query, errors="surrogateescape", separator="&")
    return {name: values[0] for name, values in found.items()}


async def _send(send: Send, status: int, body: bytes, more: Headers) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
