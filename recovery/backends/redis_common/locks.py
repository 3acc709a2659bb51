"""Reads who holds an active job, and for how long."""

from __future__ import annotations

from typing import Any

from recovery.backends.base import Command
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.jobs import JobLock

TOKEN_BYTES = 256  # a token is a uuid and a counter; whatever else stands there need not be read whole
WIDTH = 2


def ask(keys: Keys, id: bytes) -> tuple[Command, Command]:
    """Asks for the token first: a lock that ends in between is then seen as gone, not as one without an end."""
    key = keys.lock(id)
    return (b"GETRANGE", key, 0, TOKEN_BYTES - 1), (b"PTTL", key)


def read(token: Any, ttl: Any) -> tuple[JobLock | None, bool]:
    """Returns the lock, and whether we may know of it."""
    value, left = decode.octets(token), decode.count(ttl)
    if value is None or left is None:
        return None, False
    if not value or left == -2:
        return None, True
    return JobLock(decode.name(value), left if left >= 0 else None), True
