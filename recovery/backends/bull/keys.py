"""Keys that only Bull has."""

from __future__ import annotations

from recovery.backends.redis_common.keys import Keys


class BullKeys(Keys):
    __slots__ = ()

    @property
    def paused_flag(self) -> bytes:
        """Key that exists while the queue is paused."""
        return self.named(b"meta-paused")

    @property
    def limited(self) -> bytes:
        """Index of the rate limiter: which job waits in which group."""
        return self.named(b"limiter:index")
