"""Counts the bytes of a server's stream, and determines from which entry on it is kept.

A stream knows how many entries it has, not how many bytes. So they are counted here in a few segments (heaps), oldest
first, each known by its last entry: the stream is trimmed to where the next segment begins.
"""

from __future__ import annotations

import json
from collections import deque

Id = tuple[int, int]

HEAPS = 32  # segments of what is kept: it is trimmed in steps of three percent


class StreamRetention:
    def __init__(self, keep_bytes: int, keep_ms: int, written: bytes = b"") -> None:
        """Restores the counts; `written` is the last stored result of `encode`."""
        self._keep_bytes, self._keep_ms = keep_bytes, keep_ms
        self._open, self._heaps = _decoded(written)
        self._total = self._open + sum(size for _, size in self._heaps)
        self._last: Id | None = None  # of the newest entry, as far as known

    def add(self, size: int) -> None:
        if self._last and self._open >= self._keep_bytes // HEAPS:
            self._heaps.append((self._last, self._open))
            self._open = 0
        self._open += size
        self._total += size

    def wrote(self, id: bytes) -> None:
        """Takes the id of the last written entry."""
        ms, _, number = id.partition(b"-")
        self._last = int(ms), int(number)

    def first(self, now: int) -> str:
        """Returns the lowest id to keep, and subtracts what lies before it. `now` is the store's time in ms."""
        oldest: Id = max(0, now - self._keep_ms), 0
        while self._heaps and (self._total > self._keep_bytes or self._heaps[0][0] < oldest):
            (ms, number), size = self._heaps.popleft()
            self._total -= size
            oldest = max(oldest, (ms, number + 1))
        return f"{oldest[0]}-{oldest[1]}"

    def encode(self) -> str:
        return json.dumps((self._open, list(self._heaps)), separators=(",", ":"))


def _decoded(written: bytes) -> tuple[int, deque[tuple[Id, int]]]:
    try:
        opened, heaps = json.loads(written)
        return int(opened), deque(((int(ms), int(number)), int(size)) for (ms, number), size in heaps)
    except (ValueError, TypeError):
        return 0, deque()
