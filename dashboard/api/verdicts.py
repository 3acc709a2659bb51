"""Describes an active job: the verdict, why, and what happens without intervention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ninja import Field, Schema

from dashboard.live import mirror
from recovery import shared_clock
from recovery.domain.acting import Act
from recovery.domain.jobs import JobRow
from recovery.domain.policy import Scanner
from recovery.domain.refs import shown
from recovery.domain.verdicts import Kind, Verdict
from recovery.reads import stuck
from recovery.reads.lists import Queue


class VerdictOn(Schema):
    """The verdict on one job."""

    kind: Kind
    why: str = Field(description="Evidence.")
    cause: str | None = Field(
        description="Likely cause: crashed, starved, replaced by a deployment, Redis restarted, shutdown timed out; "
        "null: unknown."
    )
    cause_why: str = Field(description="Evidence for the cause; for an unknown cause, what was seen.")
    fate: str = Field(description="What happens without intervention.")
    until: int | None = Field(description="Latest time of that; null: never or unknown.")
    suggests: Act | None
    rescuer: Scanner | None = Field(description="The scanner that will do it according to its policy.")
    needs_a_person: bool
    orphaned: int = Field(description="How often it was orphaned in the last 72 hours.")
    is_quarantined: bool = Field(description="Quarantined: repeatedly stalled, so scanners do not change it.")

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictOn:
        return cls(
            kind=verdict.kind,
            why=shown(verdict.why),
            cause=verdict.cause.value or None,
            cause_why=shown(verdict.cause_evidence),
            fate=shown(verdict.fate),
            until=verdict.until,
            suggests=verdict.suggests,
            rescuer=verdict.rescuer,
            needs_a_person=verdict.needs_a_person,
            orphaned=verdict.orphaned,
            is_quarantined=verdict.is_quarantined,
        )


def of_rows(queue: Queue, rows: Sequence[JobRow]) -> Mapping[str, VerdictOn]:
    """Returns the verdicts by job id; jobs that are neither active nor strays have none."""
    found = stuck.of_rows(queue, rows, mirror.newest(), shared_clock.now())
    return {id: VerdictOn.of(verdict) for id, verdict in found.items()}
