"""Backoff for a store that fails: a pause that grows, with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds


@dataclass(slots=True)
class ShippingBackoff:
    pause: float = 0.0
    try_at: float = 0.0
    told: str = ""  # why the last one failed; "" when it did not

    def failed(self, reason: str, now: float) -> bool:
        """Sets the next pause; returns True for the first failure in a row."""
        self.pause = min(max(SHORTEST_PAUSE, self.pause * 2), LONGEST_PAUSE)
        self.try_at = now + self.pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, guards nothing
        is_new, self.told = not self.told, reason
        return is_new

    def succeeded(self) -> bool:
        """Resets the pause; returns True if the last attempt had failed."""
        is_back = bool(self.told)
        self.pause, self.try_at, self.told = 0.0, 0.0, ""
        return is_back
