"""Two clocks: a steady one for all that is measured, and the store's own for when it was.

The wall clock of a server may step, be set by hand, or be wrong. So a moment is told by the store's clock, which all
servers share: the difference to our steady clock is asked with every sample that is written.
"""

from __future__ import annotations

_JITTER = 500  # ms: a slow answer is no other clock


class Times:
    """Until the store was heard, the wall clock as it was at the start is the best that is known."""

    def __init__(self, wall: int, now: float) -> None:
        self._base = wall - round(now * 1000)

    def at(self, now: float) -> int:
        """A moment of the steady clock in ms since 1970."""
        return self._base + round(now * 1000)

    def heard(self, told: int, now: float) -> None:
        """The store's time, and when it was heard."""
        if abs(told - self.at(now)) > _JITTER:
            self._base = told - round(now * 1000)
