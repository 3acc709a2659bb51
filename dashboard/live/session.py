"""Looks up the user of a session cookie, for the streams that run beside Django.

It reads and never writes: a stream has no response in which a rotated cookie could go back, so Django's own
`get_user` (which rotates and flushes) would log users out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.db import connections
from django.http import parse_cookie
from django.utils.crypto import constant_time_compare

from dashboard.accounts.roles import UserRole, allows
from dashboard.accounts.sessions import SessionStore, digest, valid_sessions
from dashboard.live.events import StreamEnding
from dashboard.models import User

BATCH = 500  # sessions of one query: SQLite takes so many parameters everywhere


@dataclass(frozen=True, slots=True)
class Visitor:
    """User who may read, with the hash of the session key, and the role and password hash when the stream opened."""

    id: int
    session: str
    role: str = ""
    password: str = ""  # Django's session auth hash, not the stored password hash


def key(cookies: str) -> str:
    """Returns the session key in a Cookie header, or "" if there is none."""
    return parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME, "")


def visitor(session_key: str) -> Visitor | None:
    """Returns the user of this session, or None if they may not read. Blocks on the database, then disconnects."""
    try:
        return _visitor(session_key)
    finally:
        connections.close_all()


def find_endings(visitors: Collection[Visitor]) -> dict[Visitor, StreamEnding]:
    """Returns the visitors whose streams must end, and why. Blocks on the database: one query per 500 sessions."""
    try:
        kept: dict[str, User] = {}
        hashes = sorted({visitor.session for visitor in visitors})
        for first in range(0, len(hashes), BATCH):
            rows = (
                valid_sessions().filter(key_hash__in=hashes[first : first + BATCH]).select_related("user").defer("data")
            )
            kept.update({row.key_hash: row.user for row in rows if row.user})
        found = {visitor: _ending(visitor, kept.get(visitor.session)) for visitor in visitors}
    finally:
        connections.close_all()
    return {visitor: ending for visitor, ending in found.items() if ending}


def _ending(visitor: Visitor, user: User | None) -> StreamEnding | None:
    if user is None or not allows(user, UserRole.VIEWER) or not _fits(user, visitor.password):
        return StreamEnding.LOGGED_OUT
    return None if user.role == visitor.role else StreamEnding.ROLE_CHANGED


def _visitor(session_key: str) -> Visitor | None:
    store = SessionStore(session_key)
    if store.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return None
    user, password = User.objects.filter(pk=store[SESSION_KEY]).first(), store.get(HASH_SESSION_KEY, "")
    if user is None or not allows(user, UserRole.VIEWER) or not _fits(user, password):
        return None
    return Visitor(user.pk, digest(session_key), user.role, password)


def _fits(user: User, session_hash: str) -> bool:
    """Returns True if the session was opened with the current password; a changed one ends it."""
    hashes = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(session_hash, known) for known in hashes)
