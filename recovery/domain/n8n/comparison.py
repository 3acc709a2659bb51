"""Result of comparing n8n's jobs with its executions: each row has a job, an execution, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair

MISMATCH_LIMIT = 1_000  # rows: what a person can still look through; all are counted
MATCHING_LIMIT = 200  # consistent pairs: an excerpt, active ones first


class N8nRelease(StrEnum):
    """Range of n8n versions whose tables these are, as far as columns tell. What n8n does by itself depends on it."""

    OLD = "1.0 to 1.63"
    ONE = "1.64 to 2.0"
    TWO = "2.1 or later"
    UNKNOWN = "unknown"

    @property
    def fails_stalled(self) -> bool | None:
        """Tells whether the stalled check fails a lost job at once, as from 2.0 on, or requeues it; None: not known."""
        return {N8nRelease.OLD: False, N8nRelease.TWO: True}.get(self)


@dataclass(frozen=True, slots=True)
class MismatchFinding:
    """Contradiction found in a pair. `since` None: neither store says since when, and a later comparison knows. Only
    findings that are listed have texts.
    """

    kind: MismatchKind
    repair: MismatchRepair
    since: int | None = None
    evidence: tuple[str, ...] = ()
    fate: str = ""  # what happens without intervention
    parent: str = ""  # the execution that started this sub-workflow, and is lost; "" when it is not known
    cause: str = ""  # why the worker of its job was lost, a Cause; "": it was not lost, or the cause is unknown

    @property
    def why(self) -> str:
        return " ".join(self.evidence)


@dataclass(frozen=True, slots=True)
class JobExecutionPair:
    """A job beside its execution. `id` is the execution's; "" when the job names none."""

    id: str
    claim: N8nJob | None = None
    execution: Execution | None = None
    finding: MismatchFinding | None = None
    title: str = ""  # of the workflow

    @property
    def workflow(self) -> str:
        if self.execution is not None:
            return self.execution.workflow
        return self.claim.workflow if self.claim else ""

    @property
    def key(self) -> str:
        """Key of this contradiction; the next comparison gives the same one the same key."""
        job = str(self.claim.job) if self.claim else ""
        return f"{self.finding.kind if self.finding else ''} {self.id} {job}"


@dataclass(frozen=True, slots=True)
class N8nComparison:
    """Result of one comparison of one installation. `pairs`: mismatches worst first, `matching`: an excerpt of the
    others.

    What could not be read is in `fault`; then everything else says nothing. `young` are contradictions that may end by
    themselves in a moment, each with the time of the first comparison that found it.
    """

    name: str
    queue: QueueRef
    checked_at: int
    fault: str = ""
    release: N8nRelease = N8nRelease.UNKNOWN
    took: int = 0  # ms
    pairs: tuple[JobExecutionPair, ...] = ()
    matching: tuple[JobExecutionPair, ...] = ()
    counts: Mapping[MismatchKind, int] = field(default_factory=dict)
    jobs: int = 0
    executions: int = 0  # that have not ended
    parked: int = 0  # of them waiting for a time or a call
    elsewhere: int = 0  # of them run without a job, or in an unknown way: manual, cli, a mode of a newer n8n
    unsure_parents: int = 0  # sub-workflows of which it is not known whether their parent is alive
    unnamed: int = 0  # jobs that name no execution
    left_out: int = 0  # jobs and executions beyond the limits of a comparison
    young: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what this comparison could not do, one sentence each
    # Workflows with failures within the last hour, most first; None: they could not be counted.
    error_rates: tuple[ErrorRate, ...] | None = None

    @property
    def mismatches(self) -> int:
        return sum(self.counts.values())

    @property
    def people(self) -> int:
        """Number of mismatches that an operator has to look at."""
        return sum(count for kind, count in self.counts.items() if kind.needs_a_person)

    def young_since(self, execution: str) -> int | None:
        """Returns when an execution was first seen without a live job, if it is not listed for that yet."""
        keys = (f"{kind} {execution} " for kind in (MismatchKind.NO_JOB, MismatchKind.DEAD_PARENT))
        return next((self.young[key] for key in keys if key in self.young), None)

    def owns(self, queue: QueueRef) -> bool:
        """Returns True if this is its queue, or that of one of its worker pools."""
        own = self.queue
        is_pool = queue.base.startswith(f"{own.base}-")
        return queue.deployment == own.deployment and (queue.base == own.base or is_pool)

    def fresh(self, grace: int) -> int:
        """Counts contradictions that become mismatches if they last."""
        return sum(self.checked_at - since < grace for since in self.young.values())
