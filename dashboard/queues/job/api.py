"""Serves …/jobs: pages of a queue's lists, and one job. Payloads are shown by shape, values only when revealed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.auth import ScopeAuth, requires_scope
from dashboard.api.error_responses import ApiError
from dashboard.api.identifiers import SLUG, Base, Deployment, JobId, JobName, job_id, queue
from dashboard.base.redaction import MASKED, PayloadPart, PayloadRedactor
from dashboard.stuck import verdict_schema
from dashboard.stuck.verdict_schema import JobVerdict
from recovery.actions.audit import payload_reveals
from recovery.backends.base import LIST_LIMIT
from recovery.domain.actions import types as actions_types
from recovery.domain.identifiers import QueueRef, printable, slug, unslug
from recovery.domain.jobs import BoundedText, JobRow, JobState
from recovery.reads.queues import job_details as reads
from recovery.reads.queues import job_lists

router = Router(tags=["Jobs"])
CURSOR_LIMIT = 4_000  # characters; it may hold an id
STACKS = 20  # failures, newest first


class JobPrecondition(Schema):
    """A job as it was when the action was decided. Send it with the action: a job that has changed since is refused."""

    model_config = ConfigDict(strict=True)

    state: Annotated[JobState, Field(strict=False)]
    token: str | None = Field(
        default=None, max_length=1_000, pattern=SLUG, description="Token of its lock; null: no lock."
    )
    processed_at: int | None = None
    attempts: int = 0
    starts: int | None = None
    stalls: int = 0

    @classmethod
    def of(cls, row: JobRow) -> JobPrecondition:
        seen = actions_types.ExpectedJob.of(row)
        return cls(
            state=seen.state,
            token=None if seen.token is None else slug(seen.token),
            processed_at=seen.processed_at,
            attempts=seen.attempts,
            starts=seen.starts,
            stalls=seen.stalls,
        )

    def whole(self, id: str) -> actions_types.ExpectedJob:
        """Returns it as the engine takes it. Raises ValueError for a token that no lock can have."""
        facts = self.dict()
        return actions_types.ExpectedJob(id, **{**facts, "token": None if self.token is None else unslug(self.token)})


class JobLine(JobName):
    """A job of a list. Times are milliseconds since 1970; null: not there, or not known."""

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
    worker: str | None = Field(description="Name of the last worker that set one.")
    lock_known: bool = Field(description="false: no permission to read its lock.")
    lock_ttl: int | None = Field(
        description="TTL in milliseconds; null: no lock, or it never expires. For a row: of its lease or heartbeat."
    )
    has_lock: bool | None
    lease_until: int | None = Field(description="Only for rows of a job table.")
    heartbeat_at: int | None = Field(description="Only for rows of a job table.")
    progress: str | None = Field(description="0 to 100 as it is, else the payload shape: types and sizes.")
    reason: str | None = Field(description="Why it failed, as one line.")
    missing: bool = Field(description="Missing job data: the list has the id, but the job does not exist.")
    seen: JobPrecondition
    verdict: JobVerdict | None = Field(
        description="For active jobs, and for jobs that wait for a parent or child that no longer exists."
    )

    @classmethod
    def facts(cls, row: JobRow, see: PayloadRedactor, verdict: JobVerdict | None) -> dict[str, Any]:
        return {
            **JobName.of(row.ref).dict(),
            "name": printable(row.name),
            "state": row.state.value,
            "added_at": row.added_at,
            "processed_at": row.processed_at,
            "finished_at": row.finished_at,
            "due_at": row.due_at,
            "priority": row.priority,
            "attempts": row.attempts,
            "attempts_limit": row.attempts_limit,
            "stalls": row.stalls,
            "worker": printable(row.worker) or None,
            "lock_known": row.lock_known,
            "lock_ttl": row.lock.ttl if row.lock else None,
            "lease_until": row.lease_until,
            "heartbeat_at": row.heartbeat_at,
            "has_lock": row.lock is not None if row.lock_known else None,
            "progress": plain(see.payload(row.ref.queue, PayloadPart.PROGRESS, row.progress)) or None,
            "reason": plain(see.text(row.reason)) or None,
            "missing": row.missing,
            "seen": JobPrecondition.of(row),
            "verdict": verdict,
        }


class JobPage(Schema):
    """A page of one list."""

    jobs: list[JobLine]
    total: int | None
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class PayloadText(Schema):
    """A payload as far as it was read."""

    text: str = Field(
        description="JSON of the same structure, with descriptions like <number> for values. If revealed: the values."
    )
    size: int = Field(description="Total size in bytes.")
    is_cut: bool


class JobDetail(JobLine):
    """A job with its payloads. Payloads are cut at 64 KB unless `whole` is set."""

    is_redacted: bool = Field(description="true: payload values or secrets in texts are hidden.")
    revealed: list[RevealedPart] = Field(description="Parts with revealed values.")
    data: PayloadText
    options: PayloadText
    result: PayloadText
    failure: str | None
    stack: list[str] = Field(description="One per attempt, newest first.")
    log_count: int | None


class JobQuery(Schema):
    """Page of a list."""

    state: Literal["active", "waiting", "prioritized", "delayed", "waiting-children", "completed", "failed", "paused"]
    cursor: str = Field(default="", max_length=CURSOR_LIMIT, description="The value of next from the previous page.")
    size: int = Field(default=25, ge=1, le=LIST_LIMIT)


RevealedPart = Literal[
    PayloadPart.DATA, PayloadPart.OPTIONS, PayloadPart.RESULT, PayloadPart.PROGRESS, PayloadPart.ERROR
]
Reveal = Annotated[
    list[RevealedPart],
    Query(
        default_factory=list,
        max_length=10,
        description="Reveal these parts. Also requires read:payloads; each call is recorded in the audit log.",
    ),
]
Whole = Annotated[bool, Query(description="Payloads of up to 8 MB instead of 64 KB.")]


@router.get(
    "/queues/{deployment}/{base}/jobs",
    **requires_scope(TokenScope.READ),
    response=JobPage,
    url_name="jobs",
    summary="List jobs",
)
def jobs(request: HttpRequest, deployment: Deployment, base: Base, query: Annotated[JobQuery, Query()]) -> JobPage:
    """Lists finished jobs newest first, active ones oldest first, the others next to run first."""
    found, state = queue(deployment, base), JobState(query.state)
    if state not in found.capabilities.states:
        has = ", ".join(found.capabilities.states)
        raise ApiError(409, "unsupported", f"Jobs of this queue have no state {state}.", f"Its states: {has}.")
    window = job_lists.window(found, state, cursor=query.cursor, size=query.size)
    said = verdict_schema.verdicts_by_job(found, window.rows)
    return JobPage(
        jobs=[JobLine(**JobLine.facts(row, MASKED, said.get(row.id))) for row in window.rows],
        total=window.total,
        next=window.next or None,
    )


@router.get(
    "/queues/{deployment}/{base}/jobs/{id}",
    **requires_scope(TokenScope.READ),
    response=JobDetail,
    url_name="job",
    summary="Get a job",
)
def job(  # noqa: PLR0917 -- parameters of the address
    request: HttpRequest, deployment: Deployment, base: Base, id: JobId, reveal: Reveal, whole: Whole = False
) -> JobDetail:
    """Returns state, payload shapes and failure. With reveal: the values of the requested parts."""
    asked = ScopeAuth.require(request, TokenScope.PAYLOADS) if reveal else None
    place = queue(deployment, base)
    found = reads.job(place, job_id(id), whole=whole)
    parts = [part for part in get_args(RevealedPart) if part in reveal]
    if asked:
        payload_reveals.record_of_job(asked.actor, found.row.ref, parts)
    see = PayloadRedactor(frozenset(parts))
    verdict = verdict_schema.verdicts_by_job(place, (found.row,)).get(found.row.id)
    return JobDetail(
        **JobLine.facts(found.row, see, verdict),
        is_redacted=not see.revealed.issuperset(get_args(RevealedPart)),
        revealed=parts,
        data=_payload(place.ref, PayloadPart.DATA, found.data, see),
        options=_payload(place.ref, PayloadPart.OPTIONS, found.options, see),
        result=_payload(place.ref, PayloadPart.RESULT, found.result, see),
        failure=plain(see.text(found.reason)) or None,
        stack=[plain(see.text(stack)) for stack in reversed(found.stack[-STACKS:])],
        log_count=found.log_count,
    )


def plain(text: str) -> str:
    """Replaces lone surrogates: half of a pair is no text to any parser."""
    return text.encode("utf-8", "replace").decode()


def _payload(queue: QueueRef, part: PayloadPart, text: BoundedText, see: PayloadRedactor) -> PayloadText:
    return PayloadText(text=plain(see.payload(queue, part, text.value)), size=text.size, is_cut=text.is_cut)
