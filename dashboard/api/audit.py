"""/audit: who did what to which job, with what reason, and what came of it."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.api.actions import REASON_LIMIT, ActionResults, Result, named
from dashboard.api.caller import Caller, guarded
from dashboard.api.names import NAME_LIMIT, OPTIONAL_QUEUE, OPTIONAL_SLUG, SLUG, QueueName, job_id, readable
from dashboard.scopes import Scope
from recovery import shared_clock
from recovery.actions import runner
from recovery.domain.acting import Act, Outcome
from recovery.domain.refs import shown, slug
from recovery.reads import audit as reads

router = Router(tags=["Audit"])
LARGEST = 2**63 - 1  # what a database takes for a number
TEXT = r"^[^\x00]*$"  # a NUL is what no database takes in a text
Number = Annotated[int, Path(ge=1, le=LARGEST)]


class AuditLine(Schema):
    """One act with what came of it, or one note."""

    number: int
    at: int
    actor_kind: str = Field(description="person, token, shell, scanner")
    actor: str
    role: str
    address: str
    act: str
    queue: QueueName | None
    job: str | None = Field(description="The id of its only job; null: several, or the queue itself.")
    reason: str
    status: str = Field(description="noted, under way, unknown; else the outcome of all its jobs, or mixed.")
    tally: dict[str, int] = Field(description="Its jobs by outcome.")
    outcome: int | None = Field(description="Number of the entry that holds the outcome.")

    @classmethod
    def facts(cls, line: reads.Line) -> dict[str, Any]:
        return {
            "number": line.number,
            "at": line.at,
            "actor_kind": line.actor_kind,
            "actor": line.actor,
            "role": line.role,
            "address": line.address,
            "act": line.act,
            "queue": QueueName.of(line.queue) if line.queue else None,
            "job": None if line.job is None else slug(line.job),
            "reason": line.reason,
            "status": line.status(shared_clock.now()),
            "tally": dict(line.tally),
            "outcome": line.outcome,
        }


class AuditPage(Schema):
    """Newest first."""

    entries: list[AuditLine]
    next: str | None = Field(description="The cursor of the following page; null after the last.")


class AuditJob(Schema):
    """One job of an act: how it was, what came of it, how it was right after."""

    job: str
    label: str
    outcome: str
    why: str
    before: dict[str, Any]
    after: dict[str, Any]
    verdict: dict[str, Any]


class AuditWhole(AuditLine):
    """One act in full, and its place in the chain."""

    options: dict[str, Any]
    jobs: list[AuditJob]
    hash: str
    previous: str


class AuditQuery(Schema):
    """Which entries; what is left out is any."""

    actor: str = Field(default="", max_length=200, pattern=TEXT)
    act: str = Field(default="", max_length=32, pattern=TEXT)
    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description="DEPLOYMENT/ID")
    job: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_SLUG)
    outcome: Outcome | None = None
    since: int | None = Field(default=None, ge=0, le=LARGEST)
    until: int | None = Field(default=None, ge=0, le=LARGEST, description="Not included.")
    cursor: str = Field(default="", max_length=20, pattern=r"^[0-9]*$", description="What next was on the page before.")
    size: int = Field(default=50, ge=1, le=max(reads.SIZES))

    def chosen(self) -> reads.Filter:
        return reads.Filter(
            actor=self.actor,
            act=self.act,
            queue=named(self.queue) if self.queue else None,
            job=job_id(self.job) if self.job else "",
            outcome=self.outcome.value if self.outcome else "",
            since=self.since,
            until=self.until,
        )


class RestoreOrder(Schema):
    """Which jobs of an entry come back; without `jobs` all of them."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"reason": "removed by mistake"}}
    )

    reason: str = Field(max_length=REASON_LIMIT, pattern=r"\S", description="For whoever reads the audit.")
    jobs: list[Annotated[str, Field(max_length=NAME_LIMIT, pattern=SLUG)]] = Field(
        default=[], max_length=runner.AT_ONCE
    )


@router.get("/audit", **guarded(Scope.AUDIT), response=AuditPage, url_name="audit", summary="What was done")
def audit(request: HttpRequest, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """By whom, to which job, with what reason, and what came of it."""
    found = reads.entries(query.chosen(), query.cursor, query.size)
    return AuditPage(entries=[AuditLine(**AuditLine.facts(line)) for line in found.lines], next=found.next or None)


@router.get("/audit/{number}", **guarded(Scope.AUDIT), response=AuditWhole, url_name="entry", summary="One entry")
def entry(request: HttpRequest, number: Number) -> AuditWhole:
    """Also by the number of its outcome, as an action's result tells it."""
    found = reads.entry(number)
    return AuditWhole(
        **AuditLine.facts(found.line),
        options=readable(found.options),
        jobs=[_job(fate) for fate in found.jobs],
        hash=found.entry.hash,
        previous=found.entry.link.previous,
    )


@router.post(
    "/audit/{number}/restore",
    **guarded(Scope.ACT),
    response=ActionResults,
    url_name="restore",
    summary="Put back what an entry took away",
)
def restore(request: HttpRequest, number: Number, order: RestoreOrder) -> ActionResults:
    """For 24 hours. An act of its own, with an entry of its own."""
    queue = reads.entry(number).entry.queue
    ids = tuple(map(job_id, order.jobs))
    results = runner.restore(number, Caller.of(request).actor, order.reason, ids)
    return ActionResults(
        action=Act.RESTORE,
        queue=QueueName.of(queue) if queue else None,
        dry_run=False,
        results=[Result.of(one) for one in results],
    )


def _job(fate: reads.Fate) -> AuditJob:
    return AuditJob(
        job=slug(fate.id) if fate.id else "",
        label=shown(fate.id),
        outcome=fate.outcome,
        why=shown(fate.why),
        before=readable(fate.before),
        after=readable(fate.after),
        verdict=readable(fate.verdict),
    )
