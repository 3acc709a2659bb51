"""Watches all followed files: finds new ones, and keeps those that are renamed, replaced or deleted.

A file is known by its inode. One that existed when the monitor first started is followed from its end, all others from
their beginning. One that lost its path is read to its end, and for a while longer: its writer may still have it open.
"""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from recovery.monitor.shipping import copytruncate, file_patterns
from recovery.monitor.shipping.file_patterns import FilePattern
from recovery.monitor.shipping.file_tail import FileTail
from recovery.monitor.shipping.positions import FileIdentity, ShippedFilePosition, identity

# -- open files
# Keeps a bounded number of the followed files open, so that thousands can be followed.


MOST = 256
_OPEN_FILES_SHARE = 4  # a quarter of the limit of open files


class OpenFiles:
    """Open files in order of use. The least recently used ones are closed, except those without a path any more, which
    could not be opened again.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or min(MOST, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _OPEN_FILES_SHARE))
        self._open: OrderedDict[str, FileTail] = OrderedDict()

    @property
    def has_room(self) -> bool:
        return len(self._open) < self._most

    def use(self, tail: FileTail) -> None:
        """Opens the file if it is closed. Raises OSError."""
        tail.open()
        self._open[tail.key] = tail
        self._open.move_to_end(tail.key)
        for other in list(self._open.values())[: max(0, len(self._open) - self._most)]:
            if other.astray_at is None:
                self.close(other)

    def try_to(self, tail: FileTail) -> bool:
        try:
            self.use(tail)
        except OSError:
            return False
        return True

    def close(self, tail: FileTail) -> None:
        tail.close()
        self._open.pop(tail.key, None)

    def close_all(self) -> None:
        for tail in list(self._open.values()):
            self.close(tail)


# -- file watcher


FILES = 10_000  # that are followed at most
DISCOVER_EVERY = 1.5  # seconds: a new file is found within two
_SHARE = 0.005  # of a core that finding files may take; with a thousand files and more it is done less often
WARM = 60.0  # seconds since it grew: such a file is checked in each turn, others when files are searched
MOVED_FOR = 3600.0  # seconds without new lines after which a file that was renamed to another name is given up
GONE_FOR = 60.0  # likewise one that was deleted: as long as we have it open, it fills the disk
UNREAD_FOR = 3600.0  # seconds that a deleted one waits for a store that is away

Say = Callable[[str], None]


class FileWatcher:
    """All followed files. `is_settled`: the positions in the store were read, so a file that appears now is new."""

    def __init__(self, wanted: Sequence[FilePattern], server: str, say: Say, handles: OpenFiles | None = None) -> None:
        self.tails: dict[FileIdentity, FileTail] = {}
        self.finished: list[str] = []  # keys of files that will not come back
        self.matched: dict[FileIdentity, FilePattern] = {}  # at the last discovery
        self.first: dict[FileIdentity, int] = {}  # the size of each file that the first search found
        self.handles = handles or OpenFiles()
        self.is_settled = False
        self.server = server
        self.wanted = wanted
        self._say = say
        self._held: dict[FileIdentity, tuple[int, float]] = {}  # copies: size, and since when they are known
        self._discover_at: float | None = None
        self._is_said_full = False

    def look(self, now: float, took: Callable[[], float]) -> None:
        """Checks which files are new, grew or moved. `took` returns the seconds since `now`."""
        warm = [tail for tail in self._here() if now - tail.grew_at < WARM]
        gone = [tail for tail in warm if not self._is_there(tail, now)]
        if gone or self._discover_at is None or now >= self._discover_at:
            self._discover(now)
            for tail in [tail for tail in self._here() if tail.id not in self.matched]:
                self._is_there(tail, now)
            self._discover_at = now + max(DISCOVER_EVERY, took() / _SHARE)
        for tail in [tail for tail in self.tails.values() if tail.astray_at is not None]:
            self._see_off(tail, now)

    def with_news(self, now: float) -> list[FileTail]:
        return [tail for tail in self.tails.values() if tail.has_news and now >= tail.try_at]

    def add(self, tail: FileTail) -> None:
        self.tails[tail.id] = tail
        if self.handles.has_room:  # so that it can be read to its end although it is deleted
            self.handles.try_to(tail)

    def skip(self, tail: FileTail, size: int) -> None:
        """Skips the first `size` bytes of a file: they were shipped, or are older than the monitor."""
        try:
            tail.rewind(tail.end(size))
        except OSError:
            tail.rewind(ShippedFilePosition(tail.path, size))

    def restart(self, tail: FileTail, now: float) -> None:
        """Begins a truncated file again, and follows the copy of its old content, if there is one. Raises OSError."""
        place = replace(tail.place, back=None)
        tail.begin_anew()
        for one in copytruncate.candidates(place):
            if one.id in self.tails:
                continue
            copy = FileTail.make(tail.kind, one.id, one.path, self.server, place)
            if self.handles.try_to(copy) and copytruncate.is_copy_of(place, copy.file):
                copy.astray_at = now
                self.tails[one.id] = copy
                self._held.pop(one.id, None)
                return
            self.handles.close(copy)

    def _here(self) -> Iterator[FileTail]:
        return (tail for tail in self.tails.values() if tail.astray_at is None)

    def _is_there(self, tail: FileTail, now: float) -> bool:
        try:
            status = os.stat(tail.path)  # noqa: PTH116 -- half the price of a Path
        except OSError:
            status = None
        if status is None or identity(status) != tail.id:
            tail.astray_at = now
            return False
        tail.saw(status, now)
        return True

    def _discover(self, now: float) -> None:
        matched: dict[FileIdentity, FilePattern] = {}
        for pattern in self.wanted:
            for path in file_patterns.matching_paths(pattern.glob):
                if (status := copytruncate.stat_regular_file(path)) and identity(status) not in matched:
                    matched[identity(status)] = pattern
                    self._meet(path, pattern, status, now)
        self.matched = matched
        self._held = {id: held for id, held in self._held.items() if id in matched}

    def _meet(self, path: str, pattern: FilePattern, status: os.stat_result, now: float) -> None:
        tail = self.tails.get(identity(status))
        if tail is not None:
            if tail.astray_at is not None:
                tail.path, tail.astray_at = path, None
            tail.saw(status, now)
        elif len(self.tails) < FILES:
            self._follow(path, pattern, status, now)
        elif not self._is_said_full:
            self._is_said_full = True
            self._say(f"more than {FILES} log files: {path} and others are skipped. Choose narrower patterns.")

    def _follow(self, path: str, pattern: FilePattern, status: os.stat_result, now: float) -> None:
        tail = FileTail.make(pattern.kind, identity(status), path, self.server, ShippedFilePosition(path))
        if self._discover_at is None:
            self.first[tail.id] = status.st_size
        if self.is_settled and self._is_copy(tail, status.st_size, now):
            return
        self.add(tail)
        tail.saw(status, now)
        if held := self._held.pop(tail.id, None):
            self.skip(tail, held[0])

    def _is_copy(self, tail: FileTail, size: int, now: float) -> bool:
        """Returns True for a copy of a followed file, which is not read until that is truncated (see `restart`)."""
        beside = copytruncate.in_same_folder(tail.path, (one.place for one in self.tails.values()))
        since = self._held[tail.id][1] if tail.id in self._held else now
        try:
            tail.open()
            originals = copytruncate.with_same_head(beside, tail.file)
            copied = any(copytruncate.is_copy_of(place, tail.file) for place in originals)
            grows = now - since < copytruncate.COPYING and any(size < place.offset for place in originals)
        except OSError:
            return False
        finally:
            tail.close()
        if copied:
            self._held[tail.id] = size, since
        elif grows:
            self._held[tail.id] = 0, since
        return copied or grows

    def _see_off(self, tail: FileTail, now: float) -> None:
        """Reads on in a file without its path, until it was not written for long."""
        if not tail.is_open and not self._find_again(tail):
            return
        try:
            status = os.fstat(tail.file)
        except OSError:
            self._retire(tail)
            return
        tail.saw(status, now)
        quiet = now - max(tail.grew_at, tail.astray_at or 0.0)
        if tail.unread:
            tail.has_news = True
            if not status.st_nlink and now - (tail.astray_at or 0.0) > UNREAD_FOR:
                self._retire(tail)
        elif quiet > (MOVED_FOR if status.st_nlink else GONE_FOR) or not self.handles.has_room:
            self._retire(tail)

    def _find_again(self, tail: FileTail) -> bool:
        """Opens a file under its new name; returns False if it is gone, or cannot be opened in this turn."""
        found = copytruncate.with_inode(tail.path, tail.id[1])
        if found is None or found.id != tail.id:
            self._retire(tail)
            return False
        tail.path = found.path
        return self.handles.try_to(tail)

    def _retire(self, tail: FileTail) -> None:
        if tail.unread:
            self._say(f"{tail.place.path} is gone, and {tail.unread} bytes of it were not shipped")
        self.handles.close(tail)
        del self.tails[tail.id]
        self.finished.append(tail.key)
