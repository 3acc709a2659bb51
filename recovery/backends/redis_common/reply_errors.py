"""Raises errors for refused reads: a refused read is not an empty list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis

from recovery.backends.redis_common import decode
from recovery.domain.identifiers import QueueRef, decode_name, printable
from recovery.errors import AccessDenied, OversizedAnswer, StoreError, WrongType
from recovery.stores.redis.reply_limits import OversizedReply

ID_BYTES = 16 * 1024  # of a job's id: a page has a hundred of them, each in several addresses


def raise_if_refused(reply: Any, ref: QueueRef, command: bytes) -> None:
    """Raises StoreError when the store refused this."""
    if not isinstance(reply, Exception):
        return
    target = f"{printable(ref.deployment)}, queue {ref.label}"
    raise _kind(reply)(target, decode.refusal(reply), command=command.decode())


def oversized(*replies: Any) -> str:
    """Returns which of them was too long to be read; one that was merely not asked any more does not count."""
    return next((str(reply) for reply in replies if type(reply) is OversizedReply), "")


def check_id_lengths(ids: Iterable[bytes], ref: QueueRef, key: bytes) -> None:
    """Raises OversizedAnswer when one of them is no id that a page, an address or an act can take."""
    longest = max(map(len, ids), default=0)
    if longest > ID_BYTES:
        target = f"{printable(ref.deployment)}, queue {ref.label}"
        raise OversizedAnswer(
            target, f"{printable(decode_name(key))} holds an id of {longest:,} bytes, so it is not shown"
        )


def _kind(reply: Exception) -> type[StoreError]:
    if isinstance(reply, redis.exceptions.NoPermissionError):
        return AccessDenied
    if isinstance(reply, OversizedReply):
        return OversizedAnswer
    return WrongType if decode.is_wrong_type(reply) else StoreError
