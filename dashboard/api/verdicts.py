"""What is said of a job that is active: the verdict, why, and what happens if nobody acts."""

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
    why: str = Field(description="The evidence.")
    cause: str | None = Field(description="A hint: crashed, starved, deployed over, Redis restarted; null: unknown.")
    cause_why: str = Field(description="What it rests on; of an unknown cause, what was seen.")
    fate: str = Field(description="What happens if nobody acts.")
    until: int | None = Field(description="When that happens at the latest; null: never, or nobody knows.")
    suggests: Act | None
    rescuer: Scanner | None = Field(description="The scanner that does it, because its policy lets it.")
    needs_a_person: bool
    orphaned: int = Field(description="How often it was orphaned before, within 72 hours.")
    is_poison: bool = Field(description="So often that only a person should run it again.")

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
            is_poison=verdict.is_poison,
        )


def of_rows(queue: Queue, rows: Sequence[JobRow]) -> Mapping[str, VerdictOn]:
    """By id; of jobs that are neither active nor strays nothing is said."""
    found = stuck.of_rows(queue, rows, mirror.newest(), shared_clock.now())
    return {id: VerdictOn.of(verdict) for id, verdict in found.items()}
