"""Reads the minutes of sparklines: from BullMQ's metrics where workers keep them, else from our recorded history.

A minute is read once, some seconds after it ended, and the queues take turns: a thousand of them take ten ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from recovery.backends.base import Command
from recovery.backends.redis_common import metrics
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import MINUTE, SPARK, FinishedTally, newest_first, trimmed
from recovery.domain.queues.types import Rates

HistoryReader = Callable[[Sequence[QueueRef], int], Mapping[QueueRef, Mapping[int, FinishedTally]]]

SETTLE_MS = 8_000  # after a minute ended: the recorder writes first, and the workers' clocks differ a little
TURN = 100  # queues a tick: 400 short commands, less than a millisecond of the server's time


class QueueRates:
    """Rates of the queues of one deployment; not shared between threads."""

    def __init__(self, recorded: HistoryReader) -> None:
        self._recorded = recorded
        self._read: dict[QueueRef, int] = {}
        self._rates: dict[QueueRef, Rates] = {}

    def of(self, ref: QueueRef) -> Rates:
        return self._rates.get(ref, Rates())

    def due(self, refs: Iterable[QueueRef], now: int) -> list[QueueRef]:
        """Returns queues whose newest minute has not been read: never read ones first, then the longest unread."""
        settled = (now - SETTLE_MS) // MINUTE
        waiting = [ref for ref in refs if self._read.get(ref, -1) < settled]
        return sorted(waiting, key=lambda ref: self._read.get(ref, -1))[:TURN]

    def keep(self, refs: Iterable[QueueRef]) -> None:
        """Forgets all other queues."""
        kept = set(refs)
        self._read = {ref: minute for ref, minute in self._read.items() if ref in kept}
        self._rates = {ref: rates for ref, rates in self._rates.items() if ref in kept}

    def learn(self, refs: Sequence[QueueRef], replies: Sequence[Any], now: int) -> None:
        """Takes the answers to `plan`; queues without metrics get their rates from the recorded history."""
        silent = []
        for index, ref in enumerate(refs):
            self._read[ref] = now // MINUTE
            rates = _of_library(replies[index * metrics.COMMANDS : (index + 1) * metrics.COMMANDS], now)
            if rates is None:
                silent.append(ref)
            else:
                self._rates[ref] = rates
        if silent:
            recorded = self._recorded(silent, now)
            self._rates.update((ref, rates_from_history(recorded.get(ref, {}), now)) for ref in silent)


def rate_commands(refs: Iterable[QueueRef]) -> list[Command]:
    return [command for ref in refs for command in metrics.plan(Keys(ref.base), SPARK)]


def _of_library(replies: Sequence[Any], now: int) -> Rates | None:
    """Returns the rates from BullMQ's metrics; None when the workers keep none."""
    found = metrics.columns(replies, now, SPARK)
    return None if found is None else Rates(trimmed(found[0]), trimmed(found[1]), "library")


def rates_from_history(cells: Mapping[int, FinishedTally], now: int) -> Rates:
    columns = zip(*newest_first(cells, now), strict=True)
    completed, failed, left = (trimmed(column) for column in columns)
    return Rates(completed, failed, "recorded" if cells else "", left)
