"""Makes machine tokens, finds them by their hash, and revokes them.

A token has 256 random bits, so one round of SHA-256 keeps it safe, and a lookup by the hash tells nothing by its time.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from datetime import timedelta

from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from dashboard.accounts import token_scopes
from dashboard.accounts.token_scopes import TokenScope
from dashboard.models import MachineToken, User

log = logging.getLogger(__name__)

MARK = "unstall_"  # lets people, logs and secret scanners know one when they see it
LIKE_A_TOKEN = re.compile(rf"{MARK}[A-Za-z0-9_-]{{20,}}")
DAYS_DEFAULT = 90
DAYS = (7, 30, 90, 365)
_BYTES = 32
_PREFIX = len(MARK) + 6  # enough to tell tokens apart, far too little to guess one
_USE_NOTED_EVERY = timedelta(minutes=1)  # a write a request would make readers wait for the disk


class TokenUnknown(Exception):
    """Raised for a token that was never issued."""


class TokenSpent(Exception):
    """Raised for a token that is expired or revoked; the text says which, and since when."""


def make(name: str, allowed: frozenset[TokenScope], days: int, maker: User | None) -> tuple[MachineToken, str]:
    """Returns a new token as it is stored, and as it is written: the one moment in which it is known."""
    written = MARK + secrets.token_urlsafe(_BYTES)
    token = MachineToken.objects.create(
        name=name,
        token_hash=digest(written),
        prefix=written[:_PREFIX],
        scopes=token_scopes.format_scopes(allowed),
        created_by=maker,
        expires_at=timezone.now() + timedelta(days=days),
    )
    return token, written


def find(written: str) -> MachineToken:
    """Returns the valid token behind these characters; raises TokenUnknown, TokenSpent."""
    token = MachineToken.objects.filter(token_hash=digest(written)).first()
    if token is None:
        raise TokenUnknown
    if token.revoked_at is not None:
        raise TokenSpent(f"The token {token.name} was revoked at {_stamp(token.revoked_at)}.")
    if token.state == "expired":
        raise TokenSpent(f"The token {token.name} expired at {_stamp(token.expires_at)}.")
    return token


def note_use(token: MachineToken) -> None:
    """Records the use, at most once a minute. A database that cannot be written does not fail the request."""
    now = timezone.now()
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _USE_NOTED_EVERY)
    if token.last_used_at is not None and token.last_used_at >= now - _USE_NOTED_EVERY:
        return
    try:
        MachineToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    except DatabaseError as error:
        log.warning("the last use of a token could not be recorded: %s", error)


def revoke(token: MachineToken) -> bool:
    """Revokes a token; returns False when it was revoked before."""
    return bool(MachineToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()))


def digest(written: str) -> str:
    """Returns the hash of a token: nothing else of it is ever stored but its first characters."""
    return hashlib.sha256(written.encode("utf-8", "surrogateescape")).hexdigest()


def _stamp(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
