"""Reads complete lines of a growing file: a line is taken when its newline is there, and never in two parts."""

from __future__ import annotations

import os
from dataclasses import dataclass

from recovery.domain.logs.line_batches import CutLine

CHUNK = 256 * 1024  # bytes of one read
LINE = 32 * 1024  # bytes of a line that are shipped: twice what is shown, so that no secret is shown by its half


@dataclass(slots=True)
class LineReader:
    """Read position in a file. `start` is the end of the last line taken; from there to `position` is no newline."""

    start: int = 0
    position: int = 0
    limit: int = LINE  # bytes of a line that are taken
    is_behind: bool = False  # there may be more to read at once
    _begun: bytes = b""  # of a line longer than a chunk

    def rewind(self, offset: int) -> None:
        self.is_behind = True
        self._go_on(offset)

    def read(self, file: int, *, is_over: bool = False) -> list[bytes]:
        """Returns the next lines, without newlines. `is_over`: the file grows no more, so its last line is complete."""
        piece = os.pread(file, CHUNK, self.position)
        self.is_behind = len(piece) == CHUNK
        end = piece.rfind(b"\n")
        if end < 0:
            return self._without_end(piece, is_over=is_over and not self.is_behind)
        lines = piece[:end].split(b"\n")
        lines[0] = self._whole(lines[0])
        self._go_on(self.position + end + 1)
        self.is_behind = self.is_behind or (is_over and end + 1 < len(piece))
        if end > self.limit:
            lines = [line if len(line) <= self.limit else cut(line, len(line), self.limit) for line in lines]
        return lines

    def _without_end(self, piece: bytes, *, is_over: bool) -> list[bytes]:
        if is_over:
            line, end = self._whole(piece), self.position + len(piece)
            taken = [line if type(line) is CutLine else cut(line, len(line), self.limit)] if end > self.start else []
            self._go_on(end)
            return taken
        if self.is_behind or self.position > self.start:  # too long to be read anew each time
            if self.position == self.start:
                self._begun = piece[: self.limit]
            self.position += len(piece)
        return []

    def _whole(self, rest: bytes) -> bytes:
        """Returns the current line, whose last part this is."""
        if self.position == self.start:
            return rest
        return cut(self._begun + rest[: self.limit], self.position - self.start + len(rest), self.limit)

    def _go_on(self, offset: int) -> None:
        self.start = self.position = offset
        self._begun = b""


def cut(line: bytes, size: int, limit: int = LINE) -> bytes:
    """Cuts a line of this size to the limit."""
    return CutLine.of(line[:limit], size - limit) if size > limit else line
