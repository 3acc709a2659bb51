"""Remembers what has come of one query, for all its readers here: how far, and which lines came late.

Senders are seconds behind each other, so a line may come with a moment that was read already. A reader gets it
behind the point to which all had been read when it came (its `head`), and its place says so. So the order in which
lines are handed out is the same for every reader: by their own ns, and late ones in front of their head's ns.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge

from recovery.domain.logs.types import LogQuery
from recovery.logs.loki.batches import LokiBatch
from recovery.logs.loki.client import LokiEntry
from recovery.logs.loki.positions import Key, LokiPoint, LokiPosition, behind

LATE_NS = 60 * 10**9  # how much later than another a line may come, and is still told to those who read along
LOOKED_AT_AGAIN = 1000  # lines, at most: at more in a minute the last ones are looked at alone
LATE_KEPT = 2000  # late lines, for readers that are behind
_KEPT_BYTES = 1024 * 1024  # of the last batch
KEPT = 64  # questions

Step = tuple[int | None, LokiEntry]  # a line; late ones with the head that they are behind


@dataclass(slots=True)
class LokiArrivals:
    """Lines of one query so far. All before `head` has been read; from `since` on, every line that came is `seen`."""

    head: int
    since: int
    last: LokiBatch | None = (
        None  # of what was read last, while it is not too large: all who read along take it from here
    )
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one looks for all
    _is_begun: bool = False
    _seen: dict[Key, None] = field(default_factory=dict)
    _late: OrderedDict[Key, tuple[int, LokiEntry]] = field(default_factory=OrderedDict)

    @classmethod
    def begun(cls, at: int) -> LokiArrivals:
        return cls(at, at)

    @property
    def look_from(self) -> int:
        """Returns where a read begins that may find late lines. The first one learns what is there already."""
        return self.since if self._is_begun else max(0, self.head - LATE_NS)

    @property
    def looked_at_again(self) -> int:
        return len(self._seen) if self._is_begun else LOOKED_AT_AGAIN

    def add(self, batch: LokiBatch) -> LokiBatch:
        """Adds what was read from `look_from`, or from `head`, on. Returns what is new of it, but for late lines."""
        if not self._is_begun:
            self._is_begun, self.since = True, min(self.since, batch.start)
        else:
            for entry in batch.entries:
                if entry.at < self.head and entry.key not in self._seen:
                    self._late[entry.key] = (self.head, entry)
        entries = _from(batch.entries, self.head)
        self._seen.update(dict.fromkeys(entry.key for entry in batch.entries))
        new = replace(batch, entries=entries, start=max(batch.start, self.head))
        self.last = new if sum(len(entry.text) for entry in entries) <= _KEPT_BYTES else None
        self.head = max(self.head, batch.end)
        self._forget()
        return new

    def knows(self, entry: LokiEntry) -> bool:
        """Returns True if it is handed out at its own ns: it is no late one, nor one that will be when it is met."""
        if entry.key in self._late:
            return False
        return not self.since <= entry.at < self.head or entry.key in self._seen

    def is_before(self, entry: LokiEntry, head: int) -> bool:
        """Returns True if it is handed out before that head, which was this one's a moment ago; late or not."""
        if entry.key in self._late:
            return self._late[entry.key][0] < head
        return not self.since <= entry.at < self.head or entry.key in self._seen

    def steps(self, batch: LokiBatch, begun: LokiPosition) -> Iterator[Step]:
        """Yields what lies behind a place up to the end of a batch, in the order that is the same for all."""
        own = (
            ((entry.at, 1), (None, entry)) for entry in entries_behind(batch.entries, begun.read) if self.knows(entry)
        )
        for _, step in merge(own, self._late_of(begun, batch.end), key=lambda one: one[0]):
            yield step

    def _late_of(self, begun: LokiPosition, end: int) -> Iterable[tuple[tuple[int, int], Step]]:
        start, skipped = begun.read.at, begun.is_late
        for head, entry in tuple(self._late.values()):
            if head == start and skipped:
                skipped = entry.key != begun.point.key
            elif start + (not begun.read.is_bare) <= head < end:
                yield (head, 0), (head, entry)

    def _forget(self) -> None:
        since = max(self.since, self.head - LATE_NS)
        if len(self._seen) > LOOKED_AT_AGAIN:
            moments = sorted(at for at, _, _ in self._seen)
            since = max(since, moments[-LOOKED_AT_AGAIN - 1] + 1)
        if since > self.since:
            self.since = since
            self._seen = {key: None for key in self._seen if key[0] >= since}
        while len(self._late) > LATE_KEPT:
            self._late.popitem(last=False)


class ArrivalsCache:
    """Cache of the arrivals of the last queries."""

    def __init__(self) -> None:
        self._kept: OrderedDict[LogQuery, LokiArrivals] = OrderedDict()

    def get(self, question: LogQuery) -> LokiArrivals | None:
        return self._kept.get(question)

    def keep(self, question: LogQuery, arrivals: LokiArrivals) -> LokiArrivals:
        self._kept[question] = arrivals
        self._kept.move_to_end(question)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return arrivals


def place_of(step: Step) -> LokiPosition:
    """Returns the place behind a line, which is its id."""
    head, entry = step
    return behind(entry.key, None if head is None else LokiPoint(head))


def entries_behind(entries: Sequence[LokiEntry], point: LokiPoint) -> Sequence[LokiEntry]:
    """Returns lines behind a point. When its own line is not there any more, those of its stream count as behind it."""
    entries = _from(entries, point.at)
    if point.is_bare:
        return entries
    for number, entry in enumerate(entries):
        if entry.at > point.at or entry.stream > point.stream:
            break
        if entry.key == point.key:
            return entries[number + (not point.is_front) :]
    return [entry for entry in entries if entry.at > point.at or entry.stream >= point.stream]


def entries_before(entries: Sequence[LokiEntry], point: LokiPoint) -> Sequence[LokiEntry]:
    """Returns the lines before a point."""
    return entries[: len(entries) - len(entries_behind(entries, point))]


def _from(entries: Sequence[LokiEntry], at: int) -> Sequence[LokiEntry]:
    return entries[bisect_left(entries, at, key=lambda entry: entry.at) :]
