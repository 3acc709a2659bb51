"""Reads a page of a sorted set, by score and id: new arrivals neither double nor lose a row.

Redis can start a range at a score but not at a score *and* an id, and many jobs may finish in one millisecond.
So a page is read by rank, and counts only when its first member is one that was shown before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging.cursors import SortedSetCursor, spot
from recovery.backends.redis_common.paging.types import IdWindow, JobIdEntry, PageRequest
from recovery.backends.redis_common.reply_errors import check_id_lengths, raise_if_refused
from recovery.domain.identifiers import QueueRef

_STEP = 1000  # members read at once when the last job shown is gone and shared its score with many
_ROUNDS = 200  # a set that keeps moving under our feet gets this many tries; 200,000 jobs of one millisecond too


def window(wire: CommandClient, context: QueueContext, place: StatePlace, request: PageRequest) -> IdWindow:
    key = place.key(context.keys)
    start, size = spot(request.cursor), request.size
    if start is not None:
        (total,) = wire.call([(b"ZCARD", key)])
        entries = _Way(context.ref, key, start, request.ascending is not start.is_back).beyond(wire, size + 1)
        if not start.is_back:
            return _forward(entries, decode.count(total), size, start)
        if entries:
            return _backward(entries, decode.count(total), size)
    total, found = wire.call([(b"ZCARD", key), _range(key, 0, size + 1, request.ascending)])
    return _forward(_entries(found, context.ref, key), decode.count(total), size, None)


class _Way(NamedTuple):
    """Direction in a sorted set, from one spot on."""

    ref: QueueRef
    key: bytes
    start: SortedSetCursor
    ascending: bool

    def beyond(self, wire: CommandClient, size: int) -> list[JobIdEntry]:
        """Returns the next members after the spot, read in one command that proves that nothing lies between."""
        rank = self._rank(wire)
        count = size + 1
        fresh: list[JobIdEntry] = []
        for _ in range(_ROUNDS):
            (found,) = wire.call([_range(self.key, rank, count, self.ascending)])
            read = _entries(found, self.ref, self.key)
            fresh = [entry for entry in read if self._is_beyond(entry)]
            if rank and (not read or fresh[:1] == read[:1]):
                rank, count = self._rank(wire), _STEP + size  # members in front of it left meanwhile
            elif len(fresh) >= size or len(read) < count:
                break
            else:
                rank, count = rank + len(read) - len(fresh) - 1, _STEP + size
        return fresh[:size]

    def _rank(self, wire: CommandClient) -> int:
        """Returns the spot's own rank, or where its score begins when its job is gone or has another score now."""
        edge = f"({self.start.score!r}".encode()
        before = (b"-inf", edge) if self.ascending else (edge, b"+inf")
        score, rank, passed = wire.call(
            [
                (b"ZSCORE", self.key, self.start.id),
                (b"ZRANK" if self.ascending else b"ZREVRANK", self.key, self.start.id),
                (b"ZCOUNT", self.key, *before),
            ]
        )
        if decode.score(score) == self.start.score and isinstance(rank, int):
            return rank
        return max(0, (decode.count(passed) or 0) - 1)

    def _is_beyond(self, entry: JobIdEntry) -> bool:
        here, there = (self.start.score, self.start.id), (entry.score or 0.0, entry.id)
        return there > here if self.ascending else there < here


def _range(key: bytes, first: int, count: int, ascending: bool) -> Command:
    return b"ZRANGE" if ascending else b"ZREVRANGE", key, first, first + count - 1, b"WITHSCORES"


def _entries(reply: object, ref: QueueRef, key: bytes) -> list[JobIdEntry]:
    """Raises StoreError."""
    raise_if_refused(reply, ref, b"ZRANGE")
    entries = [JobIdEntry(id, decode.score(score)) for id, score in decode.pairs(reply)]
    check_id_lengths((entry.id for entry in entries), ref, key)
    return entries


def _forward(entries: Sequence[JobIdEntry], total: int | None, size: int, start: SortedSetCursor | None) -> IdWindow:
    shown = entries[:size]
    return IdWindow(
        tuple(shown),
        total,
        _spot(shown[-1], is_back=False) if len(entries) > size else "",
        _spot(shown[0], is_back=True) if start and shown else "",
    )


def _backward(entries: Sequence[JobIdEntry], total: int | None, size: int) -> IdWindow:
    """Returns the page before the spot, turned round: its entries were read away from the spot."""
    shown = tuple(reversed(entries[:size]))
    previous = _spot(shown[0], is_back=True) if len(entries) > size else ""
    return IdWindow(shown, total, _spot(shown[-1], is_back=False), previous)


def _spot(entry: JobIdEntry, *, is_back: bool) -> str:
    return str(SortedSetCursor(entry.score or 0.0, entry.id, is_back))
