"""Describes an active job: the verdict, why, and what happens without intervention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ninja import Field, Schema

from dashboard.live import state_cache
from recovery import shared_clock
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.types import Verdict, VerdictKind
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import queries as stuck_queries


class JobVerdict(Schema):
    """The verdict on one job."""

    kind: VerdictKind
    why: str = Field(description="Evidence.")
    cause: str | None = Field(
        description="Likely cause: crashed, starved, replaced by a deployment, Redis restarted, shutdown timed out; "
        "null: unknown."
    )
    cause_why: str = Field(description="Evidence for the cause; for an unknown cause, what was seen.")
    fate: str = Field(description="What happens without intervention.")
    until: int | None = Field(description="Latest time of that; null: never or unknown.")
    suggests: Action | None
    rescuer: PolicyScanner | None = Field(description="The scanner that will do it according to its policy.")
    needs_a_person: bool
    orphaned: int = Field(description="How often it was orphaned in the last 72 hours.")
    is_quarantined: bool = Field(description="Quarantined: repeatedly stalled, so scanners do not change it.")

    @classmethod
    def of(cls, verdict: Verdict) -> JobVerdict:
        return cls(
            kind=verdict.kind,
            why=printable(verdict.why),
            cause=verdict.cause.value or None,
            cause_why=printable(verdict.cause_evidence),
            fate=printable(verdict.fate),
            until=verdict.until,
            suggests=verdict.suggests,
            rescuer=verdict.rescuer,
            needs_a_person=verdict.needs_a_person,
            orphaned=verdict.orphaned,
            is_quarantined=verdict.is_quarantined,
        )


def verdicts_by_job(queue: Queue, rows: Sequence[JobRow]) -> Mapping[str, JobVerdict]:
    """Returns the verdicts by job id; jobs that are neither active nor strays have none."""
    found = stuck_queries.verdicts_of_rows(queue, rows, state_cache.newest_snapshot(), shared_clock.now())
    return {id: JobVerdict.of(verdict) for id, verdict in found.items()}
