"""Finds out how auto-retried jobs have ended.

A job that is gone is the hard case. It had failed and was kept, so it would be kept if it had failed again: it
succeeded and was removed at once, unless an action removed it, or later failed jobs may have pushed it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.backends.shared import endings, finishes
from recovery.backends.shared.finishes import Finish
from recovery.domain.ages import MINUTE
from recovery.domain.breaker import Ended, Out
from recovery.domain.counts import Library
from recovery.domain.jobs import JobRow, State
from recovery.reads import acts
from recovery.reads.lists import Queue

UNDER_WAY = MINUTE  # a recorded retry is made within this time, or not at all
AT_ONCE = 100  # rows read in one go


@dataclass(frozen=True, slots=True)
class End:
    """End of a retried job. `error`: the first line of its new error."""

    ended: Ended
    error: str = ""


_NEVER_WENT = End(Ended.UNKNOWN)


def failed_at(queue: Queue, ids: Sequence[str]) -> dict[str, int]:
    """Returns when each of these jobs that is failed now has failed; 0: unknown. Raises StoreError."""
    found = zip(ids, _finishes(queue, ids), strict=True)
    return {id: one.failed_at for id, one in found if one is not None and one.failed_at is not None}


def ends(queue: Queue, outs: Sequence[Out], now: int) -> dict[str, End]:
    """Returns how those of these jobs that have ended did so, by id. Raises StoreError and DatabaseError."""
    by_id = {out.id: out for out in outs}
    found = zip(by_id.values(), _finishes(queue, list(by_id)), strict=True)
    known = [(out, one) for out, one in found if one is not None]
    ended = {out.id: End(Ended.SUCCEEDED) for out, one in known if one.is_completed}
    failed = [out for out, one in known if not one.is_completed and _has_failed_again(out, one)]
    ended |= {id: End(Ended.FAILED, error) for id, error in _errors(queue, [out.id for out in failed]).items()}
    still = [out for out, one in known if one.failed_at is not None and out.id not in ended]
    ended |= {out.id: _NEVER_WENT for out in still if now - out.at > UNDER_WAY}
    gone = [out for out, one in known if not (one.is_there or one.is_completed or one.failed_at is not None)]
    return ended | _of_gone(queue, gone)


def _has_failed_again(out: Out, one: Finish) -> bool:
    if one.failed_at is None:
        return False
    return one.failed_at != out.failed_at if out.failed_at else one.failed_at > out.at


def _errors(queue: Queue, ids: Sequence[str]) -> dict[str, str]:
    """Reads the errors of these jobs. One that has moved on since then still counts as failed, without its error."""
    found: dict[str, str] = {}
    for start in range(0, len(ids), AT_ONCE):
        part = ids[start : start + AT_ONCE]
        rows = queue.reader.rows(queue.wire, queue.ref, [(id, State.FAILED) for id in part])
        found |= {id: row.reason if row else "" for id, row in zip(part, rows, strict=True)}
    return found


def _of_gone(queue: Queue, gone: Sequence[Out]) -> dict[str, End]:
    if not gone:
        return {}
    if queue.flavour.library is Library.TABLE:
        return {out.id: End(Ended.UNKNOWN) for out in gone}
    since = min(out.at for out in gone)
    is_bullmq = queue.flavour.library is Library.BULLMQ
    told = endings.events(queue.wire, queue.ref, since) if is_bullmq else {}
    taken = acts.removed(queue.ref, [out.id for out in gone], since)
    oldest = finishes.oldest_failed(queue.wire, queue.ref)
    return {out.id: End(_how(out, told.get(out.id, set()), out.id in taken, oldest)) for out in gone}


def _how(out: Out, told: set[str], is_taken: bool, oldest: int | None) -> Ended:
    if "completed" in told:
        return Ended.SUCCEEDED
    if "failed" in told:
        return Ended.FAILED
    may_be_trimmed = oldest is not None and oldest > out.at
    return Ended.UNKNOWN if is_taken or may_be_trimmed else Ended.SUCCEEDED


def _finishes(queue: Queue, ids: Sequence[str]) -> list[Finish | None]:
    if queue.flavour.library is not Library.TABLE:
        return finishes.finishes(queue.wire, queue.ref, ids)
    rows: list[JobRow | None] = []
    for start in range(0, len(ids), AT_ONCE):
        part = ids[start : start + AT_ONCE]
        rows += queue.reader.rows(queue.wire, queue.ref, [(id, State.FAILED) for id in part])
    return [_of_row(row) for row in rows]


def _of_row(row: JobRow | None) -> Finish:
    if row is None:
        return Finish(is_there=False, is_completed=False, failed_at=None)
    failed = (row.finished_at or 0) if row.state is State.FAILED else None
    return Finish(not row.missing, row.state is State.COMPLETED, failed)
