"""Finds the files that may be read: those under the roots whose names fit; nothing leads out of the roots.

A file is known by its key: one half is of its inode, the other of its first line. So it stays the same when a rotation
renames it, and is another one when it is truncated and written anew.
"""

from __future__ import annotations

import os
import re
import stat
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from hashlib import blake2b

from recovery.logs.files import safe_open
from recovery.logs.files.safe_open import NotAPlainFile

FILES = 1000  # the newest; each is looked at for every read
ENTRIES = 50_000  # names in all folders together: so many take half a second
DEPTH = 8  # folders below a root
HEAD = 256  # bytes of the first line that tell a file from another one
HALF = 4  # characters of each half of a key
TROUBLES = 5  # that are told at once
_ROTATED = re.compile(r"[.-]\d[\d.\-_:T]*$")  # app.log.1, app.log-20261118: still of app.log
_PACKED = (".gz", ".xz", ".bz2", ".zst", ".lz4", ".zip")


@dataclass(frozen=True, slots=True)
class LogFile:
    """Log file. `label`: its path under its root, without a rotation's suffix. `start`: where its first line begins."""

    key: str
    root: str
    path: str  # the real one
    label: str
    size: int
    changed: int  # ns
    start: int = 0

    @property
    def inode(self) -> str:
        return self.key[:HALF]

    @property
    def head(self) -> str:
        return self.key[HALF:]

    def open(self) -> int:
        """Opens the file. Raises OSError."""
        return safe_open.open_under(self.root, self.path)


