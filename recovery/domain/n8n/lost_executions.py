"""Executions of n8n whose worker was late or lost: what is recorded of each, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.identifiers import JobRef
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import DAY

# Verdicts under which an execution may be about to lose its data, and those that prove that its worker is gone: its
# connection is closed, or its job was seen without a lock for as long as the orphan watch asks for.
AT_RISK = frozenset(
    {VerdictKind.LATE, VerdictKind.WORKER_LOST, VerdictKind.UNLOCKED, VerdictKind.ORPHAN, VerdictKind.ABANDONED}
)
PROVEN = frozenset({VerdictKind.WORKER_LOST, VerdictKind.ORPHAN, VerdictKind.ABANDONED})
_GRAVITY = (VerdictKind.LATE, VerdictKind.UNLOCKED, VerdictKind.WORKER_LOST, VerdictKind.ORPHAN, VerdictKind.ABANDONED)


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Limits on the copies of data of executions at risk, for one installation. Sizes in bytes, `keep` in ms."""

    is_on: bool = True
    each: int = 4 << 20  # of an execution's data as n8n keeps it
    total: int = 256 << 20  # of all copies, compressed
    count: int = 1000
    keep: int = 7 * DAY


class LostExecutionOutcome(StrEnum):
    """Outcome of an execution whose worker was late or lost."""

    AT_RISK = "at risk"  # it has not ended, and no worker renews the lock of its job
    HELD = "held"  # a worker renews the lock again; in no list
    LOST = "lost"
    RESCUED = "rescued"  # run again before n8n ended it
    RETRIED = "retried"  # run again afterwards


@dataclass(frozen=True, slots=True)
class LostExecutionRecord:
    """A recorded execution whose worker was late or lost. Times are ms since 1970; `copy_size` None: there is no copy
    of its data.
    """

    number: int
    n8n: str
    execution: str
    workflow: str
    title: str
    mode: str
    job: JobRef
    verdict: VerdictKind  # the gravest that its job had
    noticed_at: int
    outcome: LostExecutionOutcome
    started_at: int | None = None
    worker: str = ""
    cause: str = ""
    proven_at: int | None = None
    lock_ends_at: int | None = None  # as it was when the job was seen last
    unheld_at: int | None = None  # first seen without any job
    ended_at: int | None = None
    claimed_at: int | None = None  # a rescue has begun, and its result is not known yet
    retried_as: str = ""
    audit: int | None = None
    copied_at: int | None = None
    copy_size: int | None = None
    copy_trouble: str = ""  # why there is no copy

    @property
    def is_proven(self) -> bool:
        return self.proven_at is not None

    @property
    def has_copy(self) -> bool:
        return self.copy_size is not None


def graver(one: VerdictKind, other: VerdictKind) -> VerdictKind:
    """Returns the graver of two verdicts under which an execution is at risk."""
    return max(one, other, key=_GRAVITY.index)
