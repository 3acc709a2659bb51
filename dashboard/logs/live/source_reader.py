"""Reads one source for one stream: first the existing lines, then new ones.

In order: 1. a search of the newest lines, or of the range; none after a reconnect, which continues from its position.
2. Reads of its own, until it meets the shared feed. 3. The feed, with no task of its own any more.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dashboard.logs.live import cursor, notices
from dashboard.logs.live.cursor import LogCursorPosition
from dashboard.logs.live.encoding import (
    BATCH_BYTES,
    EncodedLines,
    FeedBatch,
    encode_batches,
    encode_lines,
    first_rows_within,
    newest_rows_within,
)
from dashboard.logs.live.feed import LogFeed
from dashboard.logs.live.feed_registry import UserFeeds
from dashboard.logs.live.notices import LogNotice, SourceFailures
from dashboard.logs.live.request import LogRequest
from recovery.errors import Missing
from recovery.logs.base import LogReader, LogResultPage

Answer = TypeVar("Answer")

BACKLOG_LINES = 500
# A stream costs 512 KB at most, even if its client reads nothing: this much waits here, for all its sources together,
# and as much again is on its way to the browser.
BACKLOG_BYTES = 256 * 1024
ROOM_BYTES = 128 * 1024  # what may wait for the browser before more is read
READ_LINES = (32, 1000)  # limits of one read, which aims at some 64 KB and begins with few
ANSWER_SECONDS = 20.0  # for one call; sources have limits of their own, far below
SEARCH_SECONDS = 5.0  # lines that are not found by then come when the user loads older lines
RANGE_SECONDS = 30.0  # longer: no live lines have to wait behind a range


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """Event without lines, such as a notice."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)


Thing = EncodedLines | ControlEvent


@dataclass(frozen=True, slots=True)
class LogBacklog:
    """Result of a search, with its lines as bytes only: as objects they take many times the memory."""

    ready: deque[tuple[EncodedLines, str]]
    place: str  # behind them
    before: str
    page: LogResultPage  # without its lines


@dataclass(frozen=True, slots=True)
class LogReadStep:
    """Result of a read: the position behind it, its last line if any, and whether nothing newer exists."""

    place: str
    last: str
    is_end: bool


