"""Django's session engine over our own table, which holds the hash of a key and never the key.

A key has 165 random bits, so one round of SHA-256 keeps it safe. A session ends after SESSION_COOKIE_AGE, whatever
happens to it, and after SESSION_IDLE without a person's use.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.base import CreateError, SessionBase, UpdateError
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from dashboard.database_url import BUSY_SECONDS
from recovery.domain.identifiers import printable

log = logging.getLogger(__name__)

BROWSER_LIMIT = 200  # characters of a User-Agent
_USE_NOTED_EVERY = timedelta(minutes=1)  # a write a request would make readers wait for the disk
_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


class SessionStore(SessionBase):
    """A session of a browser. `last_used_at` is None until it was read from the database."""

    last_used_at: datetime | None = None

    def load(self) -> dict[str, Any]:
        kept = (
            valid_sessions().filter(key_hash=digest(self.session_key or "")).values_list("data", "last_used_at").first()
        )
        if kept is None:
            self._session_key = None
            return {}
        data, self.last_used_at = kept
        decoded: dict[str, Any] = self.decode(data)
        return decoded

    def exists(self, session_key: str) -> bool:
        return _rows().filter(key_hash=digest(session_key)).exists()

    def create(self) -> None:
        while True:
            self._session_key = self._get_new_session_key()  # type: ignore[attr-defined]  # the stubs lack it
            try:
                self.save(must_create=True)
            except CreateError:
                continue
            self.modified = True
            return

    def save(self, must_create: bool = False) -> None:
        """Writes the session's data. Its end stays what it was at the start. Raises CreateError, UpdateError."""
        if self.session_key is None:
            self.create()
            return
        data: dict[str, Any] = self._get_session(no_load=must_create)  # type: ignore[attr-defined]  # the stubs lack it
        kept = {"data": self.encode(data), "user_id": int(data[SESSION_KEY]) if SESSION_KEY in data else None}
        rows = _rows().filter(key_hash=digest(self.session_key))
        if not must_create:
            if not rows.update(**kept):
                raise UpdateError
            return
        try:
            with transaction.atomic():
                rows.create(key_hash=digest(self.session_key), expires_at=self.get_expiry_date(), **kept)
        except IntegrityError:
            raise CreateError from None

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            _rows().filter(key_hash=digest(key)).delete()

    @classmethod
    def clear_expired(cls) -> None:
        """Deletes expired sessions. The scheduler calls it each time it prunes."""
        _rows().exclude(_is_alive()).delete()


def digest(key: str) -> str:
    """Returns the hash of a session's key: nothing else of the key is ever stored."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def valid_sessions() -> QuerySet[Any]:
    """Returns the sessions that have not expired, of users and of those who are about to log in."""
    return _rows().filter(_is_alive())


def note_use(request: HttpRequest, *, is_first: bool = False) -> None:
    """Records when, from which address and with which browser a session was used, at most once a minute.

    A database that cannot be written does not fail the request.
    """
    store, now = request.session, timezone.now()
    seen_at = getattr(store, "last_used_at", None)
    is_recent = seen_at is None or seen_at > now - _USE_NOTED_EVERY
    if not store.session_key or (is_recent and not is_first):
        return
    browser = printable(request.headers.get("User-Agent", ""))[:BROWSER_LIMIT]
    address = (request.META.get("REMOTE_ADDR") or "")[:64]
    try:
        with _without_waiting(), transaction.atomic():
            rows = _rows().filter(key_hash=digest(store.session_key))
            rows.update(last_used_at=now, address=address, browser=browser)
    except DatabaseError as error:
        log.warning("the last use of a session could not be recorded: %s", error)


@contextmanager
def _without_waiting() -> Iterator[None]:
    """Gives up at once where another writer has SQLite: a page waits for none, and the next request notes the use."""
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout=0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")


def browser_name(agent: str) -> str:
    """Returns browser and system of a User-Agent, as far as people tell them apart: "Firefox on Linux"."""
    name = next((name for mark, name in _BROWSERS if mark in agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    if name and system:
        return f"{name} on {system}"
    return name or system or agent.partition(" ")[0] or "unknown"


def _rows() -> QuerySet[Any]:
    from dashboard.models import LoginSession  # noqa: PLC0415 -- settings name this module before models can be loaded

    return LoginSession.objects.all()


def _is_alive() -> Q:
    now = timezone.now()
    idle: timedelta | None = settings.SESSION_IDLE
    return Q(expires_at__gt=now) & (Q(last_used_at__gt=now - idle) if idle else Q())
