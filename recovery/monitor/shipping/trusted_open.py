"""Opens a log file by its path, and follows symbolic links on the way only if their owner can be trusted.

A user who may write to a log directory may put a link there. The monitor may read more than that user, and all users of
the console see what it ships. So a link is followed only if it belongs to root, to this process, or to the owner of the
file that it leads to. Each part of the path is opened relative to the directory before it, so nothing can be exchanged
in between.
"""

from __future__ import annotations

import errno
import os
import stat

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
