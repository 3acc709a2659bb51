"""Streams log lines together with the ticks that every page gets: a tab has one stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from dashboard.live import events, hub
from dashboard.live.session import Visitor
from dashboard.logs.live.encoding import EncodedLines
from dashboard.logs.live.feed_registry import FeedRegistry
from dashboard.logs.live.request import LogRequest
from dashboard.logs.live.source_reader import ControlEvent, LogSourceReader, Thing

SEND_BYTES = 64 * 1024  # pending events are sent together, up to this


class LogStream(hub.LiveStream):
    """Event stream of ticks and log lines. The id of an event is the cursor after it."""

    __slots__ = ("_has_more", "_ordered", "_tails", "log_request")

    def __init__(self, visitor: Visitor, cut: Callable[[], None], log_request: LogRequest, feeds: FeedRegistry) -> None:
        """Raises Full."""
        super().__init__(visitor, cut)
        self.log_request = log_request
        self._has_more = False  # pending events that the last send left
        self._tails: deque[LogSourceReader] = deque()
        try:
            for source in log_request.sources.values():
                self._tails.append(LogSourceReader(source, log_request, feeds.of(visitor.id), self._bell.set))
        except hub.LiveLimitReached:
            self.close()
            raise
        self._ordered = sorted(self._tails, key=_name)

    def start(self) -> None:
        for tail in self._tails:
            tail.start()

    def close(self) -> None:
        """Ends its searches, and releases its feeds."""
        for tail in self._tails:
            tail.stop()

    def offer(self, event: bytes) -> None:
        """Takes a tick without its id, which is no cursor of this stream."""
        super().offer(event.partition(b"\n")[2] if event.startswith(b"id: ") else event)

    async def next(self) -> bytes | None:
        if self._has_more:
            await asyncio.sleep(0)  # a stream that always has pending events must not block the others
        while not self.is_over:
            if self._has_more or self._bell.is_set():
                self._bell.clear()
                beats, self._beats = self._beats, False
                if event := self._due() or (events.KEEP_ALIVE if beats else b""):
                    return event
            await self._bell.wait()
        return None

    def _due(self) -> bytes:
        parts = []
        if self._slot:
            parts.append(self._id() + self._slot)
            self._slot = None
        size, quiet = 0, 0
        self._has_more = bool(self._tails)
        while self._has_more and size < SEND_BYTES:
            tail = self._tails[0]
            thing = tail.take()
            quiet = 0 if thing else quiet + 1
            self._has_more = quiet < len(self._tails)
            self._tails.rotate(-1)
            if thing:
                parts.append(self._event(tail, thing))
                size += len(parts[-1])
        return b"".join(parts)

    def _event(self, tail: LogSourceReader, thing: Thing) -> bytes:
        if isinstance(thing, EncodedLines):
            return b"%s%s%s}\n\n" % (self._id(), tail.head, thing.body)
        return self._id() + _event(thing, self.log_request.g, tail.source.name)

    def _id(self) -> bytes:
        """Returns the `id:` line of an event: the cursor over all sources."""
        cursor = b"&".join([tail.part for tail in self._ordered if tail.part])
        return b"id: %s\n" % cursor if cursor else b""


def _event(said: ControlEvent, g: int, source: str) -> bytes:
    return events.event(said.kind, {"g": g, "source": source, **said.values})


def _name(tail: LogSourceReader) -> str:
    return tail.source.name
