"""A semaphore that bounds how much work runs at once, and how much of it belongs to one holder (user, browser, token).

A holder that has used its share waits; a free slot goes to the holder that has waited longest and has a share left.
Pages, API calls, password hashes, log searches and steps of the idempotency ledger all use it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

ANY = 1 << 30


class NoFreeSlot(Exception):
    """Raised when no slot is free. `is_own`: the holder's share is used up; else there are too many of all holders."""

    def __init__(self, *, is_own: bool) -> None:
        self.is_own = is_own
        super().__init__("the share is used up" if is_own else "all places are taken")


class FairSemaphore:
    """Bounds concurrency with a share per holder; used from one event loop.

    `most`: at once, of all; `each`: of one holder; `queue`: how many may wait, of all; `seconds`: and how long.
    """

    def __init__(self, most: int, each: int, *, queue: int = ANY, seconds: float | None = None) -> None:
        self.most = most
        self.each = each
        self._queue_most = queue
        self._seconds = seconds
        self._held: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._queue: deque[tuple[str, asyncio.Future[None]]] = deque()

    def held_by(self, holder: str) -> int:
        return self._held[holder]

    @asynccontextmanager
    async def one(self, holder: str, *, waiting: int = ANY) -> AsyncIterator[None]:
        """Holds a slot. `waiting`: how many requests of `holder` may wait beyond its share. Raises NoFreeSlot."""
        give_back = await self.take(holder, waiting=waiting)
        try:
            yield
        finally:
            give_back()

    async def take(self, holder: str, *, waiting: int = ANY) -> Callable[[], None]:
        """Takes a slot. Returns the function that releases it, which may be called twice. Raises NoFreeSlot."""
        if self._held[holder] + self._waiting[holder] >= self.each + waiting:
            raise NoFreeSlot(is_own=True)
        if self._is_free(holder):
            self._held[holder] += 1
        elif len(self._queue) >= self._queue_most:
            raise NoFreeSlot(is_own=False)
        else:
            await self._wait(holder)
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._release(holder)

        return give_back

    async def _wait(self, holder: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        entry = (holder, turn)
        self._queue.append(entry)
        self._waiting[holder] += 1
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the slot was granted in the very moment of the cancellation
                self._release(holder)
            else:
                self._queue.remove(entry)
                _subtract(self._waiting, holder)
            if isinstance(error, TimeoutError):
                raise NoFreeSlot(is_own=self._held[holder] >= self.each) from None
            raise

    def _is_free(self, holder: str) -> bool:
        return self._held.total() < self.most and self._held[holder] < self.each

    def _release(self, holder: str) -> None:
        _subtract(self._held, holder)
        for entry in self._queue:
            waiter, turn = entry
            if self._is_free(waiter) and not turn.done():  # a cancelled one removes itself
                self._queue.remove(entry)
                _subtract(self._waiting, waiter)
                self._held[waiter] += 1
                turn.set_result(None)
                return


def _subtract(counter: Counter[str], holder: str) -> None:
    counter[holder] -= 1
    if counter[holder] <= 0:
        del counter[holder]
