"""Converts times of the steady clock, by which samples are taken, into times of the state store's clock.

The wall clock of a server may step, be set by hand, or be wrong. So times are those of the store's clock, which all
servers share: the difference to our steady clock is measured with every sample that is written.
"""

from __future__ import annotations

_JITTER = 500  # ms: a slow answer is no other clock


class StoreClock:
    """Clock of the store. Until the store has answered, the wall clock at the start is used."""

    def __init__(self, wall: int, now: float) -> None:
        self._base = wall - round(now * 1000)

    def at(self, now: float) -> int:
        """Returns a time of the steady clock in ms since 1970."""
        return self._base + round(now * 1000)

    def heard(self, told: int, now: float) -> None:
        """Takes the store's time, read at `now` of the steady clock."""
        if abs(told - self.at(now)) > _JITTER:
            self._base = told - round(now * 1000)
