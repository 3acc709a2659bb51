"""Reads shipped lines backwards from a point, in the one order of all servers: fetched bit by bit, bounded by bytes.

Of a range that is over, what was shipped in its time comes first, and behind all of it what was shipped late, as after
an hour in which the store was away: that may be anywhere up to now, and a search must not begin with going through it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from recovery.domain.logs.types import LogQuery
from recovery.logs.stream.positions import Id, StreamPosition, last_of, mark_of, previous
from recovery.logs.stream.store import Row, ShippedEntry, StreamStore, share

BYTES_AT_ONCE = 1024 * 1024  # compressed, over all servers: some 50,000 lines, and a few ms of the store's time
FIRST = 32  # entries asked for before it is known how large they are
MOST = 2048  # and when they are small
_ENTRY = 200  # bytes of one at least, with its fields
# Before a moment nothing is looked for that was shipped so long before it: clocks of servers are not that far ahead.
AHEAD_MS = 10 * 60 * 1000
LATE_MS = 10 * 60 * 1000  # what is shipped so long behind a moment comes late: a monitor that can ships within a second
_NS = 1_000_000  # in a millisecond

Found = Mapping[bytes, Sequence[Row]]  # of each server, newest first
Sifted = Callable[[Found], Awaitable[Mapping[bytes, Sequence[ShippedEntry]]]]

_ORDER = attrgetter("order")


class StreamWalk(Protocol):
    async def some(self) -> Sequence[ShippedEntry]:
        """Returns the next entries; none when there are no more."""


class ChainedWalks:
    """Chain of walks, read one after the other."""

    def __init__(self, *walks: StreamWalk) -> None:
        self._walks = walks

    async def some(self) -> Sequence[ShippedEntry]:
        for walk in self._walks:
            if found := await walk.some():
                return found
        return ()


def walk_for(
    shipped: StreamStore, sifted: Sifted, query: LogQuery, ends: Mapping[bytes, Id], spot: StreamPosition | None
) -> StreamWalk:
    """Returns the walk through what a query may find, from the newest on or from a place. `ends`: last id of each
    server.
    """
    oldest = 0 if query.start is None else max(0, query.start // _NS - AHEAD_MS)
    begin = {server: spot.touched(mark_of(server)) for server in ends} if spot else ends
    border = _border(query)
    if border is None:
        return BackwardReader(shipped, sifted, begin, oldest)
    if spot and is_late(spot, query):
        return BackwardReader(shipped, sifted, begin, border + 1)
    in_time = {server: min(id, last_of(border)) for server, id in begin.items()}
    return ChainedWalks(
        BackwardReader(shipped, sifted, in_time, oldest), BackwardReader(shipped, sifted, ends, border + 1)
    )


def is_late(spot: StreamPosition, query: LogQuery) -> bool:
    """Returns True if a search has gone through all that was shipped in the time of its range."""
    border = _border(query)
    return border is not None and spot.ms > border


def _border(query: LogQuery) -> int | None:
    return None if query.end is None else query.end // _NS + LATE_MS


class BackwardReader:
    """Walk backwards from `ends`, an id of each server. Nothing is read that was shipped before `oldest` (ms)."""

    def __init__(self, shipped: StreamStore, sifted: Sifted, ends: Mapping[bytes, Id], oldest: int) -> None:
        self._shipped = shipped
        self._sifted = sifted
        self._next = dict(ends)  # of those that may have more
        self._waiting: dict[bytes, deque[ShippedEntry]] = {server: deque() for server in ends}
        self._oldest = oldest
        self._count = FIRST

    async def some(self) -> Sequence[ShippedEntry]:
        while not (found := self._certain()) and self._next:
            await self._fetch()
        return found

    async def _fetch(self) -> None:
        """Fetches more of the servers that hold up the others, and of all that soon would."""
        count = share(self._count, len(self._waiting))
        asked = {server: id for server, id in self._next.items() if _count(self._waiting[server]) <= count // 2}
        found = await self._shipped.older(asked, self._oldest, count)
        for server, entries in (await self._sifted(found)).items():
            self._waiting[server].extend(entries)
            if len(found[server]) < count:
                del self._next[server]
            else:
                self._next[server] = previous(entries[-1].id)
        self._learn([row for rows in found.values() for row in rows])

    def _learn(self, rows: Sequence[Row]) -> None:
        if rows:
            size = _ENTRY + sum(len(fields[-1]) for _, fields in rows) / len(rows)  # the body is the last
            self._count = max(1, min(int(BYTES_AT_ONCE / size), MOST, self._count * 4))

    def _certain(self) -> Sequence[ShippedEntry]:
        """Returns entries down to the first server that is still to be asked for what may lie between the rest."""
        if any(not self._waiting[server] for server in self._next):
            return ()
        floors = [self._waiting[server][-1].order for server in self._next]
        floor = max(floors, default=None)
        found = []
        for waiting in self._waiting.values():
            while waiting and (floor is None or waiting[0].order >= floor):
                found.append(waiting.popleft())
        return sorted(found, key=_ORDER, reverse=True)


def _count(waiting: Iterable[ShippedEntry]) -> int:
    return sum(entry.passed or 1 for entry in waiting)
