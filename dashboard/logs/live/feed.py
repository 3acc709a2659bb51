"""Reads a log source once for all its readers: one task polls it, encodes each line once, and keeps the newest lines.

The lines are kept in a ring of batches, bounded by bytes. Each reader goes through it at its own pace and holds only
its position; a reader that is too slow finds that its next batch is gone, and is told how many of its lines that were.

A reader that comes from its own search, or from a broken connection, has to find its place in the ring. Places
cannot be compared, so it goes by what is certain: the id of a line that both have; or, when nothing is newer than its
place, a read of the feed that began after that place was known and met the end of the source too.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from dashboard.logs.live.encoding import FeedBatch, encode_lines, split_into_batches
from dashboard.logs.live.notices import LogNotice, SourceFailures
from recovery.domain.logs.types import LogQuery
from recovery.errors import Missing
from recovery.logs.base import LogGap, LogReader, LogResultPage

RING_BYTES = 4 * 1024 * 1024
READ_LINES = 1000
READ_SECONDS = 20.0  # a source has limits of its own, far below; this one is the last resort
FAST_READS = 4  # while lines come, and LIVELY paces after, a source is read so many times as often as its pace says
LIVELY = 8  # paces
EASE = 0.5  # rest for this share of the time that the last event took for all readers: for a thousand 80 ms
LOST = LogGap("The read position of this source was lost. Reading continues from now; lines in between may be missing.")
WARM_BATCHES = 16  # newest batches whose encoded pieces are kept, because readers will ask for them


class FeedReader(Protocol):
    def arrived(self, number: int, batch: FeedBatch) -> None:
        """Called when a new batch is in the ring."""

    def lost(self, number: int, batch: FeedBatch) -> None:
        """Called when a batch leaves the ring."""

    def told(self, note: LogNotice) -> None: ...


@dataclass(frozen=True, slots=True)
class FeedMark:
    """Number of the next batch after one read. `is_end`: that read found nothing newer in the source."""

    number: int
    is_end: bool


class LogFeed:
    """Feed of one source and one tap (the filter that the source applies); used on one event loop."""

    def __init__(self, source: LogReader, tap: LogQuery) -> None:
        self.source = source
        self.tap = tap
        self.claims = 0  # streams that are, or will be, readers
        self.number = 0  # of the next batch
        self._ring: deque[FeedBatch] = deque()
        self._weight = 0
        self._readers: dict[FeedReader, None] = {}
        self._place = ""
        self._troubles = SourceFailures()
        self._waiting: list[asyncio.Future[FeedMark]] = []
        self._wanted = asyncio.Event()
        self._lively_until = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def oldest(self) -> int:
        return self.number - len(self._ring)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"feed-{self.source.name}")

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait((self._task,))
        for future in self._waiting:
            future.cancel()

    def batch(self, number: int) -> FeedBatch | None:
        """Returns the batch of this number, or None if it is not read yet or no longer kept."""
        return self._ring[number - self.oldest] if self.oldest <= number < self.number else None

    def find(self, id: str) -> tuple[int, int] | None:
        """Returns where to continue behind a line: the number of a batch, and how many of its lines to skip."""
        for number in range(self.number - 1, self.oldest - 1, -1):
            batch = self._ring[number - self.oldest]
            if batch.place == id:
                return number + 1, 0
            if skip := batch.behind(id):
                return number, skip
        return None

    async def mark(self) -> FeedMark:
        """Waits for a read that begins from now on, and returns its mark."""
        future: asyncio.Future[FeedMark] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._wanted.set()
        return await future

    def join(self, reader: FeedReader) -> None:
        self._readers[reader] = None
        if self._troubles.note:
            reader.told(self._troubles.note)

    def leave(self, reader: FeedReader) -> None:
        self._readers.pop(reader, None)

    async def _run(self) -> None:
        while True:
            asked, self._waiting = self._waiting, []
            try:
                async with asyncio.timeout(READ_SECONDS):
                    page = await self._read()
                begun = time.monotonic()
                await self._take(page)
            except Exception as failure:  # noqa: BLE001 -- any failure: readers are told, and reading continues
                self._waiting = asked + self._waiting
                self._tell(self._troubles.failed(failure))
                await asyncio.sleep(self._troubles.pause())
                continue
            self._tell(self._troubles.well())
            for future in asked:
                if not future.done():
                    future.set_result(FeedMark(self.number, page.is_end))
            await self._rest(page, time.monotonic() - begun)

    async def _read(self) -> LogResultPage:
        try:
            return await self.source.read(self.tap, after=self._place, limit=READ_LINES)
        except Missing:  # the source does not know this position any more
            self._place = ""
            return LogResultPage(gap=LOST)

    async def _take(self, page: LogResultPage) -> None:
        self._place = page.after or self._place
        for batch in split_into_batches(encode_lines(page.lines), self._place, page.gap):
            self._keep(batch)
            await asyncio.sleep(0)  # let all readers run

    async def _rest(self, page: LogResultPage, took: float) -> None:
        """Waits until the next read is due, or until a joining reader asks for one."""
        pace, now = self.source.pace, time.monotonic()
        if page.lines:
            self._lively_until = now + pace * LIVELY
        pause = max(pace / FAST_READS - took, took * EASE) if now < self._lively_until else pace
        if not page.is_end:
            pause = 0.0
        if pause and not self._waiting:
            self._wanted.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                return
        await asyncio.sleep(0)

    def _keep(self, batch: FeedBatch) -> None:
        number, self.number = self.number, self.number + 1
        self._ring.append(batch)
        self._weight += batch.weight
        while self._weight > RING_BYTES and len(self._ring) > 1:
            self._drop()
        if len(self._ring) > WARM_BATCHES:
            self._ring[-WARM_BATCHES - 1].forget()
        for reader in tuple(self._readers):
            reader.arrived(number, batch)

    def _drop(self) -> None:
        number, batch = self.oldest, self._ring[0]
        for reader in tuple(self._readers):
            reader.lost(number, batch)
        self._ring.popleft()
        self._weight -= batch.weight

    def _tell(self, note: LogNotice | None) -> None:
        if note:
            for reader in tuple(self._readers):
                reader.told(note)