class LogSourceReader:
    """Reader of one source for one stream; calls `rouse` whenever `take` has something to return."""

    def __init__(self, source: LogReader, log_request: LogRequest, feeds: UserFeeds, rouse: Callable[[], None]) -> None:
        """Raises Full."""
        self.source = source
        self._log_request = log_request
        self._feeds = feeds
        self._rouse = rouse
        self._query = log_request.onward
        self._spot: LogCursorPosition | None = log_request.spots.get(source.name)
        self.head = b'event: lines\ndata: {"g":%d,"source":%s,' % (
            log_request.g,
            json.dumps(source.name).encode("ascii"),
        )
        self.part = b""  # its part of the cursor, behind everything taken; empty without a position
        self._move(self._spot)
        self._feed: LogFeed | None = feeds.claim(source, self._query) if log_request.is_live else None
        self._troubles = SourceFailures()
        self._trouble: LogNotice | None = None  # as the browser knows it
        self._outbox: deque[tuple[Thing, LogCursorPosition | None]] = deque()
        self._held = 0
        self._room = asyncio.Event()
        self._next = -1  # number of the feed's next batch to read; below 0: not at the feed yet
        self._skip = 0
        self._is_gap_said = False
        self._dropped, self._dropped_to = 0, ""
        self._limit = READ_LINES[0]
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._feed:
            self._feed.join(self)
        self._task = asyncio.create_task(self._run(), name=f"tail-{self.source.name}")

    def stop(self) -> None:
        if self._task:
            self._task.cancel()
        if self._feed:
            self._feed.leave(self)
            self._feeds.release(self._feed)
            self._feed = None

    def take(self) -> Thing | None:
        """Returns the next event to send, and moves the cursor behind it; None if there is none for now."""
        if not self._outbox:
            return self._from_feed() if self._next >= 0 else None
        thing, spot = self._outbox.popleft()
        if isinstance(thing, EncodedLines):
            self._held -= len(thing.body)
            self._room.set()
        self._move(spot)
        return thing

    # Called by the feed.

    def arrived(self, number: int, batch: FeedBatch) -> None:
        if self._next < 0:
            return
        if self._next != number or self._outbox or self._dropped or batch.gap or batch.piece(self._query):
            self._rouse()
        else:
            self._next += 1
            self._pass(batch)

    def lost(self, number: int, batch: FeedBatch) -> None:
        if 0 <= self._next <= number:
            self._dropped += batch.count(self._query, self._skip)
            self._dropped_to = batch.place
            self._next, self._skip, self._is_gap_said = number + 1, 0, False

    def told(self, note: LogNotice) -> None:
        self._say(note)

    def _from_feed(self) -> Thing | None:
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._move(LogCursorPosition(self._dropped_to))
            return _noted(notices.dropped(count))
        while self._feed and (batch := self._feed.batch(self._next)):
            if batch.gap and not self._skip and not self._is_gap_said:
                self._is_gap_said = True
                return _noted(notices.gap(batch.gap))
            piece = batch.piece(self._query, self._skip)
            self._next, self._skip, self._is_gap_said = self._next + 1, 0, False
            self._pass(batch)
            if piece:
                return piece
        return None

    # The task.

    async def _run(self) -> None:
        while True:
            try:
                place = self._spot.place if self._spot and self._log_request.is_live else await self._backlog()
                if self._feed:
                    await self._catch_up(self._feed, place)
                else:
                    self._put(ControlEvent("end"))
            except Missing:  # the source does not know the position of the cursor any more
                self._say(notices.lost_place())
                self._spot = None
                await asyncio.sleep(self._troubles.pause())
            else:
                return

    async def _backlog(self) -> str:
        """Sends the newest lines; returns the position behind them. A range that broke off continues where it was."""
        found = await self._newest()
        is_told = self._spot is not None and self._spot.before is None
        is_empty = not found.ready
        await self._send(found.ready, None if is_told else found.before)
        if is_empty and not self._spot:
            await self._explain(found.page)
        self._say(notices.CAUGHT_UP)
        if not is_told:
            self._put(ControlEvent("older", {"before": found.before}), LogCursorPosition(found.place))
        return found.place

    async def _newest(self) -> LogBacklog:
        deadline = time.monotonic() + (SEARCH_SECONDS if self._log_request.is_live else RANGE_SECONDS)
        page = await self._search("")
        after, gap = page.after, page.gap
        while not page.lines and not page.is_end and page.before and time.monotonic() < deadline:
            self._say(notices.searching(page.reached))
            page = await self._search(page.before)
        if gap:
            self._say(notices.gap(gap))
        rows, before = newest_rows_within(page, self._share(BACKLOG_BYTES))
        shown = next((n for n, row in enumerate(rows, 1) if self._spot and row.line.id == self._spot.place), 0)
        place = after if self._log_request.is_live or not rows else rows[-1].line.id
        return LogBacklog(encode_batches(rows[shown:], place), place, before, replace(page, lines=()))

    async def _search(self, before: str) -> LogResultPage:
        query = self._log_request.query
        return await self._ask(lambda: self.source.search(query, before=before, limit=BACKLOG_LINES))

    async def _explain(self, page: LogResultPage) -> None:
        """Tells the browser why there are no lines: no such label, or the search did not go far enough back."""
        if not page.is_end and page.before:
            self._say(notices.unfinished(page.reached))
        query = self._log_request.query
        if query.labels:
            known = await self._ask(lambda: self.source.labels(query.start or 0, query.end or time.time_ns()))
            self._say(notices.no_match(query, known))

    async def _catch_up(self, feed: LogFeed, place: str) -> None:
        """Reads on its own until it meets the feed, without repeating or omitting a line."""
        last = place
        while True:
            mark = await feed.mark()
            found = feed.find(last) or feed.find(place)
            if found:
                break
            step = await self._read(place)
            place, last = step.place, step.last or last
            if step.is_end and mark.is_end and mark.number >= feed.oldest:
                found = mark.number, 0
                break
        if self._spot:
            self._say(notices.CAUGHT_UP)
            if self._spot.before is not None:
                self._put(ControlEvent("older", {"before": self._spot.before}), LogCursorPosition(place))
        self._next, self._skip = found
        self._rouse()

    async def _read(self, place: str) -> LogReadStep:
        """Reads and sends the next lines of its own query."""
        page = await self._ask(lambda: self.source.read(self._query, after=place, limit=self._limit))
        if page.gap:
            self._say(notices.gap(page.gap))
        rows = list(encode_lines(page.lines))
        kept = first_rows_within(rows, self._share(ROOM_BYTES))
        size, (least, most) = sum(row.size for row in kept), READ_LINES
        is_all = len(kept) == len(rows)
        self._limit = min(most, self._limit * 2) if is_all and size < BATCH_BYTES // 2 else max(least, self._limit // 2)
        behind = (page.after or place) if is_all else kept[-1].line.id
        step = LogReadStep(behind, kept[-1].line.id if kept else "", page.is_end and not rows and not page.gap)
        ready = encode_batches(kept, behind)
        del page, rows, kept  # the browser may be slow, and lines take many times the memory of their bytes
        await self._send(ready, self._spot.before if self._spot else None)
        return step

    def _share(self, size: int) -> int:
        """Returns the share of one source in a limit for all sources of the stream."""
        return size // max(1, len(self._log_request.sources))

    async def _ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """Calls the source until it answers; tells the browser of failures meanwhile. Raises Missing."""
        while True:
            try:
                async with self._feeds.turn(self.source), asyncio.timeout(ANSWER_SECONDS):
                    answer = await question()
            except Missing:
                raise
            except Exception as failure:  # noqa: BLE001 -- any failure: the browser is told, and it retries
                self._say(self._troubles.failed(failure))
                await asyncio.sleep(self._troubles.pause())
            else:
                self._say(self._troubles.well())
                return answer

    async def _send(self, ready: deque[tuple[EncodedLines, str]], before: str | None) -> None:
        """Queues pieces as fast as the browser takes them. `before` stays in the cursor until it was sent."""
        while ready:
            while self._held > self._share(ROOM_BYTES):
                self._room.clear()
                await self._room.wait()
            piece, place = ready.popleft()
            self._held += len(piece.body)
            self._put(piece, LogCursorPosition(place, before))

    def _say(self, note: LogNotice | None) -> None:
        """Queues a notice, unless the browser already knows it from this reader or the feed."""
        if note is None or note.is_as(self._trouble):
            return
        if note.kind == "recovered" and self._trouble is None:
            return
        if note.kind in ("trouble", "recovered"):
            self._trouble = note if note.kind == "trouble" else None
        self._put(_noted(note))

    def _put(self, thing: Thing, spot: LogCursorPosition | None = None) -> None:
        self._outbox.append((thing, spot))
        self._rouse()

    def _pass(self, batch: FeedBatch) -> None:
        if batch.place:  # no position is known after one was lost
            self.part = batch.part(self.source.name)

    def _move(self, spot: LogCursorPosition | None) -> None:
        if spot and spot.place:
            self.part = cursor.encode_part(self.source.name, spot)


def _noted(note: LogNotice) -> ControlEvent:
    return ControlEvent("note", note.values())
