"""Counts jobs that went away: all ever added, less all that are still there. It is the only sign of finished jobs where
the application removes them at once; a job removed by hand, or added twice under one id, looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import JobCounts, QueueSample


@dataclass(slots=True)
class _Mark:
    added: int
    gone: int  # the most that had ever gone at any call


class Departures:
    """High-water mark of departed jobs per queue, so that what was counted too early is not counted again.

    The counts of a snapshot are not taken in one instant: a job on its way from one list to the next may be counted
    twice or not at all.
    """

    def __init__(self) -> None:
        self._marks: dict[QueueRef, _Mark] = {}

    def since(self, sample: QueueSample, *, is_next: bool) -> int | None:
        """Returns how many jobs went away since the last call; None when there is nothing to compare with.

        `is_next`: the last call was one minute ago, so the difference belongs to this minute.
        """
        here = present(sample.counts)
        if sample.added is None or here is None:
            return None
        gone, mark = sample.added - here, self._marks.get(sample.ref)
        self._marks[sample.ref] = _Mark(sample.added, gone)
        if mark is None or not is_next or sample.added < mark.added:  # less than before: the queue was wiped
            return None
        self._marks[sample.ref].gone = max(gone, mark.gone)
        return max(0, gone - mark.gone)

    def keep(self, refs: Iterable[QueueRef]) -> None:
        """Forgets all other queues."""
        kept = set(refs)
        self._marks = {ref: mark for ref, mark in self._marks.items() if ref in kept}


def present(counts: JobCounts) -> int | None:
    """Returns how many jobs there are in any state. A state that this library does not have holds none."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
