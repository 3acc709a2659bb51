"""Keeps files of this installation from other users: databases and their journals hold sessions and payloads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from stat import S_IRWXO, S_ISLNK, S_ISSOCK

_PRIVATE = 0o077  # permissions removed from new files
_MOST = 1_000  # files of a directory that are checked


def make_new_files_private() -> None:
    """Sets the umask of this process and of all that it starts, the embedded Valkey among them."""
    os.umask(_PRIVATE)


def open_to_others(paths: Iterable[Path]) -> Iterator[Path]:
    """Yields the paths that every user of this machine may open; of a directory what is directly in it, too."""
    for path in paths:
        yield from filter(_is_open, (path, *islice(_within(path), _MOST)))


def _within(path: Path) -> Iterator[Path]:
    try:
        yield from path.iterdir()
    except OSError:  # a file, or none at all
        return


def _is_open(path: Path) -> bool:
    """Returns False for a socket: its directory and its group guard it (deploy/unstall-web@.service)."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return bool(mode & S_IRWXO) and not S_ISLNK(mode) and not S_ISSOCK(mode)
