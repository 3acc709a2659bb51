"""Finds files by pattern: `*`, `?` and `[…]` inside a name, `**` for any number of directories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

DEPTH = 24  # directories below `**`
_MAGIC = re.compile(r"[*?\[]")
_PACKED = (".gz", ".xz", ".bz2", ".zst", ".lz4", ".zip")  # compressed by log rotation: shipped before


@dataclass(frozen=True, slots=True)
class FilePattern:
    kind: str  # of the files' format
    glob: str


def matching_paths(glob: str) -> Iterator[str]:
    """Yields matching paths, which may be files. A directory that cannot be read counts as empty."""
    return _below("/", tuple(part for part in glob.split("/") if part), 0)


def is_packed(path: str) -> bool:
    return path.endswith(_PACKED)


def names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 -- a third of the price of a Path
    except OSError:
        return []


def _below(folder: str, parts: Sequence[str], depth: int) -> Iterator[str]:
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _anywhere(folder, rest or ("*",), depth)
    elif not _MAGIC.search(part):
        path = os.path.join(folder, part)  # noqa: PTH118 -- as above
        yield from _below(path, rest, depth) if rest else iter((path,))
    else:
        for path in _matching(folder, part, folders=bool(rest)):
            yield from _below(path, rest, depth) if rest else iter((path,))


def _anywhere(folder: str, rest: Sequence[str], depth: int) -> Iterator[str]:
    """Searches this directory and all below it. Links to directories are not followed: they may form loops."""
    yield from _below(folder, rest, depth)
    if depth >= DEPTH:
        return
    for path in _matching(folder, "*", folders=True):
        if not os.path.islink(path):  # noqa: PTH114 -- as above
            yield from _anywhere(path, rest, depth + 1)


def _matching(folder: str, part: str, *, folders: bool) -> list[str]:
    fits, shows_hidden = _compiled(part), part.startswith(".")
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.path
                for entry in entries
                if fits.match(entry.name)
                and (shows_hidden or not entry.name.startswith("."))
                and (not folders or _is_folder(entry))
            )
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(translate(part))