@dataclass(frozen=True, slots=True)
class FileProblem:
    target: str
    reason: str
    advice: str


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """All files at one moment, by their keys. `inodes`: the halves of all that there are, also of empty ones."""

    files: Mapping[str, LogFile] = field(default_factory=dict)
    inodes: frozenset[str] = frozenset()
    troubles: tuple[FileProblem, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    root: str
    path: str
    label: str
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class _Known:
    """Facts that were read of a file, as long as nothing was written to it."""

    size: int
    changed: int
    key: str
    start: int


class LogRoots:
    """Configured folders. Used by one thread at a time."""

    def __init__(self, roots: Sequence[str], patterns: Sequence[str]) -> None:
        self._roots = roots
        self._fits = re.compile("|".join(translate(pattern) for pattern in patterns))
        self._known: dict[tuple[int, int], _Known] = {}

    def look(self) -> FileSnapshot:
        troubles: list[FileProblem] = []
        found: dict[tuple[int, int], _Entry] = {}
        walked = list(self._walked(troubles))
        for entry in walked[:ENTRIES]:
            found.setdefault((entry.status.st_dev, entry.status.st_ino), entry)
        newest = sorted(found.items(), key=lambda one: -one[1].status.st_mtime_ns)
        self._known = {id: self._known[id] for id, _ in newest[:FILES] if id in self._known}
        files: dict[str, LogFile] = {}
        for id, entry in newest[:FILES]:
            if file := self._file(id, entry, troubles):
                files.setdefault(file.key, file)
        inodes = frozenset(map(_inode, found))
        return FileSnapshot(files, inodes, tuple(troubles), len(found) > FILES or len(walked) > ENTRIES)

    def _walked(self, troubles: list[FileProblem]) -> Iterator[_Entry]:
        """Yields files first, then what links lead to: a file has the label of its own name."""
        links: list[_Entry] = []
        left = ENTRIES
        real = tuple(os.path.realpath(root) for root in self._roots)
        for root in real:
            folders = [(root, 0)]
            while folders and left >= 0:
                folder, depth = folders.pop()
                for entry in _entries(folder, troubles):
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        folders += [(entry.path, depth + 1)] if depth < DEPTH else []
                    elif label := self._label(root, entry.path):
                        made = _entry(root, real, entry, label, troubles)
                        if made and entry.is_symlink():
                            links.append(made)
                        elif made:
                            yield made
        yield from links

    def _label(self, root: str, path: str) -> str:
        """Returns the label, "" for what is none of ours."""
        folder, _, name = path[len(root) + 1 :].rpartition("/")
        if name.endswith(_PACKED):
            return ""
        for one in (name, _ROTATED.sub("", name)):
            if self._fits.fullmatch(one):
                return f"{folder}/{one}" if folder else one
        return ""

    def _file(self, id: tuple[int, int], entry: _Entry, troubles: list[FileProblem]) -> LogFile | None:
        """Returns the file; None while it has no whole first line."""
        size, changed = entry.status.st_size, entry.status.st_mtime_ns
        known = self._known.get(id)
        if known is None or (known.size, known.changed) != (size, changed):
            try:
                head, start = _head(entry) if size else (b"", 0)
            except OSError as error:
                troubles.append(_unreadable(entry.path, error))
                return None
            key = _inode(id) + _half(head) if head else ""
            known = self._known[id] = _Known(size, changed, key, start)
        label = entry.label.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return LogFile(known.key, entry.root, entry.path, label, size, changed, known.start) if known.key else None


def problems_text(troubles: Sequence[FileProblem]) -> str:
    """Returns the problems in one line, with what to do; "" when there is none."""
    first = [f"{one.target}: {one.reason} {one.advice}" for one in troubles[:TROUBLES]]
    more = len(troubles) - len(first)
    return " ".join([*first, *([f"And {more} more."] if more > 0 else [])])


def _entries(folder: str, troubles: list[FileProblem]) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((one for one in entries if not one.name.startswith(".")), key=lambda one: one.name)
    except OSError as error:
        advice = "Create it, mount it into where the web process runs, or correct `roots`."
        trouble = FileProblem(folder, "the folder does not exist.", advice)
        troubles.append(trouble if isinstance(error, FileNotFoundError) else _unreadable(folder, error))
        return ()


def _entry(
    root: str, roots: Sequence[str], entry: os.DirEntry[str], label: str, troubles: list[FileProblem]
) -> _Entry | None:
    try:
        path = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
    except OSError as error:  # a link through folders that are closed to us
        troubles.append(_unreadable(entry.path, error))
        return None
    inside = next((one for one in (root, *roots) if path.startswith(f"{one}/")), None)
    if inside is None:
        advice = "Add its target folder to `roots`, or remove the link."
        troubles.append(FileProblem(entry.path, "is a link to a folder outside of `roots`.", advice))
        return None
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None  # it was there a moment ago, or the link leads nowhere
    except OSError as error:
        troubles.append(_unreadable(entry.path, error))
        return None
    if not stat.S_ISREG(status.st_mode):
        troubles.append(
            FileProblem(entry.path, "is not a file.", "Only plain files are read; choose other `patterns`.")
        )
        return None
    return _Entry(inside, path, label, status)


def _head(entry: _Entry) -> tuple[bytes, int]:
    """Returns the first line, cut; b"" while it has no end. A file with a hole at its beginning begins behind that."""
    file = safe_open.open_under(entry.root, entry.path)
    try:
        start = _data(file)
        piece = os.pread(file, HEAD, start)
    finally:
        os.close(file)
    line, ended, _ = piece.partition(b"\n")
    old = time.time_ns() - entry.status.st_mtime_ns > safe_open.QUIET_NS
    return (line + ended if ended or len(piece) == HEAD or old else b""), start


def _data(file: int) -> int:
    """Returns where data begins: a file that was truncated under a writer that goes on at its offset has a hole."""
    try:
        return os.lseek(file, 0, os.SEEK_DATA)
    except OSError:  # all of it is a hole, or the file system knows none
        return 0


def _unreadable(path: str, error: OSError) -> FileProblem:
    if isinstance(error, NotAPlainFile):
        return FileProblem(path, "is not a file, or became a link.", "Only plain files are read.")
    advice = "Give the user of the web process read access: by its group (often `adm`), or an ACL."
    reason = f"cannot be read: {error.strerror or error}."
    return FileProblem(path, reason, advice if isinstance(error, PermissionError) else "Check its disk and its mount.")


def _inode(id: tuple[int, int]) -> str:
    return _half(b"%d:%d" % id)


def _half(of: bytes) -> str:
    return urlsafe_b64encode(blake2b(of, digest_size=3).digest()).decode()
