"""Serves /audit: who did what to which job, for what reason and with what outcome."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.accounts.token_scopes import TokenScope
from dashboard.actions.api import REASON_LIMIT, ActionJobResult, ActionResults, parse_queue
from dashboard.api.auth import ApiCaller, requires_scope
from dashboard.api.identifiers import NAME_LIMIT, OPTIONAL_QUEUE, OPTIONAL_SLUG, SLUG, QueueName, job_id, readable
from recovery import shared_clock
from recovery.actions import runner
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import printable, slug
from recovery.reads.audit import queries as reads

router = Router(tags=["Audit"])
LARGEST = 2**63 - 1  # what a database takes for a number
TEXT = r"^[^\x00]*$"  # a NUL is what no database takes in a text
Number = Annotated[int, Path(ge=1, le=LARGEST)]


class AuditLine(Schema):
    """An action with its outcome, or one note."""

    number: int
    at: int
    actor_kind: str = Field(description="person, token, shell or scanner")
    actor: str
    role: str
    address: str
    act: str
    queue: QueueName | None
    job: str | None = Field(description="The id of its only job; null: several jobs or the queue itself.")
    reason: str
    status: str = Field(description="recorded, in progress, unknown, or the outcome of all its jobs, or mixed.")
    tally: dict[str, int] = Field(description="Number of jobs by outcome.")
    outcome: int | None = Field(description="Number of the audit entry with the outcome.")

    @classmethod
    def facts(cls, line: reads.AuditRow) -> dict[str, Any]:
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
    """Audit entries, newest first."""

    entries: list[AuditLine]
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class AuditEntryJob(Schema):
    """A job of an action: state before, outcome, state after."""

    job: str
    label: str
    outcome: str
    why: str
    before: dict[str, Any]
    after: dict[str, Any]
    verdict: dict[str, Any]
    affected: list[dict[str, Any]] = Field(description="Children and parents that also changed (the first of them).")
    affected_total: int


class AuditEntryDetail(AuditLine):
    """An action in full, with its hash chain entry."""

    options: dict[str, Any]
    jobs: list[AuditEntryJob]
    hash: str
    previous: str


class AuditQuery(Schema):
    """Filter for entries; omitted fields match anything."""

    actor: str = Field(default="", max_length=200, pattern=TEXT)
    act: str = Field(default="", max_length=32, pattern=TEXT)
    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description="DEPLOYMENT/ID")
    job: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_SLUG)
    outcome: Outcome | None = None
    since: int | None = Field(default=None, ge=0, le=LARGEST)
    until: int | None = Field(default=None, ge=0, le=LARGEST, description="Not included.")
    cursor: str = Field(
        default="", max_length=20, pattern=r"^[0-9]*$", description="The value of next from the previous page."
    )
    size: int = Field(default=50, ge=1, le=max(reads.SIZES))

    def chosen(self) -> reads.AuditFilter:
        return reads.AuditFilter(
            actor=self.actor,
            act=self.act,
            queue=parse_queue(self.queue) if self.queue else None,
            job=job_id(self.job) if self.job else "",
            outcome=self.outcome.value if self.outcome else "",
            since=self.since,
            until=self.until,
        )


class RestoreOrder(Schema):
    """Jobs of an entry to restore; without `jobs` all of them."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"reason": "removed by mistake"}}
    )

    reason: str = Field(max_length=REASON_LIMIT, pattern=r"\S", description="Recorded in the audit log.")
    jobs: list[Annotated[str, Field(max_length=NAME_LIMIT, pattern=SLUG)]] = Field(
        default=[], max_length=runner.AT_ONCE
    )


@router.get(
    "/audit", **requires_scope(TokenScope.AUDIT), response=AuditPage, url_name="audit", summary="List audit entries"
)
def audit(request: HttpRequest, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """Lists who changed which job, for what reason and with what outcome."""
    found = reads.entries(query.chosen(), query.cursor, query.size)
    return AuditPage(entries=[AuditLine(**AuditLine.facts(line)) for line in found.lines], next=found.next or None)


@router.get(
    "/audit/{number}",
    **requires_scope(TokenScope.AUDIT),
    response=AuditEntryDetail,
    url_name="entry",
    summary="Get an audit entry",
)
def entry(request: HttpRequest, number: Number) -> AuditEntryDetail:
    """Returns an entry by its number, or by that of its outcome, as returned by an action."""
    found = reads.entry(number)
    return AuditEntryDetail(
        **AuditLine.facts(found.line),
        options=readable(found.options),
        jobs=[_job(fate) for fate in found.jobs],
        hash=found.entry.hash,
        previous=found.entry.link.previous,
    )


@router.post(
    "/audit/{number}/restore",
    **requires_scope(TokenScope.ACT),
    response=ActionResults,
    url_name="restore",
    summary="Restore removed jobs",
)
def restore(request: HttpRequest, number: Number, order: RestoreOrder) -> ActionResults:
    """Restores jobs within 24 hours of their removal. The restore gets its own audit entry."""
    queue = reads.entry(number).entry.queue
    ids = tuple(map(job_id, order.jobs))
    results = runner.restore(number, ApiCaller.of(request).actor, order.reason, ids)
    return ActionResults(
        action=Action.RESTORE,
        queue=QueueName.of(queue) if queue else None,
        dry_run=False,
        results=[ActionJobResult.of(one) for one in results],
    )


def _job(fate: reads.AuditedJob) -> AuditEntryJob:
    return AuditEntryJob(
        job=slug(fate.id) if fate.id else "",
        label=printable(fate.id),
        outcome=fate.outcome,
        why=printable(fate.why),
        before=readable(fate.before),
        after=readable(fate.after),
        verdict=readable(fate.verdict),
        affected=[readable(one) for one in fate.affected],
        affected_total=fate.affected_total,
    )
