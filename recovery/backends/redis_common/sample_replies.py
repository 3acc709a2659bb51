"""Finds which of several waiting jobs has waited longest, as far as can be told without asking for its times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recovery.backends.redis_common import decode
from recovery.domain.identifiers import decode_name

_PLAIN = frozenset({int, bytes, list, type(None)})


def oldest(candidates: Sequence[bytes | None]) -> str:
    """Returns the likely oldest of the next-to-run jobs of several lists; "" when nothing waits.

    Ids are counted up unless the application chose them, so the lowest number is the oldest. Where ids are
    chosen, the first candidate stands for all: each list is in order, and more would cost a command a queue.
    """
    present = [id for id in candidates if id]
    if not present:
        return ""
    if len(present) > 1 and all(map(bytes.isdigit, present)):
        return decode_name(min(present, key=lambda id: (len(id), id)))
    return decode_name(present[0])


def single_id(reply: Any) -> bytes | None:
    """Returns the one member of a window of one."""
    if not reply:
        return None
    return decode.octets(reply[0]) if isinstance(reply, (list, tuple)) else decode.octets(reply)


def problem(replies: Sequence[Any]) -> str:
    """Returns why something of a queue could not be read: the first refusal."""
    if _PLAIN.issuperset(map(type, replies)):  # asked a thousand times a snapshot, and nearly always so
        return ""
    return next((str(reply) for reply in replies if isinstance(reply, Exception)), "")
