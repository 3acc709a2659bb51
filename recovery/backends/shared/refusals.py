"""A refused read is not an empty list: what must be known to show anything at all is insisted on."""

from __future__ import annotations

from typing import Any

import redis

from recovery.backends.shared import decode
from recovery.domain.refs import QueueRef, shown
from recovery.errors import AccessDenied, StoreError, WrongType


def insist(reply: Any, ref: QueueRef, command: bytes) -> None:
    """Raises StoreError when the store refused this."""
    if not isinstance(reply, Exception):
        return
    target = f"{shown(ref.deployment)}, queue {ref.label}"
    raise _kind(reply)(target, decode.refusal(reply), command=command.decode())


def _kind(reply: Exception) -> type[StoreError]:
    if isinstance(reply, redis.exceptions.NoPermissionError):
        return AccessDenied
    return WrongType if decode.is_wrong_type(reply) else StoreError
