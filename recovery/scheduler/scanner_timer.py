"""Decides when a scanner runs: at its interval since the last start, at once when it is called, and on request.

`tick` is called often and decides. A tick that comes late, after the machine slept or a run took long, begins one run
and not all that were missed. A new term goes on from the last run, so that frequent changes of leaders do not put off
for ever what runs every half hour.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error

from recovery.domain.scheduler.leader_token import May
from recovery.reads.scanners.blockers import pause_reason
from recovery.scanners.runtime.run_recorder import ScannerRunRecorder
from recovery.scanners.runtime.scanner_runner import ScannerRunner
from recovery.scheduler.run_requests import RunRequests
from recovery.shared_clock import steady

LOOK = 0.5  # seconds between two ticks: a run may be this late
JITTER = 0.05  # of the interval, so that installations that started together drift apart
_JITTER_FROM = 60.0  # seconds: shorter intervals have no jitter


@dataclass(frozen=True, slots=True)
class RunInterval:
    """Interval of a scanner. `first`: seconds after the start of a term, at the earliest. `anew`: then, whenever it ran
    last.
    """

    every: float
    first: float = 0.0
    anew: bool = False

    def pause(self) -> float:
        return self.every * random.uniform(1.0, 1.0 + JITTER) if self.every >= _JITTER_FROM else self.every  # noqa: S311


class ScannerTimer:
    """Timer of one scanner. For one thread at a time, but for `call`."""

    def __init__(
        self,
        turn: ScannerRunner,
        rhythm: RunInterval,
        ledger: ScannerRunRecorder,
        orders: RunRequests,
        *,
        may: May,
        clock: Callable[[], float] = steady,
    ) -> None:
        self._turn = turn
        self._rhythm = rhythm
        self._ledger = ledger
        self._orders = orders
        self._may = may
        self._clock = clock
        self._began = clock()
        self._due_at: float | None = None
        self._is_called = threading.Event()

    def call(self) -> None:
        """Asks for a run at once, or after the one that is under way. From any thread."""
        self._is_called.set()

    def tick(self, now: int) -> None:
        """Begins the runs that are due or requested. Raises Error of the database."""
        ticked_at = self._clock()
        if self._due_at is None:
            self._due_at = self._first(now)
        for row in self._orders.take(self._turn.scan):
            if self._may():
                self._turn.ordered(row, now, self._next(now))
            # The next run begins when this one has ended: with the old time it would misjudge for how long a worker
            # has been gone.
            now, ticked_at = now + round((self._clock() - ticked_at) * 1000), self._clock()
        if self._is_called.is_set() or self._clock() >= self._due_at:
            self._is_called.clear()
            self._due_at = self._clock() + self._rhythm.pause()
            if not self._stands():
                self._turn.due(now, self._next(now))

    def _first(self, now: int) -> float:
        first = self._began + self._rhythm.first
        last = None if self._rhythm.anew else self._ledger.last(self._turn.scan)
        if last is None:
            return first
        left = self._rhythm.every - max(0, now - last.started_at) / 1000
        return max(first, self._clock() + left)

    def _next(self, now: int) -> int:
        """Returns when the next run is due, by the wall clock (ms)."""
        due = self._clock() if self._due_at is None else self._due_at
        return now + max(0, round((due - self._clock()) * 1000))

    def _stands(self) -> bool:
        """Returns True if the scanner is paused and must not run; reads the database each time, and if it fails, True.

        Scanners that feed the pages always run: the orphan watch, when it is paused, only takes no action.
        """
        if not self._turn.scan.can_pause or self._turn.scan.looks_on:
            return False
        try:
            return bool(pause_reason(self._turn.scan))
        except Error:
            return True
