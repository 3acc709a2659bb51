"""Limits wrong passwords and codes: per address, per name, per both, and per browser that is known.

A pause lasts ten minutes, and the right password is refused as well while it does. Somebody who guesses one name from
many addresses makes that name pause for strangers only: a browser in which this person has logged in before carries a
signed cookie and is counted by itself, so nobody can lock a colleague out. A one-time link is never paused.

Counts are rows of the database, because several web processes count together. Each failed attempt costs a password
hash, of which one is made at a time, so their number is bounded; those that are over go with the next failure.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from django.conf import settings
from django.core import signing
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from dashboard.models import LoginFailures, User

WINDOW = timedelta(minutes=10)  # in which failures are counted together
PAUSE = timedelta(minutes=10)
COOKIE = "unstall-browser"
COOKIE_AGE = timedelta(days=90)
_SALT = "unstall.known-browser"


class LoginFailureKind(StrEnum):
    """Criterion by which failures are counted."""

    PAIR = "pair"  # one name from one address
    ADDRESS = "address"  # any names: a spray; a /64 of IPv6 is one address
    NAME = "name"  # any addresses: a distributed guess
    BROWSER = "browser"  # one in which the person has logged in before, in place of the three above
    CODE = "code"  # of a person whose password was right
    SESSION = "session"  # the password again, of one who is logged in


MOST = {
    LoginFailureKind.PAIR: 6,
    LoginFailureKind.ADDRESS: 20,
    LoginFailureKind.NAME: 30,
    LoginFailureKind.BROWSER: 6,
    LoginFailureKind.CODE: 6,
    LoginFailureKind.SESSION: 6,
}


@dataclass(frozen=True, slots=True)
class LoginFailureBucket:
    """Failures that are counted together. Names can be any text that was typed, so the key is a hash."""

    kind: LoginFailureKind
    value: str

    @property
    def key(self) -> str:
        return f"{self.kind}:{hashlib.sha256(self.value.encode('utf-8', 'surrogateescape')).hexdigest()}"


class TooManyFailures(Exception):
    """Raised while a bucket is paused: no password is tried. `seconds` are left of the pause."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(f"paused for {seconds} s")


def login_buckets(request: HttpRequest, name: str) -> tuple[LoginFailureBucket, ...]:
    """Returns the buckets of an attempt to log in by this name."""
    name = name.casefold()
    if known := _known_browser(request, name):
        return (LoginFailureBucket(LoginFailureKind.BROWSER, known),)
    network = network_of(address_of(request))
    return (
        LoginFailureBucket(LoginFailureKind.PAIR, f"{network} {name}"),
        LoginFailureBucket(LoginFailureKind.ADDRESS, network),
        LoginFailureBucket(LoginFailureKind.NAME, name),
    )


def check(buckets: Iterable[LoginFailureBucket]) -> None:
    """Raises TooManyFailures while one of these pauses."""
    now = timezone.now()
    keys = [bucket.key for bucket in buckets]
    rows = LoginFailures.objects.filter(bucket__in=keys, paused_until__gt=now)
    if ends := [end for end in rows.values_list("paused_until", flat=True) if end is not None]:
        raise TooManyFailures(math.ceil((max(ends) - now).total_seconds()))


def count(buckets: Iterable[LoginFailureBucket]) -> tuple[LoginFailureBucket, ...]:
    """Counts a failure in each of these. Returns those that pause from now on."""
    now = timezone.now()
    LoginFailures.objects.filter(since__lt=now - WINDOW - PAUSE).delete()
    return tuple([bucket for bucket in buckets if _count(bucket)])


def forget(buckets: Iterable[LoginFailureBucket]) -> None:
    """Resets counts after a success. Failures of the address with other names stay, and those of the name elsewhere."""
    kinds = (LoginFailureKind.PAIR, LoginFailureKind.BROWSER, LoginFailureKind.CODE, LoginFailureKind.SESSION)
    LoginFailures.objects.filter(bucket__in=[one.key for one in buckets if one.kind in kinds]).delete()


def remember_browser(response: HttpResponseBase, user: User) -> None:
    """Marks the browser as one in which this person has logged in."""
    response.set_cookie(
        COOKIE,
        signing.dumps([user.username.casefold(), secrets.token_hex(8)], salt=_SALT),
        max_age=int(COOKIE_AGE.total_seconds()),
        path="/login",
        httponly=True,
        samesite="Lax",
        secure=settings.IS_HTTPS,
    )


def address_of(request: HttpRequest) -> str:
    return request.META.get("REMOTE_ADDR") or ""


def network_of(address: str) -> str:
    """Returns what counts as one address: a /64 of IPv6, which is what one customer has; of IPv4 the address itself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _count(bucket: LoginFailureBucket) -> bool:
    now = timezone.now()
    with transaction.atomic():
        LoginFailures.objects.get_or_create(bucket=bucket.key, defaults={"since": now})
        row = LoginFailures.objects.select_for_update().get(bucket=bucket.key)
        is_over = row.paused_until is not None and row.paused_until <= now
        if is_over or row.since <= now - WINDOW:
            row.failures, row.since, row.paused_until = 0, now, None
        row.failures += 1
        begins = row.failures >= MOST[bucket.kind] and row.paused_until is None
        if begins:
            row.paused_until = now + PAUSE
        row.save()
    return begins


def _known_browser(request: HttpRequest, name: str) -> str:
    """Returns the mark of a browser in which a user of this name has logged in; "" for any other."""
    try:
        known, mark = signing.loads(request.COOKIES.get(COOKIE, ""), salt=_SALT, max_age=COOKIE_AGE)
    except (signing.BadSignature, ValueError, TypeError):
        return ""
    return f"{known} {mark}" if known == name else ""
