"""Which of the followed files are open: a bounded number, so that thousands can be followed."""

from __future__ import annotations

import resource
from collections import OrderedDict

from recovery.monitor.shipping.tails import Tail

MOST = 256
_SHARE = 4  # a quarter of what the system lets us open


class Handles:
    """Those that were used longest ago are closed, but for files that have no name any more: they could not be opened
    again.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or min(MOST, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE))
        self._open: OrderedDict[str, Tail] = OrderedDict()

    @property
    def has_room(self) -> bool:
        return len(self._open) < self._most

    def use(self, tail: Tail) -> None:
        """Opens it if need be. Raises OSError."""
        tail.open()
        self._open[tail.key] = tail
        self._open.move_to_end(tail.key)
        for other in list(self._open.values())[: max(0, len(self._open) - self._most)]:
            if other.astray_at is None:
                self.close(other)

    def try_to(self, tail: Tail) -> bool:
        try:
            self.use(tail)
        except OSError:
            return False
        return True

    def close(self, tail: Tail) -> None:
        tail.close()
        self._open.pop(tail.key, None)

    def close_all(self) -> None:
        for tail in list(self._open.values()):
            self.close(tail)
