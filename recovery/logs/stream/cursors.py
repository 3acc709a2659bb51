"""Remembers how far a reader of shipped lines has come, server by server, behind the short text that names it.

The text alone is enough to go on from (places.py), also in another process. A reader in this one is remembered with the
very ids it has had: so it loses nothing either when the clock of the store is set back and ids with it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recovery.logs.base import LogGap
from recovery.logs.stream.positions import NEVER, Id, StreamPosition, last_of, mark_of, previous
from recovery.logs.stream.store import SERVERS_LIMIT, NewerEntries, ShippedStream, StreamsHead, server_label

# Selections of servers, and the last steps of those who read one; a reader that is forgotten goes on from its text.
# Few, because what stays behind a thousand readers lies in the midst of their memory and holds it.
SELECTIONS, STEPS = 64, 16
AHEAD_MS = 1000  # an entry so far in the store's future is of before its clock was set back: no use to wait for it
LOOK_MS = 5000  # a place so old: may its stream have been cut behind it? None is cut sooner
FORGOTTEN_MS = 7 * 24 * 3600 * 1000  # a server that shipped within it is never taken off the list while its store lives
KEPT_MS = 30 * 60 * 1000  # what was shipped so long before a place that is so old is there: an hour is always kept
_NAMED = 5  # servers that a gap names
_LATELY = "-"  # in a text: something had been shipped lately
_MORE = "~"  # there is more to the place than the text says

CLOCK = LogGap("The clock of the state store went backwards: lines of this time may be missing.")
EMPTIED = LogGap("The state store was flushed: unread lines are lost.")
UNKNOWN = LogGap("This position is unknown: continuing from now.")


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """Progress of a reader. `ids`: the last entry of each server that it had whole. `spot`: the same in one order, as
    the text says it.
    """

    spot: StreamPosition
    ids: Mapping[bytes, Id] = field(default_factory=dict)
    servers: Mapping[bytes, int] = field(default_factory=dict)
    now: int = 0  # the store's clock when it was made; 0: of a text, which was not made here
    is_part: bool = False  # and the text does not say it all
    is_lately: bool = False  # but it does say that something had been shipped lately

    def after(self, server: bytes) -> Id:
        """Returns the last id that the reader had of a server. One that was not there is new, with all that it ever
        shipped; but in a list that is cut it may be an old one.
        """
        if server in self.ids:
            return self.ids[server]
        is_told = self.is_text or len(self.servers) >= SERVERS_LIMIT
        return self.spot.whole(mark_of(server)) if is_told else NEVER

    @property
    def is_text(self) -> bool:
        return not self.now

    def is_old(self, now: int) -> bool:
        return now - self.spot.ms > LOOK_MS

    @property
    def is_plain(self) -> bool:
        """Returns True if the text says it all: no id lies in the future of the store's clock."""
        return self.spot.ms <= self.now and all(ms < self.now for ms, _ in self.ids.values())


class StreamCursors:
    """Marks of the last readers, by their text and by whom they read."""

    def __init__(self) -> None:
        self._kept: OrderedDict[frozenset[str] | None, OrderedDict[str, StreamCursor]] = OrderedDict()
        self._own = secrets.token_hex(4)
        self._turn = 0

    def get(self, text: str, names: frozenset[str] | None) -> StreamCursor | None:
        """Returns the mark of a text; None when the text is no place at all."""
        steps = self._kept.get(names)
        if steps and (known := steps.get(text)):
            return known
        spot = StreamPosition.parse(text)
        return StreamCursor(spot, is_part=_MORE in text, is_lately=bool(spot.mark) or _LATELY in text) if spot else None

    def keep(self, mark: StreamCursor, names: frozenset[str] | None) -> str:
        """Keeps a mark and returns its text. One that says not all is made so that no other mark has the same."""
        text = str(mark.spot)
        if not mark.spot.mark and any(ms > mark.now - KEPT_MS for ms, _ in mark.ids.values()):
            text += _LATELY
        if not mark.is_plain:
            self._turn += 1
            text = f"{text}{_MORE}{self._own}{self._turn}"
        steps = self._kept.setdefault(names, OrderedDict())
        steps[text] = mark
        steps.move_to_end(text)
        self._kept.move_to_end(names)
        if len(steps) > STEPS:
            steps.popitem(last=False)
        if len(self._kept) > SELECTIONS:
            self._kept.popitem(last=False)
        return text


