"""Decompresses parcels of shipped lines and matches their lines: the part of reading that keeps a processor busy.

It runs in a thread beside the event loop and stops when its time is up, or when its reader has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from recovery.domain.logs import levels, line_batches, stack_traces
from recovery.domain.logs.sanitize import line_prefilter, sanitize_line
from recovery.domain.logs.types import LogLevel, LogLine, LogQuery
from recovery.logs.stream.positions import DONE, StreamPosition
from recovery.logs.stream.store import ShippedEntry

_LOOK = 16  # lines between two looks at the clock: a few ms, of the longest and worst ones a third of a second


class SearchDeadline:
    """Time limit of a search or a read. Ended early when its reader leaves."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def end(self) -> None:
        self._until = 0.0


@dataclass(frozen=True, slots=True)
class MatchRequest:
    """Request: what is looked for, how many lines of it, and for how long."""

    query: LogQuery
    limit: int
    patience: SearchDeadline


@dataclass(slots=True)
class StreamMatches:
    """Matching lines in the order of reading, and the point that was reached. `entries`: those left behind."""

    lines: list[LogLine] = field(default_factory=list)
    spot: StreamPosition | None = None
    entries: int = 0
    looked_at: int = 0
    unreadable: int = 0

    def add(self, other: StreamMatches) -> None:
        self.lines += other.lines
        self.spot = other.spot or self.spot
        self.entries += other.entries
        self.looked_at += other.looked_at
        self.unreadable += other.unreadable


class StreamMatcher:
    """Matcher of one query, for entry after entry."""

    def __init__(self, wanted: MatchRequest, had: int = 0) -> None:
        """Takes `had`: lines that were found before."""
        self._query = wanted.query
        self._limit = wanted.limit - had
        self._patience = wanted.patience
        self._sieves: dict[LogQuery, Callable[[bytes], bool]] = {}

    def forwards(self, entries: Iterable[ShippedEntry], begun: StreamPosition) -> StreamMatches:
        """Matches entries in order, without the lines of an entry that lie before the point `begun`."""
        judged = StreamMatches()
        for entry in entries:
            if self._is_enough(judged):
                break
            rows = self._rows(entry, judged)
            skipped = begun.taken if begun.is_inside(entry.id, entry.mark) else 0
            judged.spot = self._until(
                entry, judged, range(skipped, len(rows)), rows, StreamPosition(*entry.id, entry.mark, DONE)
            )
        return judged

    def backwards(self, entries: Iterable[ShippedEntry], begun: StreamPosition | None) -> StreamMatches:
        """Matches entries newest first; of an entry that the point `begun` lies in, what is before it."""
        judged = StreamMatches()
        for entry in entries:
            if self._is_enough(judged):
                break
            rows = self._rows(entry, judged)
            if begun and begun.is_inside(entry.id, entry.mark):
                rows = rows[: begun.taken]
            numbers = range(len(rows) - 1, -1, -1)
            judged.spot = self._until(entry, judged, numbers, rows, StreamPosition(*entry.id, entry.mark, 0))
        return judged

    def _is_enough(self, judged: StreamMatches) -> bool:
        """Returns True when it may stop; never before something was read: a reader that asks again must get on."""
        return len(judged.lines) >= self._limit or (judged.spot is not None and self._patience.is_over)

    def _rows(self, entry: ShippedEntry, judged: StreamMatches) -> Sequence[bytes]:
        """Returns the lines of an entry; none where it cannot match as a whole."""
        if not entry.passed and not self._may_hold(entry):
            return ()
        judged.looked_at += entry.size
        if entry.passed:
            return ()
        try:
            rows = line_batches.decompress_rows(entry.body)
        except ValueError:
            judged.unreadable += max(1, entry.size)
            return ()
        return rows.split(b"\n") if self._sieve(entry, is_told=_told(entry) is not None)(rows) else ()

    def _sieve(self, entry: ShippedEntry, *, is_told: bool) -> Callable[[bytes], bool]:
        """Returns the filter for what its labels leave open. `is_told`: its level is known without its text."""
        left = self._query.beside(entry.labels)
        left = replace(left, levels=frozenset()) if is_told else left
        found = self._sieves.get(left)
        if found is None:
            found = self._sieves[left] = line_prefilter(left)
        return found

    def _may_hold(self, entry: ShippedEntry) -> bool:
        query, told = self._query, _told(entry)
        if query.levels and told is not None and told not in query.levels:
            return False
        return (
            query.has(entry.labels)
            and (query.start is None or entry.last >= query.start)
            and (query.end is None or entry.first < query.end)
        )

    def _until(
        self, entry: ShippedEntry, judged: StreamMatches, numbers: range, rows: Sequence[bytes], end: StreamPosition
    ) -> StreamPosition:
        """Takes lines up to the end of the entry, or to where it is enough: there the next read goes on."""
        told = [_told(entry)] * len(rows)
        if rows and told[0] is None:
            told = list(stack_traces.inherited_levels([row.partition(b"\t")[2] for row in rows]))
        sieves = {is_told: self._sieve(entry, is_told=is_told) for is_told in (False, True)}
        for looked, number in enumerate(numbers):
            # Not before the first of them, or a reader that asks again would not get on.
            if looked and looked % _LOOK == 0 and (self._patience.is_over or self._is_enough(judged)):
                return replace(end, taken=number + (numbers.step < 0))
            if not sieves[told[number] is not None](rows[number]):
                continue
            line = self._line(entry, number, rows[number], told[number], judged)
            if line is None:
                continue
            judged.lines.append(line)
            if len(judged.lines) >= self._limit:
                return replace(end, taken=number + (numbers.step > 0))
        judged.entries += 1
        return end

    def _line(
        self, entry: ShippedEntry, number: int, row: bytes, told: LogLevel | None, judged: StreamMatches
    ) -> LogLine | None:
        try:
            at, raw = line_batches.unpack_line(row)
        except ValueError:
            judged.unreadable += 1
            return None
        ms, order = entry.id
        more = raw.left_out if isinstance(raw, line_batches.CutLine) else 0
        id, is_revealed = f"{ms}.{order}.{entry.mark}.{number + 1}", self._query.is_revealed
        line = sanitize_line(id, at, raw, entry.labels, told, more=more, is_revealed=is_revealed)
        return line if self._query.matches(line) else None


def _told(entry: ShippedEntry) -> LogLevel | None:
    """Returns the level that the journal knows of all its lines, whatever they say of themselves."""
    return levels.level_of_word(entry.labels.get("level", ""))
