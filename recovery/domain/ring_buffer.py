"""Stores cells of one size in a Redis string used as a ring buffer, each with the number of its period in front.

A cell that is left over from an earlier round is recognised by its number and ignored, so nothing ever has to be
cleared, and a string that is too short (nothing was written there yet) is read like one full of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any


@dataclass(frozen=True, slots=True)
class RingBuffer:
    """A ring buffer. `layout`: what a cell holds; its first number is the period, an unsigned one of 4 bytes."""

    cells: int
    layout: Struct

    @property
    def size(self) -> int:
        """Returns the size of the whole string, in bytes."""
        return self.cells * self.layout.size

    def offset(self, period: int) -> int:
        """Returns the position of a period's cell, in bytes."""
        return period % self.cells * self.layout.size

    def spans(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns the byte ranges (both ends included, as GETRANGE wants them) that hold the periods first to last."""
        if last - first + 1 >= self.cells:
            return [(0, self.size - 1)]
        start, stop = self.offset(first), self.offset(last) + self.layout.size - 1
        if start < stop:
            return [(start, stop)]
        return [(start, self.size - 1), (0, stop)]

    def read(self, raw: bytes, first: int, last: int) -> Iterator[tuple[int, list[Any]]]:
        """Yields period and numbers of the cells in these bytes that belong to the periods first to last.

        A torn last cell is left out.
        """
        whole = len(raw) - len(raw) % self.layout.size
        for period, *numbers in self.layout.iter_unpack(raw[:whole]):
            if first <= period <= last:
                yield period, numbers

    def pieces(self, first: int, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[int, bytes]]:
        """Yields where to write these consecutive cells, and the bytes: two pieces when they go over the end."""
        packed = [self.layout.pack(period, *row) for period, row in enumerate(rows, first)][-self.cells :]
        start = self.offset(first + len(rows) - len(packed))
        until_end = self.cells - start // self.layout.size
        for offset, piece in ((start, packed[:until_end]), (0, packed[until_end:])):
            if piece:
                yield offset, b"".join(piece)