def cursor_at_head(head: StreamsHead) -> StreamCursor:
    """Returns the mark behind all that is settled at this moment."""
    ids = {server: _settled(head.streams.get(server), head.now) for server in head.servers}
    return StreamCursor(StreamPosition(head.now), ids, head.servers, head.now)


def resume(mark: StreamCursor, head: StreamsHead) -> tuple[StreamCursor, LogGap | None]:
    """Returns the mark of a reader who comes back, with what was lost meanwhile: said once, and passed over.

    Of a text alone it becomes whole. There `min`: an id that the store has given, not one that its clock stands for.
    """
    gap = flush_gap(mark, head)
    if mark.is_text:
        if mark.is_part or mark.spot.ms > head.now:
            return cursor_at_head(head), CLOCK
        ends = {server: stream.last for server, stream in head.streams.items()}
        ids = {server: min(mark.after(server), ends.get(server, NEVER)) for server in head.servers}
        mark = StreamCursor(mark.spot, ids, head.servers, head.now)
    cut = {server: stream for server, stream in head.streams.items() if _is_cut(stream, mark.after(server))}
    behind = {server: previous(stream.first) if stream.first else stream.last for server, stream in cut.items()}
    return replace(mark, ids={**mark.ids, **behind}), gap or (_dropped(cut) if cut else None)


def advance(
    mark: StreamCursor, newer: NewerEntries, had: Mapping[bytes, Id], spot: StreamPosition | None
) -> StreamCursor:
    """Returns the mark after some of what came: `had` of each server, up to `spot`. None: there is no more for now."""
    ids = {server: had.get(server, mark.after(server)) for server in newer.servers}
    highest = max((ms + 1 for ms, _ in had.values()), default=0)
    place = spot or StreamPosition(max(newer.now, mark.spot.ms, highest))
    return StreamCursor(place, ids, newer.servers, newer.now)


def flush_gap(mark: StreamCursor, seen: StreamsHead) -> LogGap | None:
    """Returns the gap if the store was flushed. Servers leave the list days after they shipped last: one that is gone
    before went with the whole store.

    A text does not say who they were; but of what was shipped lately something must have been left.
    """
    if mark.is_text:
        is_left = not mark.is_lately or seen.now - mark.spot.ms > KEPT_MS or _is_older(seen, mark.spot.ms)
        return None if is_left else EMPTIED
    if mark.now <= seen.back_at and any(
        _is_anew(stream, mark.after(server)) for server, stream in seen.streams.items()
    ):
        return EMPTIED
    gone = (at for server, at in mark.servers.items() if server not in seen.servers)
    return EMPTIED if any(seen.now - at < FORGOTTEN_MS for at in gone) else None


def _is_older(seen: StreamsHead, ms: int) -> bool:
    """Returns True if anything is there that came before this moment."""
    return any(at < ms for at in seen.servers.values()) or any(
        stream.added > stream.length or (stream.first is not None and stream.first[0] <= ms)
        for stream in seen.streams.values()
    )


def _dropped(cut: Mapping[bytes, ShippedStream]) -> LogGap:
    """Returns the gap of dropped entries. How many lines went is unknown: entries hold many."""
    names = sorted(map(server_label, cut))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    named = ", ".join(names[:_NAMED]) + more
    return LogGap(f"The oldest lines of {named} were dropped for lack of space before they were read.")


def _is_anew(stream: ShippedStream, after: Id) -> bool:
    """Returns True for another stream: nothing was ever taken out of it, and yet the entry that was had is gone."""
    is_had = NEVER < after < last_of(after[0])  # an id that the store has given
    return is_had and stream.added == stream.length and stream.first is not None and stream.first > after


def _is_cut(stream: ShippedStream, after: Id) -> bool:
    if stream.first is None:
        return stream.last > after
    return previous(stream.first) > after and stream.added > stream.length


def _settled(stream: ShippedStream | None, now: int) -> Id:
    """Returns the last id that no other can come to lie before, in any stream."""
    if stream is None:
        return NEVER
    if stream.last[0] > now + AHEAD_MS:
        return stream.last
    return min(stream.last, last_of(now - 1))
