"""Finds copies of log files: `copytruncate` of logrotate copies a file and empties it, so unread lines are there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recovery.monitor.shipping import file_patterns
from recovery.monitor.shipping.positions import HEAD, FileIdentity, ShippedFilePosition, identity

COPYING = 10.0  # seconds in which a copy may still grow to what its original has
CANDIDATES = 200  # files in the directory of a truncated one that may be its copy, the newest
_SEEN = 32  # bytes of a beginning that are enough to compare


@dataclass(frozen=True, slots=True)
class DirectoryFile:
    """Regular file of a directory."""

    path: str
    id: FileIdentity
    size: int
    changed: int


def is_copy_of(place: ShippedFilePosition, file: int) -> bool:
    """Returns True if an open file contains all that was shipped of another. Raises OSError."""
    return place.print.head_size >= _SEEN and place.print.fits(file, place.offset)


def with_same_head(places: Iterable[ShippedFilePosition], file: int) -> list[ShippedFilePosition]:
    """Returns positions whose file begins as this open one does, with one read for all. Raises OSError."""
    head = os.pread(file, HEAD, 0)
    return [place for place in places if place.print.head_size >= _SEEN and place.print.begins(head)]


def in_same_folder(path: str, places: Iterable[ShippedFilePosition]) -> Iterator[ShippedFilePosition]:
    """Returns the positions of files in the same directory."""
    folder = os.path.dirname(path)  # noqa: PTH120 -- half the price of a Path
    return (place for place in places if os.path.dirname(place.path) == folder)  # noqa: PTH120 -- as above


def candidates(place: ShippedFilePosition) -> list[DirectoryFile]:
    """Returns files that may be a copy of it, the newest first."""
    found = [one for one in _files(os.path.dirname(place.path)) if one.size >= place.offset]  # noqa: PTH120 -- as above
    return sorted(found, key=lambda one: -one.changed)[:CANDIDATES] if place.print.head_size >= _SEEN else []


def with_inode(path: str, inode: int) -> DirectoryFile | None:
    """Returns the file with this inode in the directory of this path: it may have been renamed."""
    return next((one for one in _files(os.path.dirname(path)) if one.id[1] == inode), None)  # noqa: PTH120 -- as above


def stat_regular_file(path: str) -> os.stat_result | None:
    """Returns the stat of a regular file; None for anything else, and for compressed files."""
    if file_patterns.is_packed(path):
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 -- as above
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _files(folder: str) -> Iterator[DirectoryFile]:
    for name in file_patterns.names(folder):
        path = os.path.join(folder, name)  # noqa: PTH118 -- as above
        if status := stat_regular_file(path):
            yield DirectoryFile(path, identity(status), status.st_size, status.st_ctime_ns)
