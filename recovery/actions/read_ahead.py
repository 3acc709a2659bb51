"""Reads the next window of a bulk run while the outcome of the last one is written to the database."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from recovery.domain.jobs import Page

LIFE = 0.25  # seconds: an older window is read again, because what it shows is to be acted on


class _Read(NamedTuple):
    cursor: str
    begun: float
    page: Future[Page]


class ReadAhead:
    """One window at a time. The script that acts compares each job with it, so what moved since is not touched."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bulk-read")
        self._read: _Read | None = None

    def begin(self, cursor: str, read: Callable[[], Page]) -> None:
        self._read = _Read(cursor, time.monotonic(), self._thread.submit(read))

    def take(self, cursor: str) -> Page | None:
        """Returns the window that begins there; None when it was not read, or too long ago. Raises StoreError."""
        read, self._read = self._read, None
        if read is None or read.cursor != cursor or time.monotonic() - read.begun > LIFE:
            return None
        return read.page.result()

    def close(self) -> None:
        """Does not wait for a window that is still being read: its connection has a time limit of its own."""
        self._thread.shutdown(wait=False, cancel_futures=True)
