"""Positions up to which files are shipped, with fingerprints that recognize the files after a restart."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Self
from zlib import crc32

HEAD = 256  # bytes at the beginning of a file that tell it from another one
MARK = 64  # bytes before the offset: they tell a file that was truncated and grew beyond it again

FileIdentity = tuple[int, int]  # device and inode


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """Checksums of a file's beginning and of the bytes before an offset: a copy has the same, a new file has not."""

    head: int = 0
    head_size: int = 0
    mark: int = 0
    mark_size: int = 0

    @classmethod
    def take(cls, file: int, offset: int) -> Self:
        head, mark = _prints(file, offset, min(HEAD, offset), min(MARK, offset))
        return cls(head, min(HEAD, offset), mark, min(MARK, offset))

    def fits(self, file: int, offset: int) -> bool:
        """Returns True if an open file has the same checksums."""
        return (self.head, self.mark) == _prints(file, offset, self.head_size, self.mark_size)

    def begins(self, head: bytes) -> bool:
        """Returns True if these are the first bytes of the file."""
        return self.head == crc32(head[: self.head_size])


def _prints(file: int, offset: int, head: int, mark: int) -> tuple[int, int]:
    return crc32(os.pread(file, head, 0)), crc32(os.pread(file, mark, offset - mark))


@dataclass(frozen=True, slots=True)
class ShippedFilePosition:
    """Position in a file. `path` is where it was first seen. `back`: where incomplete lines begin, to be read again."""

    path: str
    offset: int = 0
    at: int = 0  # the moment of the last line, in ns
    print: FileFingerprint = FileFingerprint()
    back: int | None = None

    def encode(self) -> str:
        seen = self.print
        parts = (self.path, self.offset, self.at, seen.head, seen.head_size, seen.mark, seen.mark_size, self.back)
        return json.dumps(parts, separators=(",", ":"))

    @classmethod
    def decode(cls, written: str) -> Self | None:
        """Decodes a stored position; None if it is not a valid one."""
        try:
            path, offset, at, *prints, back = json.loads(written)
            numbers = (offset, at, *prints, *(() if back is None else (back,)))
            if not isinstance(path, str) or not all(isinstance(number, int) and number >= 0 for number in numbers):
                return None
            return cls(path, offset, at, FileFingerprint(*prints), back)
        except (ValueError, TypeError):
            return None


def identity(status: os.stat_result) -> FileIdentity:
    return status.st_dev, status.st_ino
