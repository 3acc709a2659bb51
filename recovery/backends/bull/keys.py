"""The keys that only Bull has."""

from __future__ import annotations

from recovery.backends.shared.keys import Keys


class BullKeys(Keys):
    __slots__ = ()

    @property
    def paused_flag(self) -> bytes:
        """Exists while the queue is paused."""
        return self.named(b"meta-paused")

    @property
    def limited(self) -> bytes:
        """Which job waits in which group of the rate limiter."""
        return self.named(b"limiter:index")
