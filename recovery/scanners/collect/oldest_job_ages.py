"""Caches since when the oldest job of a queue waits or runs: read again only when another job is the oldest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, QueueReader
from recovery.backends.redis_common.decode import times
from recovery.domain.identifiers import QueueRef

# A job may fail, be retried and be the oldest again between two ticks; then its start has moved.
REFRESH_MS = 10_000


class OldestJob(NamedTuple):
    """Oldest waiting or oldest active job of a queue."""

    ref: QueueRef
    is_active: bool
    id: str
    reader: QueueReader

    @property
    def place(self) -> tuple[QueueRef, bool]:
        return self.ref, self.is_active

    @property
    def question(self) -> Command:
        return self.reader.age_plan(self.ref, self.id)


class _Age(NamedTuple):
    id: str
    read_at: int
    since: int | None


class OldestJobAges:
    """Start times of the oldest jobs of one deployment; not shared between threads."""

    def __init__(self) -> None:
        self._known: dict[tuple[QueueRef, bool], _Age] = {}

    def unknown(self, heads: Iterable[OldestJob], now: int) -> list[OldestJob]:
        """Returns the jobs whose times have to be read."""
        return [head for head in heads if not self._is_fresh(self._known.get(head.place), head.id, now)]

    def learn(self, heads: Sequence[OldestJob], replies: Sequence[Any], now: int) -> None:
        for head, reply in zip(heads, replies, strict=True):
            self._known[head.place] = _Age(head.id, now, _since(head, reply))

    def since(self, ref: QueueRef, is_active: bool, id: str) -> int | None:
        age = self._known.get((ref, is_active))
        return age.since if age is not None and age.id == id else None

    def keep(self, refs: Iterable[QueueRef]) -> None:
        """Forgets all other queues."""
        kept = set(refs)
        self._known = {place: age for place, age in self._known.items() if place[0] in kept}

    @staticmethod
    def _is_fresh(age: _Age | None, id: str, now: int) -> bool:
        return age is not None and age.id == id and 0 <= now - age.read_at < REFRESH_MS


def _since(head: OldestJob, reply: Any) -> int | None:
    added, processed, delay = times(reply)
    if head.is_active:
        return processed
    # A delay that is over is not waiting time. Where the library has set it to 0 by then, it counts as such.
    return None if added is None else added + max(0, delay or 0)
