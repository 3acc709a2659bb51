"""Serves /orphans: the stuck jobs of all queues, most urgent first, as of the last check."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from dashboard.accounts.token_scopes import TokenScope
from dashboard.actions.api import parse_queue
from dashboard.api.auth import requires_scope
from dashboard.api.error_responses import RETRY_SECONDS, ApiError
from dashboard.api.identifiers import NAME_LIMIT, OPTIONAL_QUEUE, JobName
from dashboard.queues.job.api import JobPrecondition
from dashboard.stuck.verdict_schema import JobVerdict
from recovery.domain.identifiers import printable
from recovery.domain.stuck.inbox import ROW_LIMIT, StuckInbox
from recovery.domain.stuck.types import LossCause, StuckJob, VerdictKind
from recovery.reads.stuck import queries as stuck_queries

router = Router(tags=["Orphans"])
SIZE = 100
SERVER_LIMIT = 300  # characters; an id from the configuration has 128, a host name 253


class StuckJobDetail(JobName):
    """A stuck job."""

    name: str
    since: int = Field(description="Since when it is stuck. For a lost worker: since the loss was first seen.")
    holder: str | None
    server: str | None = Field(description="Server from which its worker is or was connected.")
    verdict: JobVerdict
    incident: int | None
    execution: str | None = Field(
        description="The n8n execution with a mismatch; without a job, the job's id is ~ (the empty name)."
    )
    seen: JobPrecondition | None = Field(description="State at that check.")

    @classmethod
    def of_line(cls, line: StuckJob) -> StuckJobDetail:
        return cls(
            **JobName.of(line.job).dict(),
            name=printable(line.name),
            since=line.since,
            holder=printable(line.holder) or None,
            server=printable(line.server) or None,
            verdict=JobVerdict.of(line.verdict),
            incident=line.incident,
            execution=line.execution or None,
            seen=JobPrecondition.of(line.row) if line.row else None,
        )


class OrphanPage(Schema):
    """A page of the most urgent thousand stuck jobs."""

    checked_at: int = Field(description="Time of the last check.")
    people: int = Field(description="Jobs that need manual action, in all queues.")
    stuck: int = Field(description="Stuck jobs, in all queues.")
    faults: list[str] = Field(description="What could not be checked.")
    orphans: list[StuckJobDetail]
    matched: int
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class OrphanQuery(Schema):
    """Filter; omitted fields match anything."""

    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description="DEPLOYMENT/ID")
    verdict: VerdictKind | None = None
    cause: LossCause | None = None
    server: str = Field(
        default="", max_length=SERVER_LIMIT, description="Server from which its worker is or was connected."
    )
    cursor: int = Field(default=0, ge=0, le=ROW_LIMIT, description="The value of next from the previous page.")
    size: int = Field(default=SIZE, ge=1, le=SIZE)

    def chosen(self, inbox: StuckInbox) -> list[StuckJob]:
        ref = parse_queue(self.queue) if self.queue else None
        return [
            line
            for line in inbox.rows
            if (ref is None or line.job.queue == ref)
            and (self.verdict is None or line.verdict.kind is self.verdict)
            and (self.cause is None or line.verdict.cause is self.cause)
            and self.server in ("", printable(line.server))
        ]


@router.get(
    "/orphans", **requires_scope(TokenScope.READ), response=OrphanPage, url_name="orphans", summary="List stuck jobs"
)
def orphans(request: HttpRequest, query: Annotated[OrphanQuery, Query()]) -> OrphanPage:
    """Lists stuck jobs: evidence, what happens without intervention, and the suggested action. It reads no queue."""
    inbox = stuck_queries.inbox_or_reason()
    if isinstance(inbox, stuck_queries.InboxUnavailable):
        if inbox.fault:
            raise inbox.fault
        raise ApiError(503, "not_looked", inbox.text, inbox.advice, retry=RETRY_SECONDS)
    found = query.chosen(inbox)
    after = query.cursor + query.size
    return OrphanPage(
        checked_at=inbox.checked_at,
        people=inbox.people,
        stuck=inbox.stuck,
        faults=[printable(fault) for fault in inbox.faults],
        orphans=[StuckJobDetail.of_line(line) for line in found[query.cursor : after]],
        matched=len(found),
        next=str(after) if after < len(found) else None,
    )
