"""Encrypts what is kept at rest and nobody else may read, with keys derived from SECRET_KEY, one for each purpose.

A fresh nonce of 256 bits makes a key stream for each message (SHAKE-256 over key and nonce), and an HMAC-SHA256 under a
second key covers the nonce, the ciphertext and every value that the message is bound to. Decision 30 says why this and
no library. Costs some 6 ms a megabyte.
"""

from __future__ import annotations

import hashlib
import secrets

from recovery import signing
from recovery.signing import Bound

_NONCE = 32  # bytes
_STREAM, _TAG = ":stream", ":tag"  # two keys of one purpose


def encrypt(purpose: str, content: bytes, *bound: Bound) -> bytes:
    """Returns the content encrypted under the current key, sealed for these values."""
    nonce = secrets.token_bytes(_NONCE)
    hidden = _masked(signing.key(purpose + _STREAM), nonce, content)
    return signing.seal(purpose + _TAG, nonce + hidden, *bound)


def decrypt(purpose: str, sealed: bytes | None, *bound: Bound) -> bytes | None:
    """Returns the content; None for anything that the current key or a fallback did not encrypt for these values."""
    for secret in signing.secrets():
        found = signing.unseal(purpose + _TAG, sealed, *bound, secret=secret)
        if found is not None:
            return _masked(signing.key(purpose + _STREAM, secret), found[:_NONCE], found[_NONCE:])
    return None


def _masked(key: bytes, nonce: bytes, content: bytes) -> bytes:
    """Adds or takes away the key stream: both are the same. SHAKE cannot be extended, so the key may stand in front."""
    stream = hashlib.shake_256(key + nonce).digest(len(content))
    mixed = int.from_bytes(content, "big") ^ int.from_bytes(stream, "big")
    return mixed.to_bytes(len(content), "big")
