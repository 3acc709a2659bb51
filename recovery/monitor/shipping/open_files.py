"""Keeps a bounded number of the followed files open, so that thousands can be followed."""

from __future__ import annotations

import resource
from collections import OrderedDict

from recovery.monitor.shipping.file_tail import FileTail

MOST = 256
_SHARE = 4  # a quarter of the limit of open files


class OpenFiles:
    """Open files in order of use. The least recently used ones are closed, except those without a path any more, which
    could not be opened again.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or min(MOST, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE))
        self._open: OrderedDict[str, FileTail] = OrderedDict()

    @property
    def has_room(self) -> bool:
        return len(self._open) < self._most

    def use(self, tail: FileTail) -> None:
        """Opens the file if it is closed. Raises OSError."""
        tail.open()
        self._open[tail.key] = tail
        self._open.move_to_end(tail.key)
        for other in list(self._open.values())[: max(0, len(self._open) - self._most)]:
            if other.astray_at is None:
                self.close(other)

    def try_to(self, tail: FileTail) -> bool:
        try:
            self.use(tail)
        except OSError:
            return False
        return True

    def close(self, tail: FileTail) -> None:
        tail.close()
        self._open.pop(tail.key, None)

    def close_all(self) -> None:
        for tail in list(self._open.values()):
            self.close(tail)
