"""Follows one file, from the position in the store."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recovery.monitor.shipping import formats
from recovery.monitor.shipping.formats import Group, LineFormat
from recovery.monitor.shipping.line_reader import CHUNK, LineReader
from recovery.monitor.shipping.positions import FileFingerprint, FileIdentity, ShippedFilePosition, identity

# -- trusted open
# Opens a log file by its path, and follows symbolic links on the way only if their owner can be trusted. A user who
# may write to a log directory may put a link there. The monitor may read more than that user, and all users of the
# console see what it ships. So a link is followed only if it belongs to root, to this process, or to the owner of the
# file that it leads to. Each part of the path is opened relative to the directory before it, so nothing can be
# exchanged in between.


LINKS = 40  # in one path, as in the kernel
_PART = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_UNTRUSTED = "a link to it belongs to another user than the file"


def open_trusted(path: str) -> int:
    """Opens a file for reading. Raises OSError, PermissionError for a link that another user may have put there."""
    if path.startswith("/proc/"):  # its links are no paths: they may lead to another root
        return os.open(path, _FILE & ~os.O_NOFOLLOW)
    way = _Way(path)
    try:
        return way.walk()
    finally:
        way.close()


class _Way:
    """Walk along one path: the directory that was reached, and the parts that are left, the next one last."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = os.open("/", _PART)
        self._left = _parts(path)
        self._makers: list[int] = []  # owners of the links that were followed

    def walk(self) -> int:
        while self._left:
            part = self._left.pop()
            if not self._left and (file := self._file(part)) is not None:
                return file
            found = os.open(part, _PART, dir_fd=self._folder)
            status = os.fstat(found)
            if stat.S_ISLNK(status.st_mode):
                self._follow(found, status.st_uid)
            else:
                os.close(self._folder)
                self._folder = found
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._path)

    def close(self) -> None:
        os.close(self._folder)

    def _file(self, part: str) -> int | None:
        """Opens the last part of the path; None where it is a link."""
        try:
            file = os.open(part, _FILE, dir_fd=self._folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
        if set(self._makers) <= {0, os.geteuid(), os.fstat(file).st_uid}:
            return file
        os.close(file)
        raise PermissionError(errno.EPERM, _UNTRUSTED, self._path)

    def _follow(self, link: int, maker: int) -> None:
        try:
            target = os.readlink("", dir_fd=link)
        finally:
            os.close(link)
        self._makers.append(maker)
        if len(self._makers) > LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._path)
        if target.startswith("/"):
            root = os.open("/", _PART)
            os.close(self._folder)
            self._folder = root
        self._left += _parts(target)


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


# -- file tail


QUIET = 5.0  # seconds after which the last line of a file that was replaced has no end to wait for
AGAIN = 30.0  # seconds after which a file that could not be read is tried again
CLOSED = -1


class FileTruncated(Exception):
    """The file does not contain what was shipped of it any more: it was truncated, and is to be read from its start."""


@dataclass(slots=True)
class FileTail:
    """A followed file. `path` is where it is now. `place` is the position in the store, or to be written next."""

    kind: str
    id: FileIdentity
    path: str
    place: ShippedFilePosition
    format: LineFormat
    file: int = CLOSED
    size: int = 0  # when it was checked last
    changed: int = -1  # its mtime, likewise
    has_news: bool = True
    is_unsaved: bool = True  # the store does not have the position yet
    grew_at: float = 0.0
    astray_at: float | None = None  # since when its path is missing or another file
    try_at: float = 0.0
    is_told: bool = False  # it was logged that it cannot be read
    reading: LineReader = field(default_factory=LineReader)

    @classmethod
    def make(cls, kind: str, id: FileIdentity, path: str, server: str, place: ShippedFilePosition) -> FileTail:
        made = cls(kind, id, path, place, formats.format_of(kind, place.path, server))
        made.reading.limit = made.format.limit
        made.rewind(place)
        return made

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.id[0]}:{self.id[1]}"

    @property
    def is_open(self) -> bool:
        return self.file != CLOSED

    @property
    def is_what_it_was(self) -> bool:
        """Returns True if the file still contains what was shipped of it. Raises OSError."""
        return self.place.print.fits(self.file, self.place.offset)

    @property
    def unread(self) -> int:
        return max(0, self.size - self.reading.start)

    def saw(self, status: os.stat_result, now: float) -> None:
        if (status.st_size, status.st_mtime_ns) != (self.size, self.changed):
            self.size, self.changed = status.st_size, status.st_mtime_ns
            self.has_news, self.grew_at = True, now

    def open(self) -> None:
        """Opens the file. Raises OSError, also when its path is another file now."""
        if self.is_open:
            return
        file = open_trusted(self.path)
        if identity(os.fstat(file)) != self.id:
            os.close(file)
            raise FileNotFoundError(self.path)
        self.file = file

    def close(self) -> None:
        if self.is_open:
            os.close(self.file)
            self.file = CLOSED

    def gather(self, now: float, moment: int) -> Sequence[Group]:
        """Returns the next lines. Raises Truncated, and OSError."""
        self.open()
        if os.fstat(self.file).st_size < self.reading.position or not self.is_what_it_was:
            raise FileTruncated
        is_over = self.astray_at is not None and now - max(self.astray_at, self.grew_at) >= QUIET
        start = self.reading.start
        lines = self.reading.read(self.file, is_over=is_over)
        self.has_news = self.reading.is_behind
        groups = self.format.take(lines, start, moment) if lines else ()
        self.is_unsaved = self.is_unsaved or bool(lines)
        return groups

    def reached(self) -> ShippedFilePosition:
        """Returns the position after all lines that were read. Raises OSError."""
        offset = self.reading.start
        if offset <= self.place.offset or not self.is_open:  # also while lines are read a second time
            return self.place
        return ShippedFilePosition(
            self.place.path, offset, self.format.clock.last, FileFingerprint.take(self.file, offset), self.format.back
        )

    def rewind(self, place: ShippedFilePosition) -> None:
        """Goes back to a position, to read everything after it again."""
        self.place, self.has_news = place, True
        self.format.clock.last = place.at
        self.format.rewind(0 if place.back is None else place.offset)
        self.reading.rewind(place.offset if place.back is None else place.back)

    def begin_anew(self) -> None:
        """Goes to the start of a truncated file, behind the hole that its writer may have left there."""
        start = 0
        if self.is_open:
            try:
                start = os.lseek(self.file, 0, os.SEEK_DATA)
            except OSError:  # empty, or a file system that knows no holes
                start = 0
        self.rewind(replace(ShippedFilePosition(self.place.path, at=self.place.at), offset=start))
        self.is_unsaved = True

    def end(self, size: int) -> ShippedFilePosition:
        """Returns the position after the last complete line of its first `size` bytes. Raises OSError."""
        self.open()
        first = max(0, size - CHUNK)
        piece = os.pread(self.file, size - first, first)
        ended = piece.rfind(b"\n")
        offset = first + ended + 1 if ended >= 0 or first == 0 else size
        return ShippedFilePosition(self.place.path, offset, 0, FileFingerprint.take(self.file, offset))
