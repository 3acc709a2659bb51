"""Serves /orphans: the stuck jobs of all queues, most urgent first, as of the last check."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from dashboard.api.actions import named
from dashboard.api.caller import guarded
from dashboard.api.faults import RETRY_SECONDS, Refusal
from dashboard.api.jobs import Seen
from dashboard.api.names import NAME_LIMIT, OPTIONAL_QUEUE, JobName
from dashboard.api.verdicts import VerdictOn
from dashboard.scopes import Scope
from recovery.domain.inbox import ROW_LIMIT, Inbox
from recovery.domain.refs import shown
from recovery.domain.verdicts import Cause, Kind, Stuck
from recovery.reads import stuck

router = Router(tags=["Orphans"])
SIZE = 100
SERVER_LIMIT = 300  # characters; an id from the configuration has 128, a host name 253


class Orphan(JobName):
    """One stuck job."""

    name: str
    since: int = Field(description="Since when it is stuck. For a lost worker: since the loss was first seen.")
    holder: str | None
    server: str | None = Field(description="Server from which its worker is or was connected.")
    verdict: VerdictOn
    incident: int | None
    execution: str | None = Field(
        description="The n8n execution with a mismatch; without a job, the job's id is ~ (the empty name)."
    )
    seen: Seen | None = Field(description="State at that check.")

    @classmethod
    def of_line(cls, line: Stuck) -> Orphan:
        return cls(
            **JobName.of(line.job).dict(),
            name=shown(line.name),
            since=line.since,
            holder=shown(line.holder) or None,
            server=shown(line.server) or None,
            verdict=VerdictOn.of(line.verdict),
            incident=line.incident,
            execution=line.execution or None,
            seen=Seen.of(line.row) if line.row else None,
        )


class OrphanPage(Schema):
    """A page of the most urgent thousand stuck jobs."""

    checked_at: int = Field(description="Time of the last check.")
    people: int = Field(description="Jobs that need manual action, in all queues.")
    stuck: int = Field(description="Stuck jobs, in all queues.")
    faults: list[str] = Field(description="What could not be checked.")
    orphans: list[Orphan]
    matched: int
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class OrphanQuery(Schema):
    """Filter; omitted fields match anything."""

    queue: str = Field(default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description="DEPLOYMENT/ID")
    verdict: Kind | None = None
    cause: Cause | None = None
    server: str = Field(
        default="", max_length=SERVER_LIMIT, description="Server from which its worker is or was connected."
    )
    cursor: int = Field(default=0, ge=0, le=ROW_LIMIT, description="The value of next from the previous page.")
    size: int = Field(default=SIZE, ge=1, le=SIZE)

    def chosen(self, inbox: Inbox) -> list[Stuck]:
        ref = named(self.queue) if self.queue else None
        return [
            line
            for line in inbox.rows
            if (ref is None or line.job.queue == ref)
            and (self.verdict is None or line.verdict.kind is self.verdict)
            and (self.cause is None or line.verdict.cause is self.cause)
            and self.server in ("", shown(line.server))
        ]


@router.get("/orphans", **guarded(Scope.READ), response=OrphanPage, url_name="orphans", summary="List stuck jobs")
def orphans(request: HttpRequest, query: Annotated[OrphanQuery, Query()]) -> OrphanPage:
    """Lists stuck jobs: evidence, what happens without intervention, and the suggested action. It reads no queue."""
    inbox = stuck.looked()
    if isinstance(inbox, stuck.InboxUnavailable):
        if inbox.fault:
            raise inbox.fault
        raise Refusal(503, "not_looked", inbox.text, inbox.advice, retry=RETRY_SECONDS)
    found = query.chosen(inbox)
    after = query.cursor + query.size
    return OrphanPage(
        checked_at=inbox.checked_at,
        people=inbox.people,
        stuck=inbox.stuck,
        faults=[shown(fault) for fault in inbox.faults],
        orphans=[Orphan.of_line(line) for line in found[query.cursor : after]],
        matched=len(found),
        next=str(after) if after < len(found) else None,
    )
