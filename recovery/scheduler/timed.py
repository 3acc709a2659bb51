"""When a scanner's turn is: each so many seconds since it last began, at once when it is called, and for each order.

`tick` is called often and decides. A tick that comes late, after the machine slept or a run took long, begins one run
and not all that were missed. A new term goes on where the last one was: whoever leads for a short time only must not
put off for ever what is done every half hour.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error

from recovery.domain.mandate import May
from recovery.reads.blockers import paused_words
from recovery.scanners.acting.ledger import Ledger
from recovery.scanners.acting.turn import Turn
from recovery.scheduler.orders import Orders
from recovery.shared_clock import steady

LOOK = 0.5  # seconds between two ticks: by so much a run may be late
JITTER = 0.05  # of the interval: what begins together in many places need not stay together
_JITTER_FROM = 60.0  # seconds: more often than that it would only be unrest


@dataclass(frozen=True, slots=True)
class Rhythm:
    """`first`: seconds after the start of a term, at the earliest. `anew`: then, also when it ran a moment ago."""

    every: float
    first: float = 0.0
    anew: bool = False

    def pause(self) -> float:
        return self.every * random.uniform(1.0, 1.0 + JITTER) if self.every >= _JITTER_FROM else self.every  # noqa: S311


class Timed:
    """One thread at a time, but for `call` and `stop`."""

    def __init__(
        self,
        turn: Turn,
        rhythm: Rhythm,
        ledger: Ledger,
        orders: Orders,
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
        """A run at once, or behind the one that is under way. From any thread."""
        self._is_called.set()

    def tick(self, now: int) -> None:
        """Raises Error of the database, when it does not say what was ordered or paused."""
        ticked_at = self._clock()
        if self._due_at is None:
            self._due_at = self._first(now)
        for row in self._orders.take(self._turn.scan):
            if self._may():
                self._turn.ordered(row, now, self._next(now))
            # Whatever runs next begins when this one has ended: a look that took its time for now would misjudge
            # for how long a worker has been gone.
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
        """When it is due, by the clock on the wall."""
        due = self._clock() if self._due_at is None else self._due_at
        return now + max(0, round((due - self._clock()) * 1000))

    def _stands(self) -> bool:
        """Paused. The database is asked each time; what cannot be asked stands, unless the pages live on it."""
        if not self._turn.scan.can_pause or self._turn.scan.looks_on:
            return False
        try:
            return bool(paused_words(self._turn.scan))
        except Error:
            return True
