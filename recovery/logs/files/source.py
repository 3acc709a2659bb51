"""Source of files: answers the contract (logs/base.py) in threads, for a file cannot be awaited.

Only what is under the roots is read (finding.py). What is kept of it is how far each file was seen to go (ledger.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from recovery.config.logs import LogSource
from recovery.domain.logs.timestamps import AHEAD
from recovery.domain.logs.types import LogQuery
from recovery.errors import AccessDenied, Missing
from recovery.logs.base import LogGap, LogLabels, LogResultPage
from recovery.logs.files import line_reader
from recovery.logs.files.discovery import HALF, LogFile, LogRoots, problems_text
from recovery.logs.files.merge import FileWalk, offsets_behind
from recovery.logs.files.ordering import ArrivalOrder, FilesView
from recovery.logs.files.positions import LINE, PART, LogFilePosition, LogFilePositions
from recovery.logs.stream.matching import SearchDeadline
from recovery.stores import thread_pool

# -- resume
# Finds, from a place, the offset in each file as they lie there now, and what was lost on the way.


UNKNOWN = "This log position is unknown."
NAMED = 5  # files in one sentence


def resume_offsets(place: LogFilePosition, view: FilesView) -> tuple[dict[str, int], LogGap | None]:
    """Returns offsets and what was lost. Raises Missing for a line that is not there any more."""
    if place.kind == LINE:
        return _behind(place, view), None
    offsets: dict[str, int] = {}
    lost: list[str] = []
    for key, offset in place.offsets.items():
        file = _now(key, offset, place, view)
        if file is not None:
            offsets[file.key] = offset
        elif why := _loss(key, offset, view):
            lost.append(why)
    for key, file in view.files.items():
        if key not in offsets and key in view.ends:
            start = view.copies.get(key, file.start)
            offsets[key] = _older(file, view.ends[key], place.at) if place.kind == PART else start
    return offsets, LogGap(_told(lost)) if lost else None


def _now(key: str, offset: int, place: LogFilePosition, view: FilesView) -> LogFile | None:
    """Returns the file itself, or the copy that was made of it before it was truncated."""
    file = view.files.get(key)
    if file is not None:
        return file if offset <= file.size else None
    heirs = (one for one in view.files.values() if one.head == key[HALF:] and one.key not in place.offsets)
    return next((one for one in heirs if one.size >= offset), None)


def _loss(key: str, offset: int, view: FilesView) -> str:
    """Returns words for what may be missing; "" when all of it was read."""
    if key[:HALF] in view.seen.inodes:
        label = next((file.label for file in view.files.values() if file.inode == key[:HALF]), "A file")
        return f"{label} was truncated: its last lines may be missing."
    if view.gone.get(key) == offset:
        return ""
    return "A file is gone, perhaps before it was read to its end."


def _told(lost: Iterable[str]) -> str:
    different = list(dict.fromkeys(lost))
    more = len(different) - NAMED
    return " ".join(different[:NAMED]) + (f" And {more} more." if more > 0 else "")


def _behind(place: LogFilePosition, view: FilesView) -> dict[str, int]:
    """Returns the offsets behind one line, in the order of the ledger."""
    [(asked, end)] = place.offsets.items()
    file = _now(asked, end, LogFilePosition(0), view)
    if file is None or not _ends_line(file, end):
        raise Missing("This line no longer exists.")
    key = file.key
    if end <= view.base.get(key, 0):
        return {
            other: end
            if other == key
            else min(view.base[other], _older(view.files[other], view.base[other], place.at + (other < key)))
            for other in view.ends
        }
    offsets = dict(view.base)
    for segment in view.segments:
        if segment.key == key and segment.end >= end:
            break
        offsets[segment.key] = segment.end
    return offsets | {key: end}


def _ends_line(file: LogFile, end: int) -> bool:
    if end == file.size:
        return True
    try:
        opened = file.open()
    except OSError:
        return False
    try:
        return end > file.start and os.pread(opened, 1, end - 1) == b"\n"
    finally:
        os.close(opened)


def _older(file: LogFile, high: int, moment: int) -> int:
    """Returns the offset behind what is older than a moment."""
    try:
        opened = file.open()
    except OSError:
        return high
    try:
        return line_reader.offset_at(opened, file, high, moment)
    finally:
        os.close(opened)


# -- source


SEARCH_S = 0.8  # of work for one page: with the ways to and fro it comes within a second
PACE_S = 0.3  # between two looks at all files
SHARE = 0.05  # of a core that looking may take; where it costs more it is done less often
THREADS = 2  # the machine has more to do than to search

T = TypeVar("T")


class FilesSource:
    def __init__(self, spec: LogSource) -> None:
        self.name = spec.name
        self.label = spec.label
        self.server_label = spec.server_label
        self.pace = PACE_S
        self._server = spec.server
        self._roots = ", ".join(spec.roots)
        self._ledger = ArrivalOrder(LogRoots(spec.roots, spec.patterns))
        self._places = LogFilePositions()
        self._troubles: str | None = None  # at the last read
        self._labels: dict[str, Mapping[str, str]] = {}
        self._threads = thread_pool.start_pool(THREADS, f"logs-{spec.name}")

    def tap(self, query: LogQuery) -> LogQuery:
        """Returns a query for all files: readers of any of them share what is read of all."""
        return LogQuery()

    async def labels(self, start: int, end: int) -> LogLabels:
        """Returns labels of files written to since `start`; where each began is not read, so `end` cuts nothing."""
        return await self._apart(lambda _: self._seen_labels(start), SearchDeadline(SEARCH_S))

    async def search(self, query: LogQuery, *, before: str = "", limit: int = 500) -> LogResultPage:
        return await self._apart(
            lambda patience: self._search(query, before, limit, patience), SearchDeadline(SEARCH_S)
        )

    async def read(self, query: LogQuery, *, after: str, limit: int = 1000) -> LogResultPage:
        return await self._apart(lambda patience: self._read(query, after, limit, patience), SearchDeadline(SEARCH_S))

    async def around(self, id: str, query: LogQuery, *, lines: int = 50) -> LogResultPage:
        return await self._apart(lambda patience: self._around(id, query, lines, patience), SearchDeadline(SEARCH_S))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _apart(self, work: Callable[[SearchDeadline], T], patience: SearchDeadline) -> T:
        """Runs work in a thread; a reader that leaves ends it."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, patience)
        except asyncio.CancelledError:
            patience.end()
            raise

    # In a thread.

    def _look(self) -> FilesView:
        view = self._ledger.look()
        self.pace = max(PACE_S, self._ledger.took / SHARE)
        troubles = view.seen.troubles
        if troubles and not view.files:
            raise AccessDenied(troubles[0].target, troubles[0].reason.rstrip("."), advice=troubles[0].advice)
        return view

    def _seen_labels(self, start: int) -> LogLabels:
        view = self._look()
        files = [file for file in view.files.values() if file.changed + AHEAD >= start]
        found = {"file": sorted({file.label for file in files})} if files else {}
        if files and self._server:
            found["server"] = [self._server]
        return LogLabels(found, view.seen.is_cut)

    def _search(self, query: LogQuery, before: str, limit: int, patience: SearchDeadline) -> LogResultPage:
        view = self._look()
        offsets = resume_offsets(self._place(before), view)[0] if before else dict(view.ends)
        after = "" if before else self._written(LogFilePosition(view.now, dict(view.ends)), view)
        walk = FileWalk(view, offsets, query, self._labels_of, limit)
        walk.backwards(patience)
        older = "" if walk.is_done else self._written(LogFilePosition(walk.reached, offsets), view)
        return LogResultPage(
            lines=walk.lines,
            before=older,
            after=after or before,
            gap=None if before else _gap(problems_text(view.seen.troubles)),
            is_end=walk.is_done,
            looked_at=walk.looked_at,
            reached=walk.reached or None,
        )

    def _read(self, query: LogQuery, after: str, limit: int, patience: SearchDeadline) -> LogResultPage:
        view = self._look()
        if not after:
            return LogResultPage(after=self._written(LogFilePosition(view.now, dict(view.ends)), view), is_end=True)
        offsets, gap = resume_offsets(self._place(after), view)
        walk = FileWalk(view, offsets, query, self._labels_of, limit)
        walk.forwards(patience)
        is_end = walk.is_done or not offsets_behind(view, offsets)
        place = self._written(LogFilePosition(view.now if is_end else walk.reached, offsets), view)
        return LogResultPage(
            walk.lines, after=place, gap=gap or self._new_gap(view), is_end=is_end, looked_at=walk.looked_at
        )

    def _around(self, id: str, query: LogQuery, lines: int, patience: SearchDeadline) -> LogResultPage:
        place = self._place(id)
        if place.kind != LINE:
            raise Missing(UNKNOWN)
        view = self._look()
        begun, _ = resume_offsets(place, view)
        older = FileWalk(view, dict(begun), query, self._labels_of, lines + 1)
        older.backwards(patience)
        newer = FileWalk(view, dict(begun), query, self._labels_of, lines)
        newer.forwards(patience)
        return LogResultPage(
            lines=[*older.lines, *newer.lines],
            before="" if older.is_done else self._written(LogFilePosition(older.reached, older.offsets), view),
            after=self._written(LogFilePosition(newer.reached or view.now, newer.offsets), view),
        )

    def _place(self, text: str) -> LogFilePosition:
        if place := self._places.read(text):
            return place
        raise Missing(UNKNOWN)

    def _written(self, place: LogFilePosition, view: FilesView) -> str:
        """Returns the text of a place. Files in which nothing lies before it need no name."""
        begun = {key: offset for key, offset in place.offsets.items() if offset > view.files[key].start}
        return self._places.written(LogFilePosition(place.at, begun), view.newest_first)

    def _new_gap(self, view: FilesView) -> LogGap | None:
        """Returns the gap of files that became unreadable since the last read; earlier ones are told by a search."""
        before, self._troubles = self._troubles, problems_text(view.seen.troubles)
        return None if before in (None, self._troubles) else _gap(self._troubles)

    def _labels_of(self, file: LogFile) -> Mapping[str, str]:
        """Returns a file's labels, the same object for the same labels."""
        if file.label not in self._labels:
            found = {"file": file.label} | ({"server": self._server} if self._server else {})
            self._labels[file.label] = MappingProxyType(found)
        return self._labels[file.label]


def _gap(words: str) -> LogGap | None:
    return LogGap(words) if words else None
