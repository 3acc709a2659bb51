"""Remembers in which order lines came, as this process saw the files grow: the same order for all readers.

What was there at the first look is ordered by time. What came later is a list of segments, each a part of one file:
so a line that is written late, with an old timestamp, is behind those that were read before. When no reader has
looked for a while it begins anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.logs.files import line_reader
from recovery.logs.files.discovery import FileSnapshot, LogFile, LogRoots

STALE = 3.0  # seconds between two looks after which no reader counts on the order of the segments
SEGMENTS = 2000  # kept; what lies before them is ordered by time
GONE = 2000  # files that are remembered when they are not there any more
COPYING = 10 * 10**9  # ns in which a copy may still grow to what its original has
TAIL = 64  # bytes before the end of what is known, by which a copy is told


@dataclass(frozen=True, slots=True)
class FileSegment:
    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FilesView:
    """State of the files at one look. `base`: where the segments of a file begin. `gone`: how far files that are not
    there any more went. `copies`: how much of a file is a copy of what another one had.
    """

    seen: FileSnapshot
    ends: Mapping[str, int]
    base: Mapping[str, int]
    segments: tuple[FileSegment, ...] = ()
    gone: Mapping[str, int] = field(default_factory=dict)
    copies: Mapping[str, int] = field(default_factory=dict)
    now: int = 0

    @property
    def files(self) -> Mapping[str, LogFile]:
        return self.seen.files

    @property
    def newest_first(self) -> list[str]:
        return sorted(self.files, key=lambda key: -self.files[key].changed)


class ArrivalOrder:
    """Order of lines over all files. For any thread."""

    def __init__(self, roots: LogRoots) -> None:
        self._roots = roots
        self._lock = threading.Lock()
        self._view = FilesView(FileSnapshot(), {}, {})
        self._tails: dict[str, bytes] = {}
        self._copies: dict[str, int] = {}
        self._looked_at = -STALE
        self.took = 0.0  # seconds, the last look

    def look(self) -> FilesView:
        with self._lock:
            begun = time.monotonic()
            is_new = begun - self._looked_at > STALE
            self._view = self._next(self._roots.look(), time.time_ns(), is_new=is_new)
            self._looked_at = time.monotonic()
            self.took = self._looked_at - begun
            return self._view

    def _next(self, seen: FileSnapshot, now: int, *, is_new: bool) -> FilesView:
        last = self._view
        ends: dict[str, int] = {}
        base = dict(last.base)
        segments = [] if is_new else list(last.segments)
        for key in sorted(seen.files, key=lambda key: (seen.files[key].changed, seen.files[key].label)):
            file = seen.files[key]
            begun = self._begun(file, now)
            if begun is None:
                continue
            if begun < last.ends.get(key, 0):
                segments = [one for one in segments if one.key != key]
                base[key] = begun
            ends[key] = self._end(file, begun, now)
            base.setdefault(key, begun)
            if is_new:
                base[key] = ends[key]
            elif ends[key] > begun:
                segments.append(FileSegment(key, begun, ends[key]))
        for old in segments[: max(0, len(segments) - SEGMENTS)]:
            base[old.key] = old.end
        gone = {key: end for key, end in [*last.gone.items(), *last.ends.items()][-GONE:] if key not in ends}
        self._tails = {key: tail for key, tail in self._tails.items() if key in ends}
        self._copies = {key: end for key, end in self._copies.items() if key in ends}
        kept = tuple(one for one in segments[-SEGMENTS:] if one.key in ends)
        return FilesView(seen, ends, {key: base[key] for key in ends}, kept, gone, dict(self._copies), now)

    def _begun(self, file: LogFile, now: int) -> int | None:
        """Returns how far it was known; for a copy, how far its original was. None: it may be one, and is left alone.

        One that is shorter than it was begins anew, although it begins with the same line as before.
        """
        known = self._view.ends.get(file.key)
        if known is not None:
            return known if known <= file.size else file.start
        for key, end in self._view.ends.items():
            original = self._view.files[key]
            if original.head != file.head or end <= file.start or key not in self._tails:
                continue
            if file.size < end and now - file.changed < COPYING:
                return None
            if file.size >= end and _tail(file, end) == self._tails[key]:
                self._copies[file.key] = end
                return end
        return file.start

    def _end(self, file: LogFile, low: int, now: int) -> int:
        if file.size == low and file.key in self._tails:
            return low
        try:
            opened = file.open()
        except OSError:
            return low
        try:
            end = line_reader.ended(opened, file, low, now)
            self._tails[file.key] = os.pread(opened, TAIL, max(0, end - TAIL))[: min(TAIL, end)]
        finally:
            os.close(opened)
        return end


def _tail(file: LogFile, end: int) -> bytes:
    try:
        opened = file.open()
    except OSError:
        return b""
    try:
        return os.pread(opened, min(TAIL, end), max(0, end - TAIL))
    finally:
        os.close(opened)
