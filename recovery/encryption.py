"""Encrypts confidential data at rest, with keys derived from SECRET_KEY, one for each purpose.

AES-256-GCM of `cryptography` (decision 28). The tag covers the content, the purpose by its key, and every value that
the message is bound to, so a message that is copied to another row is refused there.
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from recovery import signing
from recovery.signing import Bound

_MARK = b"e1:"  # begins every message of this format
_NONCE = 12  # bytes, random: good for far more messages under one key than are ever made


def encrypt(purpose: str, content: bytes, *bound: Bound) -> bytes:
    """Returns the content encrypted under the current key for these values."""
    nonce = secrets.token_bytes(_NONCE)
    return _MARK + nonce + AESGCM(signing.key(purpose)).encrypt(nonce, content, signing.joined(*bound))


def decrypt(purpose: str, message: bytes | None, *bound: Bound) -> bytes | None:
    """Returns the content; None for anything that the current key or a fallback did not encrypt for these values."""
    start = len(_MARK) + _NONCE
    if not message or not message.startswith(_MARK) or len(message) < start:
        return None
    nonce, hidden, joined = message[len(_MARK) : start], message[start:], signing.joined(*bound)
    for secret in signing.secrets():
        try:
            return AESGCM(signing.key(purpose, secret)).decrypt(nonce, hidden, joined)
        except InvalidTag:
            continue
    return None
