"""Writes recorded minutes into the ring buffers of the state store, and their sums over ten minutes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import redis

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import MINUTES, TENS, UNKNOWN, FinishedRing, FinishedTally, total
from recovery.reads.queues import history
from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

KEEP_S = 8 * 86_400  # TTL: a queue that is gone is forgotten when its last cell is a week old
BATCH = 1_000  # writes in one request: 20 KB, and the store serves others in between


class HistoryCells(NamedTuple):
    """Consecutive cells of a queue's history; `first` is the period of the first one."""

    ref: QueueRef
    first: int
    tallies: tuple[FinishedTally, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.tallies) - 1


class HistoryWriter:
    """Collects the cells of one run, and writes them."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._strips: list[HistoryCells] = []

    def add(self, strips: Iterable[HistoryCells]) -> None:
        self._strips += strips

    def write(self) -> int:
        """Writes the minutes, then the tens that they complete; returns how many queues. Raises StoreError."""
        self._put(MINUTES, self._strips)
        self._put(TENS, self._tens())
        return len({strip.ref for strip in self._strips})

    def _tens(self) -> list[HistoryCells]:
        """Returns sums over all changed periods of ten minutes that have ended."""
        newest = max((strip.last for strip in self._strips), default=0)
        end = TENS.period(newest + 1)
        starts: dict[int, set[QueueRef]] = {}
        for strip in self._strips:
            starts.setdefault(TENS.period(strip.first), set()).add(strip.ref)
        return [
            strip for first, refs in starts.items() if first < end for strip in self._summed(sorted(refs), first, end)
        ]

    def _summed(self, refs: list[QueueRef], first: int, end: int) -> Iterable[HistoryCells]:
        unit = TENS.unit
        found = history.cells(self._store, MINUTES, refs, first * unit, end * unit - 1)
        for ref, cells in found.items():
            tallies = (
                total([cells.get(period * unit + minute, UNKNOWN) for minute in range(unit)])
                for period in range(first, end)
            )
            yield HistoryCells(ref, first, tuple(tallies))

    def _put(self, ring: FinishedRing, strips: Iterable[HistoryCells]) -> None:
        rest = iter(strips)
        while batch := list(islice(rest, BATCH)):
            with redis_errors.guarded(self._store):
                pipeline = self._store.pipeline(transaction=False)
                for ref, first, tallies in batch:
                    for offset, cells in ring.pieces(first, tallies):
                        pipeline.setrange(state_keys.history(ref, ring.name), offset, cells)
                for ref in {strip.ref for strip in batch}:
                    pipeline.expire(state_keys.history(ref, ring.name), KEEP_S)
                pipeline.execute()
