"""Signs and verifies data in stores where others may write, with keys derived from SECRET_KEY, one for each purpose.

A signature covers the purpose, every value that it is bound to, and the content: a signed value that is copied to
another key, queue, job or audit entry is refused there. The current key signs; SECRET_KEY_FALLBACKS verify too.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

from django.conf import settings

Bound = str | bytes | int

SIZE = 32  # bytes of a signature
_MARK = b"s1:"  # begins every sealed value of this format
_ID_DIGITS = 8
_OVERHEAD = len(_MARK) + SIZE


def sign(purpose: str, content: bytes, *bound: Bound) -> bytes:
    """Returns the signature under the current key."""
    return hmac.digest(_derived(settings.SECRET_KEY, purpose), _message(content, bound), "sha256")


def is_signed(purpose: str, signature: bytes, content: bytes, *bound: Bound, secret: str = "") -> bool:
    """Tells whether the current key or a fallback made this signature for these values; with `secret`, that one."""
    message = _message(content, bound)
    tried = (secret,) if secret else secrets()
    digests = (hmac.digest(_derived(one, purpose), message, "sha256") for one in tried)
    return any(hmac.compare_digest(signature, digest) for digest in digests)


def seal(purpose: str, content: bytes, *bound: Bound) -> bytes:
    """Returns the content behind its signature."""
    return _MARK + sign(purpose, content, *bound) + content


def unseal(purpose: str, sealed: bytes | None, *bound: Bound, secret: str = "") -> bytes | None:
    """Returns the content of a sealed value; None for anything that was not sealed for these values."""
    if not sealed or not sealed.startswith(_MARK):
        return None
    content = sealed[_OVERHEAD:]
    return content if is_signed(purpose, sealed[len(_MARK) : _OVERHEAD], content, *bound, secret=secret) else None


def key(purpose: str, secret: str = "") -> bytes:
    """Returns the 32 bytes that are derived for a purpose from the current key, or from this secret."""
    return _derived(secret or settings.SECRET_KEY, purpose)


def secrets() -> tuple[str, ...]:
    """Returns the current key, then those whose signatures still verify."""
    return (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


# -- values that name their key, for records that outlive it


def sign_with_id(purpose: str, content: bytes, *bound: Bound) -> str:
    """Returns `KEY:SIGNATURE` in hexadecimal digits, where KEY tells which secret signed."""
    return f"{key_id(settings.SECRET_KEY)}:{sign(purpose, content, *bound).hex()}"


def is_signed_with_id(purpose: str, signature: str, content: bytes, *bound: Bound) -> bool | None:
    """Verifies what `sign_with_id` made; None: its key is neither SECRET_KEY nor one of SECRET_KEY_FALLBACKS."""
    id, _, digits = signature.partition(":")
    secret = next((secret for secret in secrets() if key_id(secret) == id), None)
    if secret is None:
        return None
    digest = hmac.digest(_derived(secret, purpose), _message(content, bound), "sha256")
    return hmac.compare_digest(digits.encode("utf-8", "replace"), digest.hex().encode("ascii"))


@lru_cache(maxsize=16)
def key_id(secret: str) -> str:
    """Returns an id of a secret that reveals nothing of it."""
    return _derived(secret, "key id").hex()[:_ID_DIGITS]


@lru_cache(maxsize=64)
def _derived(secret: str, purpose: str) -> bytes:
    return hmac.digest(secret.encode(), b"unstall.signing:" + purpose.encode(), hashlib.sha256)


def joined(*bound: Bound) -> bytes:
    """Returns each value behind its length, so that no two lists of values read alike."""
    parts = [value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape") for value in bound]
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


def _message(content: bytes, bound: tuple[Bound, ...]) -> bytes:
    return joined(*bound, content)
