"""A second factor for local accounts: codes of an authenticator (TOTP, RFC 6238), and recovery codes.

Neither an authenticator's key nor a recovery code is kept: the key is made of a random seed and of the secret key, so
that the database alone makes no code, and of recovery codes only a keyed hash is kept. A code is taken once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
import time
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import segno
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from dashboard.models import RecoveryCode, User

STEP_SECONDS = 30
DIGITS = 6
DRIFT = 1  # steps that a phone's clock may be off, either way
CODES = 10
CODE_LETTERS = 10  # of a recovery code: 50 bits
ISSUER = "Unstall"
_KEY_BYTES = 20  # as RFC 4226 recommends for SHA-1, the one hash that all authenticators know
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # without those that look alike


def new_seed() -> str:
    return secrets.token_hex(32)


def is_on(user: User) -> bool:
    return bool(user.two_factor_seed)


def secret_of(seed: str) -> str:
    """Returns the key as authenticators take it, in Base32."""
    return base64.b32encode(_key(seed)).decode("ascii").rstrip("=")


def address_of(user: User, seed: str, place: str = "") -> str:
    """Returns the otpauth:// URL that a QR code holds. `place`: what this installation is called."""
    issuer = f"{ISSUER} {place}".strip()
    asked = urlencode(
        {"secret": secret_of(seed), "issuer": issuer, "digits": DIGITS, "period": STEP_SECONDS}, quote_via=quote
    )
    return f"otpauth://totp/{quote(issuer)}:{quote(user.username)}?{asked}"


@dataclass(frozen=True, slots=True)
class QrCode:
    """QR code. `size`: modules on a side, with the quiet zone. `path`: the dark ones, as the data of an SVG path."""

    size: int
    path: str


def qr_code(address: str) -> QrCode:
    """Draws the address for the camera of a phone."""
    code = segno.make_qr(address, error="m", boost_error=False)
    rows = enumerate(code.matrix_iter())
    dark = (f"M{x} {y}h1v1h-1z" for y, row in rows for x, is_dark in enumerate(row) if is_dark)
    return QrCode(int(code.symbol_size()[0]), "".join(dark))


def code_at(seed: str, step: int) -> str:
    """Returns the code of one step of STEP_SECONDS since 1970."""
    digest = hmac.digest(_key(seed), struct.pack(">Q", step), hashlib.sha1)
    offset = digest[-1] & 0x0F
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def step_of(seed: str, code: str, now: float | None = None) -> int | None:
    """Returns the step whose code this is, of those that count now; None for any other code."""
    current = int(time.time() if now is None else now) // STEP_SECONDS
    steps = range(current - DRIFT, current + DRIFT + 1)
    written = code.encode()  # as text, only ASCII can be compared
    return next((step for step in steps if hmac.compare_digest(code_at(seed, step).encode(), written)), None)


def turn_on(user: User, seed: str, step: int) -> list[str]:
    """Turns it on; returns the recovery codes, known only now. `step` is that of the code that proved the seed."""
    with transaction.atomic():
        kept = {"two_factor_seed": seed, "two_factor_since": timezone.now(), "two_factor_step": step}
        User.objects.filter(pk=user.pk).update(**kept)
        return new_recovery_codes(user)


def turn_off(user: User) -> bool:
    """Turns it off; returns False when it was off."""
    with transaction.atomic():
        RecoveryCode.objects.filter(user=user).delete()
        on = User.objects.filter(pk=user.pk).exclude(two_factor_seed="")
        return bool(on.update(two_factor_seed="", two_factor_since=None, two_factor_step=0))


def new_recovery_codes(user: User) -> list[str]:
    """Returns new recovery codes, which replace the old ones."""
    codes = ["".join(secrets.choice(_LETTERS) for _ in range(CODE_LETTERS)) for _ in range(CODES)]
    with transaction.atomic():
        RecoveryCode.objects.filter(user=user).delete()
        RecoveryCode.objects.bulk_create([RecoveryCode(user=user, code_hash=_hashed(user, code)) for code in codes])
    return [f"{code[: CODE_LETTERS // 2]}-{code[CODE_LETTERS // 2 :]}" for code in codes]


def codes_left(user: User) -> int:
    return RecoveryCode.objects.filter(user=user, used_at=None).count()


def accept(user: User, written: str, now: float | None = None) -> str:
    """Accepts a code. Returns "code" or "recovery code"; "" when this is none, or was used before.

    The row count of one conditional UPDATE says who won when two send the same code at the same moment.
    """
    code = "".join(written.split()).replace("-", "").casefold()
    if len(code) == DIGITS and code.isascii() and code.isdigit():
        step = step_of(user.two_factor_seed, code, now)
        unused = User.objects.filter(pk=user.pk, two_factor_seed=user.two_factor_seed)
        if step is None or not unused.filter(two_factor_step__lt=step).update(two_factor_step=step):
            return ""
        return "code"
    kept = RecoveryCode.objects.filter(user=user, code_hash=_hashed(user, code), used_at=None)
    return "recovery code" if kept.update(used_at=timezone.now()) else ""


def _key(seed: str) -> bytes:
    made = hmac.digest(settings.SECRET_KEY.encode(), f"unstall.two-factor:{seed}".encode(), hashlib.sha256)
    return made[:_KEY_BYTES]


def _hashed(user: User, code: str) -> str:
    return salted_hmac("unstall.recovery-code", f"{user.pk}:{code}", algorithm="sha256").hexdigest()
