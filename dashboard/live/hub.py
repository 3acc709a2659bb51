"""Keeps the open event streams of this process, and the newest event for each of them.

Each stream has one slot for the newest event and nothing older, so a slow client costs nothing and misses only
what is out of date anyway. Publishing wakes the streams; it starts no task and no thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dashboard.live import events, session
from dashboard.live.events import StreamEnding
from dashboard.live.session import Visitor
from recovery.domain.redaction.secret_names import name_kind
from recovery.logs.stream.positions import mark_of
from recovery.logs.stream.store import labels_of
from recovery.processes import malloc
from recovery.stores import thread_pool

log = logging.getLogger(__name__)

Key = TypeVar("Key")
Answer = TypeVar("Answer")
Reader = TypeVar("Reader", bound="LiveStream")

PROCESS_LIMIT = 2000  # at some 75 KB a stream that is 150 MB; more belongs on a second web process
PERSON_LIMIT = 40  # tabs of one user: more than a person reads, less than fills the process
BEAT_SECONDS = 15.0  # below the idle limit of common proxies (nginx 60 s, some balancers 30 s)
SEND_SECONDS = 30.0  # a client that reads nothing for so long is dropped, with what is buffered for it
WATCH_TURN = 1.0  # one clock for all streams: two timers for each event were a quarter of its cost
RECHECK_TURN = 2.0  # a revoked right ends its streams within this time plus that of the query
RECHECK_PAUSE = 10.0  # after the database did not answer
LOOKUP_THREADS = 2  # sessions are looked up in these; one database connection each, closed after use
TIDY_TURNS = 8  # turns until memory is freed: shared feeds end some seconds after their last reader (feeds.py)
MANY = 100  # streams that leave within a turn: their memory is freed a while later
LINE_CACHES = (
    name_kind,
    mark_of,
    labels_of,
)  # caches of log lines to clear first; every entry keeps a page of memory in use
PARTING_SECONDS = 1.0  # for a client to receive the farewell before its connection is dropped


class LiveLimitReached(Exception):
    """Raised if a limit allows no further stream; the text says whose limit it is."""


class LiveStream:
    """Open stream: a slot for the newest event, and an asyncio.Event that wakes its writer."""

    __slots__ = (
        "_beats",
        "_bell",
        "_departed",
        "_sends",
        "_since",
        "_slot",
        "cut",
        "ending",
        "limit",
        "visitor",
    )

    def __init__(self, visitor: Visitor, cut: Callable[[], None]) -> None:
        self.visitor = visitor
        self.cut = cut  # drops the connection at once, for a client that reads nothing
        self.ending: StreamEnding | None = None
        self.limit = asyncio.timeout(None)  # hold it while writing: it ends a write that never completes
        self._slot: bytes | None = None
        self._departed = False
        self._beats = False
        self._sends = False
        self._since = time.monotonic()  # when it last began to send
        self._bell = asyncio.Event()

    def offer(self, event: bytes) -> None:
        self._slot = event
        self._bell.set()

    def end(self, ending: StreamEnding) -> None:
        """Marks the stream as ended by the server."""
        self.ending = ending
        self._bell.set()

    def depart(self) -> None:
        """Marks the stream as left by the client."""
        self._departed = True
        self._bell.set()

    @property
    def is_over(self) -> bool:
        return self._departed or self.ending is not None

    async def next(self) -> bytes | None:
        """Waits for the newest event, or a heartbeat if none came for a while; returns None when the stream is over."""
        await self._bell.wait()
        self._bell.clear()
        if self.is_over:
            return None
        event, self._slot = self._slot, None
        return event or events.KEEP_ALIVE

    async def send(self, what: Awaitable[None]) -> None:
        """Sends to a client that may never read; `watch` then ends the wait."""
        self._sends, self._since = True, time.monotonic()
        await what
        self._sends = False

    def watch(self, now: float) -> None:
        """Sends a heartbeat on an idle stream; gives up one whose client reads nothing. Called every second or so."""
        lasted = now - self._since
        if self._sends and lasted >= SEND_SECONDS and not self.limit.expired():
            self.limit.reschedule(0)
        if not self._sends and lasted >= BEAT_SECONDS:
            self._beats = True
            self._bell.set()


class Hub:
    """Registry of the open streams of this process. Only its event loop uses it."""

    def __init__(self) -> None:
        self._streams: set[LiveStream] = set()
        self._people: Counter[int] = Counter()
        self._newest: bytes | None = None
        self._lookups: ThreadPoolExecutor | None = None
        self._rechecks: ThreadPoolExecutor | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._left = 0  # streams that left in this turn
        self._tidy_in = 0  # turns until memory is freed; 0: none is to be freed
        self._closed = False

    def __len__(self) -> int:
        return len(self._streams)

    def start(self) -> None:
        self._closed = False
        self._lookups = thread_pool.start_pool(LOOKUP_THREADS, "live-session")
        # Any client can cause session lookups: ending revoked sessions must not wait behind them.
        self._rechecks = thread_pool.start_pool(1, "live-rights")
        turns = {"live-rights": self._check_for_ever(), "live-watch": self._watch_for_ever()}
        self._tasks = tuple(asyncio.create_task(turn, name=name) for name, turn in turns.items())

    async def close(self) -> None:
        """Ends every stream with a farewell, and drops those that do not receive it. May be called twice."""
        self._closed = True
        for stream in self._streams:
            stream.end(StreamEnding.RESTARTING)
        for task in self._tasks:
            task.cancel()
        deadline = time.monotonic() + PARTING_SECONDS
        while self._streams and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for stream in tuple(self._streams):
            stream.cut()
        for pool in (self._lookups, self._rechecks):
            if pool:
                pool.shutdown(wait=False, cancel_futures=True)

    def publish(self, event: bytes) -> None:
        self._newest = event
        for stream in self._streams:
            stream.offer(event)

    async def visitor(self, cookies: str) -> Visitor | None:
        """Returns the visitor of a session cookie, or None if they may not read. Queries the database in a thread."""
        key = session.key(cookies)
        if not key or self._closed:
            return None
        return await _asked(self._lookups, session.visitor, key)

    def open(self, visitor: Visitor, cut: Callable[[], None]) -> LiveStream:
        """Opens a new stream with the newest event in its slot. Raises Full."""
        self.make_sure_of_room(visitor)
        return self.admit(LiveStream(visitor, cut))

    def admit(self, stream: Reader) -> Reader:
        """Registers a stream, until `leave`."""
        self._streams.add(stream)
        self._people[stream.visitor.id] += 1
        if self._newest:
            stream.offer(self._newest)
        return stream

    def leave(self, stream: LiveStream) -> None:
        self._streams.discard(stream)
        self._left += 1
        self._people[stream.visitor.id] -= 1
        if self._people[stream.visitor.id] <= 0:
            del self._people[stream.visitor.id]

    def make_sure_of_room(self, visitor: Visitor) -> None:
        """Raises Full."""
        if self._closed:
            raise LiveLimitReached("This process is stopping.")
        if len(self._streams) >= PROCESS_LIMIT:
            raise LiveLimitReached(
                f"This process has {PROCESS_LIMIT} live pages open, its limit. Run one more web process."
            )
        if self._people[visitor.id] >= PERSON_LIMIT:
            raise LiveLimitReached(f"You have {PERSON_LIMIT} live pages open, the limit for one user. Close some tabs.")

    async def _watch_for_ever(self) -> None:
        while True:
            await asyncio.sleep(WATCH_TURN)
            self._watch(time.monotonic())

    def _watch(self, now: float) -> None:
        for stream in self._streams:
            stream.watch(now)

    async def _check_for_ever(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_TURN)
            self._tidy()
            try:
                await self._check()
            except Exception:  # any failure of the database or the session store; the next turn tries again
                log.exception("cannot re-check the sessions of live pages")
                await asyncio.sleep(RECHECK_PAUSE)

    def _tidy(self) -> None:
        left, self._left = self._left, 0
        if left >= MANY:
            self._tidy_in = TIDY_TURNS
        elif self._tidy_in:
            self._tidy_in -= 1
            if not self._tidy_in:
                for known in LINE_CACHES:
                    known.cache_clear()
                malloc.trim()

    async def _check(self) -> None:
        """Ends the streams whose session has ended or whose role has changed."""
        if not self._streams:
            return
        visitors = frozenset(stream.visitor for stream in self._streams)
        ended = await _asked(self._rechecks, session.find_endings, visitors)
        for stream in tuple(self._streams):
            if ending := ended.get(stream.visitor):
                stream.end(ending)


async def _asked(pool: ThreadPoolExecutor | None, question: Callable[[Key], Answer], key: Key) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(pool, question, key)
