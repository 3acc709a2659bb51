"""Counts rows of job tables that ended in a minute: by how much the numbers of completed and failed rows grew.

Rows that are deleted, or retried, make a number fall; then the minute is unknown.
"""

from __future__ import annotations

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import MINUTE, FinishedTally
from recovery.domain.queues.types import QueueLibrary, QueueSample, Snapshot

_Counted = tuple[int, int | None, int | None]  # the minute, done, failed


class TableGrowth:
    def __init__(self) -> None:
        self._before: dict[QueueRef, _Counted] = {}

    def since(self, snapshot: Snapshot, minute: int) -> dict[QueueRef, FinishedTally]:
        """Returns the growth of tables that were counted in the minute before too. Called once a minute."""
        found, counted = {}, dict[QueueRef, _Counted]()
        for sample in snapshot.queues:
            if not _is_counted(sample, snapshot, minute):
                continue
            now = (minute, sample.counts.completed, sample.counts.failed)
            before = self._before.get(sample.ref)
            if before and before[0] == minute:
                now = before
            elif before and before[0] == minute - 1:
                found[sample.ref] = FinishedTally(_grown(before[1], now[1]), _grown(before[2], now[2]), None)
            counted[sample.ref] = now
        self._before = counted
        return found


def _is_counted(sample: QueueSample, snapshot: Snapshot, minute: int) -> bool:
    if sample.flavour.library is not QueueLibrary.TABLE or sample.error:
        return False
    place = snapshot.deployment(sample.ref.deployment)
    return place is not None and not place.error and place.taken_at >= (minute + 1) * MINUTE


def _grown(before: int | None, now: int | None) -> int | None:
    return now - before if before is not None and now is not None and now >= before else None
