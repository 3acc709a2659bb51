"""Defines the verdict of one active job: its kind, its cause, what happens without intervention, and the suggested
action.

Pure: what was seen and when comes in, a verdict comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import JobRef
from recovery.domain.jobs import JobRow
from recovery.domain.policies.types import PolicyScanner


class VerdictKind(StrEnum):
    """Kinds of verdicts, as every page names them; `urgency` orders the list of stuck jobs."""

    RUNNING = "running"
    LATE = "late"
    WORKER_LOST = "worker-lost"
    UNLOCKED = "unlocked"
    ORPHAN = "orphan"
    ABANDONED = "abandoned"
    OVERDUE = "overdue"
    MISSING_DATA = "missing-data"
    STRAY = "stray"
    MALFORMED = "malformed"
    N8N = "n8n"  # its execution says something else than the job, or has none
    UNKNOWN = "unknown"

    @property
    def is_orphaned(self) -> bool:
        return self in (VerdictKind.ORPHAN, VerdictKind.ABANDONED)

    @property
    def is_lost(self) -> bool:
        """Returns True if its holder is gone, or seems to be: what an incident is about."""
        return self in (VerdictKind.ABANDONED, VerdictKind.ORPHAN, VerdictKind.WORKER_LOST, VerdictKind.UNLOCKED)

    @property
    def urgency(self) -> int:
        """Returns the urgency, larger is more urgent; 0 needs no look."""
        return _URGENCY.get(self, 0)


_URGENCY = {
    VerdictKind.ABANDONED: 9,
    VerdictKind.ORPHAN: 7,
    VerdictKind.WORKER_LOST: 6,
    VerdictKind.N8N: 5,
    VerdictKind.MALFORMED: 5,
    VerdictKind.OVERDUE: 4,
    VerdictKind.MISSING_DATA: 3,
    VerdictKind.STRAY: 2,
    VerdictKind.UNLOCKED: 1,
    VerdictKind.LATE: 1,
}
_QUARANTINE_URGENCY = 8
_PEOPLES = (
    VerdictKind.ABANDONED,
    VerdictKind.N8N,
    VerdictKind.MALFORMED,
    VerdictKind.OVERDUE,
    VerdictKind.MISSING_DATA,
    VerdictKind.STRAY,
)


class LossCause(StrEnum):
    CRASHED = "crashed"
    STARVED = "starved"
    DEPLOYED = "replaced by a deployment"
    RESTARTED = "Redis restarted"
    TIMED_OUT = "shutdown timed out"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of a job. `until`: when the predicted recovery happens at the latest (ms), None: never, or not known."""

    kind: VerdictKind
    evidence: tuple[str, ...] = ()
    cause: LossCause = LossCause.UNKNOWN
    cause_evidence: str = ""
    fate: str = ""  # one sentence: what happens without intervention
    until: int | None = None
    suggests: Action | None = None
    orphaned: int = 0  # how often this job was orphaned before, within 72 h
    is_quarantined: bool = False
    behind: VerdictKind | None = None  # malformed: the kind by its lock alone
    rescuer: PolicyScanner | None = None  # recovers it by itself, until then at the latest

    @property
    def why(self) -> str:
        return " ".join(self.evidence)

    @property
    def of_lock(self) -> VerdictKind:
        """Returns the kind by its lock, whatever its data is like: proof for actions, and what an incident is about."""
        return self.behind or self.kind

    @property
    def urgency(self) -> int:
        """Returns the urgency. Bad data makes no orphan less urgent."""
        urgency = max(self.kind.urgency, self.of_lock.urgency)
        return max(urgency, _QUARANTINE_URGENCY) if self.is_quarantined else urgency

    @property
    def needs_a_person(self) -> bool:
        """Returns True if nothing recovers it without a person."""
        return needs_a_person(self.kind, self.until, self.rescuer, is_quarantined=self.is_quarantined)


def needs_a_person(
    kind: VerdictKind, until: int | None, rescuer: PolicyScanner | None, *, is_quarantined: bool
) -> bool:
    """Returns True if nothing recovers a job without a person; `until` and `rescuer` are those of its outlook."""
    if rescuer is not None:
        return False
    if kind in (VerdictKind.ORPHAN, VerdictKind.WORKER_LOST):
        return is_quarantined or until is None
    return kind in _PEOPLES


@dataclass(frozen=True, slots=True)
class StuckJob:
    """Row of the list of stuck jobs."""

    job: JobRef
    name: str
    verdict: Verdict
    since: int  # ms: since when it has had this verdict; of one without its holder, any verdict that says so
    holder: str = ""  # worker, as far as it is known
    row: JobRow | None = None
    incident: int | None = None  # number of the open incident
    server: str = ""  # from where its holder is or was connected, as far as it is known
    execution: str = ""  # n8n's, that contradicts the job; its `job` has no id when there is none

    @property
    def has_job(self) -> bool:
        return bool(self.job.id)
