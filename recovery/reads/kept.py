"""What the finished jobs that are still in Redis tell of the past: how many finished in which stretch of time.

The libraries trim the oldest first, so every stretch that began after the oldest kept job finished is whole.
Of the ones before nothing is known. Each count costs O(log n).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from recovery.backends.base import Command
from recovery.backends.shared.decode import count, pairs, score
from recovery.backends.shared.keys import Keys
from recovery.domain.refs import QueueRef
from recovery.domain.series import Tally

Span = tuple[int, int]  # ms, the end not included


def size(spans: Sequence[Span]) -> int:
    """Commands that `plan` makes."""
    return 2 * (1 + len(spans))


def plan(ref: QueueRef, spans: Sequence[Span]) -> Iterator[Command]:
    keys = Keys(ref.base)
    for key in (keys.completed, keys.failed):
        yield b"ZRANGE", key, 0, 0, b"WITHSCORES"
        for start, end in spans:
            yield b"ZCOUNT", key, start, b"(%d" % end


def tallies(spans: Sequence[Span], replies: Sequence[Any], *, sure: Container[int] = ()) -> list[Tally]:
    """`sure`: spans, by their index, in which no job went away, so that their counts are whole in any case."""
    half = 1 + len(spans)
    columns = [_column(spans, replies[:half], sure), _column(spans, replies[half:], sure)]
    return [Tally(*row) for row in zip(*columns, strict=True)]


def _column(spans: Sequence[Span], replies: Sequence[Any], sure: Container[int]) -> list[int | None]:
    oldest = next((score(value) for _, value in pairs(replies[0])), None)
    return [
        count(reply) if index in sure or (oldest is not None and oldest < start) else None
        for index, ((start, _), reply) in enumerate(zip(spans, replies[1:], strict=True))
    ]
