"""A stream of log lines, with the ticks of every page in between: a tab has one stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from dashboard.live import events, hub
from dashboard.live.asking import Wish
from dashboard.live.feeds import Feeds
from dashboard.live.packing import Piece
from dashboard.live.session import Visitor
from dashboard.live.tail import Said, Tail, Thing

SEND_BYTES = 64 * 1024  # what is due goes out together, up to this


class LogStream(hub.Stream):
    """`next` gives ticks and lines as they come. Each event with an id says how far the reader is once it has it."""

    __slots__ = ("_has_more", "_ordered", "_tails", "wish")

    def __init__(self, visitor: Visitor, cut: Callable[[], None], wish: Wish, feeds: Feeds) -> None:
        """Raises Full."""
        super().__init__(visitor, cut)
        self.wish = wish
        self._has_more = False  # than went out the last time
        self._tails: deque[Tail] = deque()
        try:
            for source in wish.sources.values():
                self._tails.append(Tail(source, wish, feeds.of(visitor.id), self._bell.set))
        except hub.Full:
            self.close()
            raise
        self._ordered = sorted(self._tails, key=_name)

    def start(self) -> None:
        for tail in self._tails:
            tail.start()

    def close(self) -> None:
        """Its searches end, and the feeds it follows are given back."""
        for tail in self._tails:
            tail.stop()

    def offer(self, event: bytes) -> None:
        """A tick comes with an id of its own, which is none of ours."""
        super().offer(event.partition(b"\n")[2] if event.startswith(b"id: ") else event)

    async def next(self) -> bytes | None:
        if self._has_more:
            await asyncio.sleep(0)  # a reader that always has something due must not keep the others waiting
        while not self.is_over:
            if self._has_more or self._bell.is_set():
                self._bell.clear()
                beats, self._beats = self._beats, False
                if event := self._due() or (events.BEAT if beats else b""):
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

    def _event(self, tail: Tail, thing: Thing) -> bytes:
        if isinstance(thing, Piece):
            return b"%s%s%s}\n\n" % (self._id(), tail.head, thing.body)
        return self._id() + _event(thing, self.wish.g, tail.source.name)

    def _id(self) -> bytes:
        """How far the reader is in all sources, as the last line that is put before an event."""
        cursor = b"&".join([tail.part for tail in self._ordered if tail.part])
        return b"id: %s\n" % cursor if cursor else b""


def _event(said: Said, g: int, source: str) -> bytes:
    return events.event(said.kind, {"g": g, "source": source, **said.values})


def _name(tail: Tail) -> str:
    return tail.source.name
