"""The time of this process in ms since 1970: that of the state store, which all processes share, counted on by a clock
that nobody sets.

The wall clock of a host may jump, so nothing is planned or aged by it. What the scanners prove they prove by how long
they saw it: after a jump of an hour a job would be an hour older in a moment. So a jump of the state store's own clock
is followed slowly (`SLEW`): whoever leads writes how far it is from the store's clock still (`state.CLOCK`), and all
others go by that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLEW = 0.05  # of the time that passes: an hour's jump is followed within a day, a proof of 30 s errs by 1.5 s
_JITTER = 500  # ms: a slow answer is no other clock


def steady() -> float:
    """Seconds since the machine started, also those that it slept. Nobody sets it; the ages of processes are in it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SharedClock:
    """From any thread. Until a store was heard, the wall clock as it was at the start is the best that is known."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady) -> None:
        self._steady = steady
        self._base = wall() * 1000 - steady() * 1000
        self._heard_at: float | None = None

    def now(self) -> int:
        return int(self._base + self._steady() * 1000)

    def set(self, told: int) -> None:
        """For a process that begins anew: nothing that it goes by has been aged by another time."""
        self._heard_at = self._steady()
        self._base = told - self._heard_at * 1000

    def follow(self, told: int) -> None:
        """The shared time, just heard. The first one is taken as it is, any other is approached."""
        if self._heard_at is None:
            self.set(told)
            return
        at, before = self._steady(), self._heard_at
        self._heard_at = at
        ahead, most = told - (self._base + at * 1000), (at - before) * 1000 * SLEW
        if abs(ahead) > _JITTER:
            self._base += max(-most, min(most, ahead))


ours = SharedClock()
now = ours.now
