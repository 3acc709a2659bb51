"""Tells which rescue of a lost execution is possible, and for how long: before n8n overwrites its data, or from the
copy.

n8n 2 ends a lost execution in three steps: the lock of its job runs out, a worker's stalled check finds that and fails
the job, and main waits up to 30 s (n8n 2.41; at once before) and then overwrites the data. Nobody announces the checks,
so when the data is gone lies between two moments: the first at which it may happen, and the last at which it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import SECOND, age

MAIN_WAITS = 30 * SECOND  # n8n 2.41: MAX_STALLED_COUNT_GRACE_WINDOW_MS
UNCLAIMED_AFTER = 120 * SECOND  # a rescue that was begun has made its new execution by then, or never will


class RescueWay(StrEnum):
    """Way in which an execution can be run again now."""

    NONE = ""
    RETRY = "retry"  # n8n still has its data
    RESTORE = "restore"  # n8n has overwritten it: the copy is written back first


@dataclass(frozen=True, slots=True)
class RescueContext:
    """Facts that decide, together with `Standing`, whether an execution may be rescued."""

    loss: LostExecutionRecord | None = None
    is_claimed: bool = False  # another rescue of it has begun, and what came of it is not known yet
    release: N8nRelease = N8nRelease.UNKNOWN
    is_lost: bool = False  # each of its jobs is proven to have no worker, as read now
    is_overwritten: bool | None = None  # None: it cannot be told
    retried_as: str = ""  # an execution that is a retry of it
    no_write: str = ""  # why rows of n8n's cannot be locked and written
    note: str = ""  # why its workflow's steps may run twice, as the configuration says

    def as_record(self) -> dict[str, Any]:
        """Returns what the rescue was decided by, for the audit."""
        told: dict[str, Any] = {"overwritten": self.is_overwritten}
        if self.loss:
            told |= {"loss": self.loss.number, "verdict": self.loss.verdict.value, "proven_at": self.loss.proven_at}
        return told | ({"idempotent": self.note} if self.note else {})


@dataclass(frozen=True, slots=True)
class RescueOffer:
    """Rescue that is possible for an execution. `first` and `last`: the way closes between these two moments (ms since
    1970); None: no end is known.
    """

    way: RescueWay
    sentence: str
    is_open: bool = False  # it can be done now, as far as is known without asking n8n
    first: int | None = None
    last: int | None = None


def offer(loss: LostExecutionRecord, now: int, *, check_interval: int, keep: int) -> RescueOffer:
    """Returns the rescue that is possible for this execution now. `check_interval`: of the stalled check; `keep`: of
    copies; ms.
    """
    if loss.outcome in (LostExecutionOutcome.RESCUED, LostExecutionOutcome.RETRIED):
        return RescueOffer(RescueWay.NONE, f"It ran again as execution {loss.retried_as}.")
    if loss.started_at is None and loss.outcome is LostExecutionOutcome.AT_RISK:
        return RescueOffer(RescueWay.NONE, "It never started: requeue its job, which loses nothing.")
    if loss.claimed_at is not None and now - loss.claimed_at < UNCLAIMED_AFTER:
        return RescueOffer(RescueWay.NONE, "A rescue of it has begun.")
    if loss.outcome is LostExecutionOutcome.LOST:
        return _from_copy(loss, now, keep)
    return _before_the_end(loss, now, check_interval)


def _from_copy(loss: LostExecutionRecord, now: int, keep: int) -> RescueOffer:
    if loss.copied_at is None:
        why = loss.copy_trouble or "None was taken in time."
        return RescueOffer(RescueWay.NONE, f"There is no copy of its data. {why}")
    until = loss.copied_at + keep
    said = f"n8n has ended it. Its data can be restored from the copy, and retried, for {age(until - now)}."
    return RescueOffer(RescueWay.RESTORE, said, is_open=True, first=until, last=until)


def _before_the_end(loss: LostExecutionRecord, now: int, check_interval: int) -> RescueOffer:
    first, last = _end(loss, now, check_interval)
    if not loss.is_proven:
        why = "It is not proven yet that its worker is gone: it can be retried as soon as it is."
        return RescueOffer(RescueWay.RETRY, f"{why} {_left(first, last, now)}", first=first, last=last)
    said = f"It can be retried before n8n overwrites its data. {_left(first, last, now)}"
    return RescueOffer(RescueWay.RETRY, said, is_open=True, first=first, last=last)


def _end(loss: LostExecutionRecord, now: int, check_interval: int) -> tuple[int | None, int | None]:
    """Returns when n8n may overwrite the data at the earliest, and when it has done so at the latest."""
    if loss.unheld_at is not None:
        last = loss.unheld_at + MAIN_WAITS
        return loss.unheld_at, last if last > now else None  # main has not heard of it: it was restarted
    if loss.verdict is VerdictKind.ABANDONED:
        return None, None  # no worker is left that would check
    unlocked_at = loss.noticed_at if loss.lock_ends_at is None else loss.lock_ends_at
    return unlocked_at, unlocked_at + check_interval + MAIN_WAITS


def _left(first: int | None, last: int | None, now: int) -> str:
    if last is None or last <= now:
        return "No end of that is known: n8n does not seem to notice that its worker is gone."
    least = max(0, (first or now) - now)
    most = f"{-(-(last - now) // SECOND)} s"
    return (
        f"Possible for {least // SECOND} s at least and {most} at most." if least else f"Possible for {most} at most."
    )
