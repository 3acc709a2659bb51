"""Who is behind a session cookie, for the streams that run beside Django.

It reads and never writes: a stream has no response in which a rotated cookie could go back, so Django's own
`get_user` (which rotates and flushes) would sign people out.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model, load_backend
from django.db import connections
from django.http import parse_cookie
from django.utils.crypto import constant_time_compare

from dashboard.access import Role, allows


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person who may watch, and the session that says so."""

    id: int
    session: str


def key(cookies: str) -> str:
    """The session's key in a Cookie header, "" when there is none."""
    return parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME, "")


def visitor(session_key: str) -> Visitor | None:
    """Who has this session, if they may watch. Blocks on the database; leaves no connection open."""
    try:
        return _visitor(session_key)
    finally:
        connections.close_all()


def gone(session_keys: frozenset[str]) -> frozenset[str]:
    """Those of the sessions that may watch no longer. Blocks on the database, on one connection for all."""
    try:
        return frozenset(key for key in session_keys if _visitor(key) is None)
    finally:
        connections.close_all()


def _visitor(session_key: str) -> Visitor | None:
    store = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = _user(store)
    if user is None or not allows(user, Role.VIEWER):
        return None
    return Visitor(user.pk, session_key)


def _user(store: Any) -> Any:
    backend = store.get(BACKEND_SESSION_KEY)
    if backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    user = load_backend(backend).get_user(get_user_model()._meta.pk.to_python(store[SESSION_KEY]))
    if user is None or not _fits(user, store.get(HASH_SESSION_KEY, "")):
        return None
    return user


def _fits(user: Any, session_hash: str) -> bool:
    """A changed password ends the sessions that were opened with the old one."""
    hashes = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(session_hash, known) for known in hashes)
