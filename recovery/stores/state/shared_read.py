"""Shares one read between many viewers: requests for the same window within a moment get the same answer.

The first caller reads, the others wait for that one answer (also if it is an error: a dead store must not be
asked once for each tab). So 500 tabs on one queue cost the queue Redis what one does.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

LIFE = 1.0  # seconds: below the refresh of one tab, so no viewer sees an older window than without it
KEPT = 256  # windows held at most; a window is ≤ 100 rows or one job cut at 64 KB a field

T = TypeVar("T")


class SharedReads:
    """Thread-safe cache of reads; each value is made once for its key and lifetime."""

    def __init__(self, life: float = LIFE, kept: int = KEPT, clock: Callable[[], float] = time.monotonic) -> None:
        self._life = life
        self._kept = kept
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: OrderedDict[Hashable, tuple[float, Future[Any]]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value of `key`; calls `make` unless another thread just did. Raises what `make` raised."""
        answer, is_first = self._place(key)
        if is_first:
            try:
                answer.set_result(make())
            except BaseException as error:
                answer.set_exception(error)
                self._rest(key, answer)
                raise
            self._rest(key, answer)
        return cast(T, answer.result())

    def forget(self) -> None:
        """Drops all values, so that the next call reads anew."""
        with self._lock:
            self._windows.clear()

    def _place(self, key: Hashable) -> tuple[Future[Any], bool]:
        now = self._clock()
        with self._lock:
            found = self._windows.get(key)
            if found is not None and (now < found[0] or not found[1].done()):
                return found[1], False
            answer: Future[Any] = Future()
            self._windows[key] = (now + self._life, answer)
            self._windows.move_to_end(key)
            self._forget(now)
            return answer, True

    def _rest(self, key: Hashable, answer: Future[Any]) -> None:
        """Starts the lifetime once the answer is there: a slow store is not asked again the moment it has answered."""
        with self._lock:
            held = self._windows.get(key)
            if held is not None and held[1] is answer:
                self._windows[key] = (self._clock() + self._life, answer)

    def _forget(self, now: float) -> None:
        """Drops expired values, and the oldest ones above the limit."""
        for key, (until, answer) in list(self._windows.items()):
            over = len(self._windows) > self._kept
            if not over and (now < until or not answer.done()):
                break
            del self._windows[key]


windows = SharedReads()
# A queue's library as identified from its own Redis, read before actions; at most as old as a snapshot may be.
identities = SharedReads(life=30.0, kept=1024)
