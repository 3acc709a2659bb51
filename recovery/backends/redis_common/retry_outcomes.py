"""Reads how retried jobs ended: light enough to be asked of a thousand every few seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef, encode_name

_WIDTH = 3


class RetriedJobOutcome(NamedTuple):
    """End of a retried job. `failed_at` None: it is not among the failed ones."""

    is_there: bool
    is_completed: bool
    failed_at: int | None  # 0: that is not known


def finishes(wire: CommandClient, ref: QueueRef, ids: Sequence[str]) -> list[RetriedJobOutcome | None]:
    """Reads how each job ended; None: it could not be read. Three short commands a job; raises StoreError."""
    keys = Keys(ref.base)
    asked = [command for id in ids for command in _ask(keys, encode_name(id))]
    replies = wire.call(asked) if asked else []
    return [_finish(replies[at : at + _WIDTH]) for at in range(0, len(replies), _WIDTH)]


def oldest_failed(wire: CommandClient, ref: QueueRef) -> int | None:
    """Returns when the oldest failed job that is still kept failed; None: none is kept, or it cannot be read."""
    (reply,) = wire.call([(b"ZRANGE", Keys(ref.base).failed, 0, 0, b"WITHSCORES")])
    scores = [decode.score(score) for _, score in decode.pairs(reply)]
    return None if not scores or scores[0] is None else _moment(scores[0])


def _ask(keys: Keys, id: bytes) -> tuple[Command, ...]:
    return (b"ZSCORE", keys.completed, id), (b"ZSCORE", keys.failed, id), (b"EXISTS", keys.job(id))


def _finish(replies: Sequence[Any]) -> RetriedJobOutcome | None:
    if any(isinstance(reply, Exception) for reply in replies):
        return None
    completed, failed, there = replies
    at = decode.score(failed)
    return RetriedJobOutcome(bool(there), decode.score(completed) is not None, None if at is None else _moment(at))


def _moment(score: float) -> int:
    """Returns the score as a time, 0 for what is none: a score may be infinite."""
    return int(score) if math.isfinite(score) else 0
