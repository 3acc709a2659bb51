"""Keeps the time of this process, in ms since 1970: the state store's, which all processes share, advanced by a steady
clock.

The wall clock of a host may jump, so nothing is scheduled or aged by it. Scanners prove that a worker is lost by how
long they observe a job: after a jump of an hour a job would be an hour older in a moment. So a jump of the state
store's own clock is followed slowly (`SLEW`): the leader writes how far it still is from the store's clock
(`state.CLOCK`), and all other processes follow that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLEW = 0.05  # of the time that passes: an hour's jump is followed within a day, a proof of 30 s errs by 1.5 s
_JITTER = 500  # ms: a slow answer is no other clock


def steady() -> float:
    """Returns seconds since boot, suspend included; it cannot be set, and the ages of processes are in it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SharedClock:
    """Shared clock for any thread. Until the state store has answered, it counts from the wall clock at the start."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady) -> None:
        self._steady = steady
        self._base = wall() * 1000 - steady() * 1000
        self._heard_at: float | None = None

    def now(self) -> int:
        return int(self._base + self._steady() * 1000)

    def set(self, told: int) -> None:
        """Sets the time at once, for a process that has just started and has aged nothing by another time yet."""
        self._heard_at = self._steady()
        self._base = told - self._heard_at * 1000

    def follow(self, told: int) -> None:
        """Takes the shared time just read: sets the first one at once, and approaches any later one slowly."""
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
