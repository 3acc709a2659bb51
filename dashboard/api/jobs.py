"""…/jobs: windows of a queue's lists, and one job. Payloads are redacted unless the token may see them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.api import verdicts
from dashboard.api.caller import Caller, guarded
from dashboard.api.faults import Refusal
from dashboard.api.names import SLUG, Base, Deployment, JobId, JobName, job_id, queue
from dashboard.api.verdicts import VerdictOn
from dashboard.discretion import Discretion
from dashboard.scopes import Scope
from recovery.backends.base import LIST_LIMIT
from recovery.domain import acting
from recovery.domain.jobs import JobRow, State, Text
from recovery.domain.refs import shown, slug, unslug
from recovery.reads import jobs as reads
from recovery.reads import lists

router = Router(tags=["Jobs"])
CURSOR_LIMIT = 4_000  # characters; it may hold an id
STACKS = 20  # failures, newest first


class Seen(Schema):
    """A job as it was when it was decided what to do. Hand it back with an action: what moved is then refused."""

    model_config = ConfigDict(strict=True)

    state: Annotated[State, Field(strict=False)]
    token: str | None = Field(
        default=None, max_length=1_000, pattern=SLUG, description="Of its lock; null: it had none."
    )
    processed_at: int | None = None
    attempts: int = 0
    starts: int | None = None
    stalls: int = 0

    @classmethod
    def of(cls, row: JobRow) -> Seen:
        seen = acting.Seen.of(row)
        return cls(
            state=seen.state,
            token=None if seen.token is None else slug(seen.token),
            processed_at=seen.processed_at,
            attempts=seen.attempts,
            starts=seen.starts,
            stalls=seen.stalls,
        )

    def whole(self, id: str) -> acting.Seen:
        """Raises ValueError for a token that no lock can have."""
        facts = self.dict()
        return acting.Seen(id, **{**facts, "token": None if self.token is None else unslug(self.token)})


class JobLine(JobName):
    """One job of a list. Times are milliseconds since 1970; null: not there, or not known."""

    name: str
    state: str
    added_at: int | None
    processed_at: int | None
    finished_at: int | None
    due_at: int | None
    priority: int
    attempts: int
    attempts_limit: int
    stalls: int
    worker: str | None = Field(description="The last worker that named itself.")
    lock_known: bool = Field(description="False: we may not look for its lock.")
    lock_ttl: int | None = Field(
        description="Milliseconds left; null: no lock, or one that never ends. Of a row: of its lease or its heartbeat."
    )
    has_lock: bool | None
    lease_until: int | None = Field(description="Of a row of a job table.")
    heartbeat_at: int | None = Field(description="Of a row of a job table.")
    progress: str | None
    reason: str | None = Field(description="Why it failed, in one line.")
    missing: bool = Field(description="An id in a list without a job.")
    seen: Seen
    verdict: VerdictOn | None = Field(description="On an active job, and on one that waits for nobody.")

    @classmethod
    def facts(cls, row: JobRow, see: Discretion, verdict: VerdictOn | None) -> dict[str, Any]:
        return {
            **JobName.of(row.ref).dict(),
            "name": shown(row.name),
            "state": row.state.value,
            "added_at": row.added_at,
            "processed_at": row.processed_at,
            "finished_at": row.finished_at,
            "due_at": row.due_at,
            "priority": row.priority,
            "attempts": row.attempts,
            "attempts_limit": row.attempts_limit,
            "stalls": row.stalls,
            "worker": shown(row.worker) or None,
            "lock_known": row.lock_known,
            "lock_ttl": row.lock.ttl if row.lock else None,
            "lease_until": row.lease_until,
            "heartbeat_at": row.heartbeat_at,
            "has_lock": row.lock is not None if row.lock_known else None,
            "progress": plain(see.payload(row.progress)) or None,
            "reason": plain(see.text(row.reason)) or None,
            "missing": row.missing,
            "seen": Seen.of(row),
            "verdict": verdict,
        }


class JobPage(Schema):
    """A window of one list."""

    jobs: list[JobLine]
    total: int | None
    next: str | None = Field(description="The cursor of the following page; null after the last.")


class Payload(Schema):
    """A text as far as it was read."""

    text: str
    size: int = Field(description="Bytes in all.")
    is_cut: bool


class JobWhole(JobLine):
    """One job with what it carries. A payload is cut at 64 KB unless `whole` is asked for."""

    is_redacted: bool = Field(description="True: secrets are taken out. A token with read:payloads sees them.")
    data: Payload
    options: Payload
    result: Payload
    failure: str | None
    stack: list[str] = Field(description="One an attempt, the newest first.")
    log_count: int | None


class JobQuery(Schema):
    """Which window of which list."""

    state: Literal["active", "waiting", "prioritized", "delayed", "waiting-children", "completed", "failed", "paused"]
    cursor: str = Field(default="", max_length=CURSOR_LIMIT, description="What next was on the page before.")
    size: int = Field(default=25, ge=1, le=LIST_LIMIT)


Whole = Annotated[bool, Query(description="Payloads of up to 8 MB instead of 64 KB.")]


@router.get(
    "/queues/{deployment}/{base}/jobs",
    **guarded(Scope.READ),
    response=JobPage,
    url_name="jobs",
    summary="Jobs of one state",
)
def jobs(request: HttpRequest, deployment: Deployment, base: Base, query: Annotated[JobQuery, Query()]) -> JobPage:
    """Newest first for finished jobs, oldest first for active ones, next to run first for the others."""
    found, state = queue(deployment, base), State(query.state)
    if state not in found.capabilities.states:
        has = ", ".join(found.capabilities.states)
        raise Refusal(409, "unsupported", f"Jobs of this queue are never {state}.", f"They are {has}.")
    window = lists.window(found, state, cursor=query.cursor, size=query.size)
    see, said = Caller.of(request).sees, verdicts.of_rows(found, window.rows)
    return JobPage(
        jobs=[JobLine(**JobLine.facts(row, see, said.get(row.id))) for row in window.rows],
        total=window.total,
        next=window.next or None,
    )


@router.get(
    "/queues/{deployment}/{base}/jobs/{id}",
    **guarded(Scope.READ),
    response=JobWhole,
    url_name="job",
    summary="One job",
)
def job(request: HttpRequest, deployment: Deployment, base: Base, id: JobId, whole: Whole = False) -> JobWhole:
    """Its true state, its payloads, why it failed."""
    see = Caller.of(request).sees
    place = queue(deployment, base)
    found = reads.job(place, job_id(id), whole=whole)
    verdict = verdicts.of_rows(place, (found.row,)).get(found.row.id)
    return JobWhole(
        **JobLine.facts(found.row, see, verdict),
        is_redacted=not see.sees_all,
        data=_payload(found.data, see),
        options=_payload(found.options, see),
        result=_payload(found.result, see),
        failure=plain(see.text(found.reason)) or None,
        stack=[plain(see.text(stack)) for stack in reversed(found.stack[-STACKS:])],
        log_count=found.log_count,
    )


def plain(text: str) -> str:
    """Half of a surrogate pair is no text to anybody's parser."""
    return text.encode("utf-8", "replace").decode()


def _payload(text: Text, see: Discretion) -> Payload:
    return Payload(text=plain(see.payload(text.value)), size=text.size, is_cut=text.is_cut)
