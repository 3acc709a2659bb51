"""Packs documents of the scheduler for the state store: JSON, compressed, and signed for their purpose.

`unpack` verifies the signature before it decompresses anything, and decompresses at most `LARGEST` bytes.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from recovery import signing

LARGEST = 128 * 1024 * 1024  # bytes of JSON; ten thousand queues take some MB
_LEVEL = 1  # of zlib: higher levels cost more time than they save


def pack(purpose: str, document: Any) -> bytes:
    written = json.dumps(document, separators=(",", ":")).encode("ascii")
    return signing.seal(purpose, zlib.compress(written, _LEVEL))


def unpack(purpose: str, packed: bytes) -> Any:
    """Reverses `pack`; raises ValueError for what was not signed with our key, or is too large."""
    folded = signing.unseal(purpose, packed)
    if folded is None:
        raise ValueError("it is not signed with the secret key of this process")
    unfolding = zlib.decompressobj()
    try:
        written = unfolding.decompress(folded, LARGEST)
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if not unfolding.eof:
        raise ValueError("it is truncated or too large")
    return json.loads(written)
