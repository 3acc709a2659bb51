"""Counts finished jobs that are still in Redis, for given spans of time.

The libraries trim the oldest first, so every span that began after the oldest kept job finished is complete.
Earlier spans are unknown. Each count costs O(log n).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from recovery.backends.base import Command
from recovery.backends.redis_common.decode import count, pairs, score
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import FinishedTally

Span = tuple[int, int]  # ms, the end not included


def size(spans: Sequence[Span]) -> int:
    """Returns the number of commands that `plan` makes."""
    return 2 * (1 + len(spans))


def plan(ref: QueueRef, spans: Sequence[Span]) -> Iterator[Command]:
    keys = Keys(ref.base)
    for key in (keys.completed, keys.failed):
        yield b"ZRANGE", key, 0, 0, b"WITHSCORES"
        for start, end in spans:
            yield b"ZCOUNT", key, start, b"(%d" % end


def read_counts(spans: Sequence[Span], replies: Sequence[Any], *, sure: Container[int] = ()) -> list[FinishedTally]:
    """Reads the replies to `plan`. `sure`: indexes of spans in which no job was removed, whose counts are complete."""
    half = 1 + len(spans)
    columns = [_column(spans, replies[:half], sure), _column(spans, replies[half:], sure)]
    return [FinishedTally(*row) for row in zip(*columns, strict=True)]


def _column(spans: Sequence[Span], replies: Sequence[Any], sure: Container[int]) -> list[int | None]:
    oldest = next((score(value) for _, value in pairs(replies[0])), None)
    return [
        count(reply) if index in sure or (oldest is not None and oldest < start) else None
        for index, ((start, _), reply) in enumerate(zip(spans, replies[1:], strict=True))
    ]
