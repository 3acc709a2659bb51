"""Reads many files as one run of lines, forwards or backwards from a place, and matches each, until it is enough.

What the ledger has in segments comes in its order. What is older is merged by time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import chain, islice

from recovery.domain.logs import stack_traces
from recovery.domain.logs.sanitize import line_prefilter, sanitize_line
from recovery.domain.logs.timestamps import AHEAD
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.domain.redaction.redact import MARK
from recovery.logs.files import line_reader
from recovery.logs.files.discovery import LogFile
from recovery.logs.files.line_reader import FileLine
from recovery.logs.files.ordering import FilesView
from recovery.logs.files.positions import LogFilePosition
from recovery.logs.stream.matching import SearchDeadline

WINDOWS = 8 * 1024 * 1024  # bytes in all windows together
LEAST = 16 * 1024  # bytes of one
JITTER = 10**9  # ns that lines of one file may be in disorder
SOME = 500  # lines that are dated at once
BYTES = 2 * 1024 * 1024  # of lines that are kept for one page

Labelled = Callable[[LogFile], Mapping[str, str]]
# When, in which file, what, and the offset that is reached with it. No row: a part in which nothing can match.
Part = tuple[int, LogFile, FileLine | None, int]


class FileWalk:
    """Walk for one query. `offsets`: how far each file is taken."""

    def __init__(
        self, view: FilesView, offsets: dict[str, int], query: LogQuery, labelled: Labelled, limit: int
    ) -> None:
        self.offsets = offsets
        self.lines: list[LogLine] = []
        self.looked_at = 0
        self.reached = 0  # ns, of the line that was looked at last
        self.is_done = False
        self._view = view
        self._query = query
        self._labelled = labelled
        self._limit = limit
        self._size = 0
        self._begun = dict(offsets)  # what a reader sent as its place is any number: it may cut a line in two
        self._files = {key: file for key, file in view.files.items() if key in offsets and query.has(labelled(file))}
        self._may_match = self._sieves(query)
        self._may_match_text = self._sieves(replace(query, levels=frozenset()))

    def forwards(self, patience: SearchDeadline) -> None:
        for key in offsets_behind(self._view, self.offsets) - self._files.keys():
            self.offsets[key] = self._view.ends[key]
        self._take(chain(_merged(map(self._history, self._files.values())), self._later()), patience)

    def backwards(self, patience: SearchDeadline) -> None:
        self._take(chain(self._recent(), self._older()), patience)
        self.lines.reverse()

    def _take(self, parts: Iterator[Part], patience: SearchDeadline) -> None:
        """Takes parts until it is enough; never ends before something was read."""
        for at, file, row, offset in parts:
            self.offsets[file.key] = offset
            self.reached = at
            if row is not None:
                self.looked_at += 1
                self._judge(file, row)
            if len(self.lines) >= self._limit or self._size > BYTES or patience.is_over:
                return
        self.is_done = True

    def _sieves(self, query: LogQuery) -> dict[str, Callable[[bytes], bool]]:
        """Returns a filter for each file, for what its labels leave open."""
        left = {key: query.beside(self._labelled(file)) for key, file in self._files.items()}
        sieves = {one: line_prefilter(one) for one in set(left.values())}
        return {key: sieves[one] for key, one in left.items()}

    def _judge(self, file: LogFile, row: FileLine) -> None:
        begun = self._begun[file.key]
        if begun in (row.start, row.end) and _hides_when_whole(file, begun):
            row = row._replace(raw=MARK.encode())
        may_match = self._may_match if row.level is None else self._may_match_text
        if not may_match[file.key](row.raw):
            return
        id = str(LogFilePosition.line(row.at, file.key, row.end))
        is_revealed = self._query.is_revealed
        line = sanitize_line(
            id, row.at, row.raw, self._labelled(file), row.level, more=row.more, is_revealed=is_revealed
        )
        if self._query.matches(line):
            self.lines.append(line)
            self._size += len(line.text)

    # Forwards.

    def _history(self, file: LogFile) -> Iterator[Part]:
        yield from _between(file, self.offsets[file.key], self._view.base[file.key])

    def _later(self) -> Iterator[Part]:
        for segment in self._view.segments:
            if file := self._files.get(segment.key):
                yield from _between(file, max(segment.start, self.offsets[segment.key]), segment.end)

    # Backwards.

    def _recent(self) -> Iterator[Part]:
        for segment in reversed(self._view.segments):
            file = self._files.get(segment.key)
            if file is not None and (high := min(segment.end, self.offsets[segment.key])) > segment.start:
                yield from self._windows(file, segment.start, high, line_reader.CHUNK)

    def _older(self) -> Iterator[Part]:
        """Yields the file with the newest line first. Nothing is read of one before all others are as old as it is."""
        start = self._query.start
        files = [file for file in self._files.values() if start is None or file.changed + AHEAD >= start]
        size = max(LEAST, min(line_reader.CHUNK, WINDOWS // max(1, len(files))))
        files.sort(key=lambda file: file.key, reverse=True)
        walks = [self._windows(file, file.start, self._end(file), size) for file in files]
        heads: list[Part | None] = [None] * len(walks)
        heap = [(-file.changed - AHEAD, number) for number, file in enumerate(files)]
        heapify(heap)
        while heap:
            _, number = heappop(heap)
            if head := heads[number]:
                yield head
            heads[number] = following = next(walks[number], None)
            if following:
                heappush(heap, (-following[0], number))

    def _end(self, file: LogFile) -> int:
        """Returns the end of what was asked for, without reading all that came later."""
        high, end = min(self.offsets[file.key], self._view.base[file.key]), self._query.end
        if end is None or end > file.changed + AHEAD:
            return high
        with _Open(file) as opened:
            return line_reader.offset_at(opened, file, high, end) if opened >= 0 else high

    def _windows(self, file: LogFile, low: int, high: int, size: int) -> Iterator[Part]:
        """Yields lines newest first. A window without the text that is looked for is passed over as a whole."""
        oldest, newer = self._query.start, file.changed
        while high > low and (oldest is None or newer + JITTER >= oldest):
            with _Open(file) as opened:
                if opened < 0:
                    return
                start = line_reader.window(opened, low, high, size)
                is_empty = self._is_empty(opened, file, start, high)
                rows = islice(line_reader.rows(opened, start, high), 1 if is_empty else None)
                found = line_reader.with_times(opened, file, list(rows), newer)
            newer, high = found[0].at, start
            if is_empty:
                yield newer, file, None, start
            else:
                for row in reversed(found):
                    yield row.at, file, row, row.start

    def _is_empty(self, opened: int, file: LogFile, start: int, high: int) -> bool:
        """Returns True if nothing in a part of a file can match."""
        if high - start > line_reader.CHUNK or self._may_match[file.key](part := os.pread(opened, high - start, start)):
            return False
        if self._query.levels and stack_traces.is_continuation(
            part.partition(b"\n")[0]
        ):  # of a trace that begins before it
            return False
        self.looked_at += part.count(b"\n")
        return True


class _Open:
    """Context of an open file; below 0 when it cannot be opened any more, which the next look says."""

    def __init__(self, file: LogFile) -> None:
        try:
            self._opened = file.open()
        except OSError:
            self._opened = -1

    def __enter__(self) -> int:
        return self._opened

    def __exit__(self, *_: object) -> None:
        if self._opened >= 0:
            os.close(self._opened)


def _hides_when_whole(file: LogFile, offset: int) -> bool:
    """Returns True if an offset cuts a line that has a secret. A part of it may not show that it is one, or whose."""
    with _Open(file) as opened:
        line = line_reader.cut_line(opened, file, offset) if opened >= 0 else b""
    return bool(line) and MARK in sanitize_line("", 0, line, {}).text


def offsets_behind(view: FilesView, offsets: Mapping[str, int]) -> set[str]:
    """Returns files of which something comes after these offsets."""
    return {key for key, end in view.ends.items() if offsets.get(key, 0) < end}


def _between(file: LogFile, low: int, high: int) -> Iterator[Part]:
    if low >= high:
        return
    with _Open(file) as opened:
        if opened < 0:
            return
        found = line_reader.rows(opened, low, high)
        while some := list(islice(found, SOME)):
            for row in line_reader.with_times(opened, file, some, file.changed):
                yield row.at, file, row, row.end


def _merged(walks: Iterable[Iterator[Part]]) -> Iterator[Part]:
    """Yields the oldest first, of one moment by their keys; the order within a file is kept."""
    heap = [(head[0], head[1].key, head, walk) for walk in walks if (head := next(walk, None))]
    heapify(heap)
    while heap:
        _, key, head, walk = heappop(heap)
        yield head
        if following := next(walk, None):
            heappush(heap, (following[0], key, following, walk))
