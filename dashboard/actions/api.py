"""Serves /actions: lists the actions, and acts on a few jobs at once through the engine's runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import ConfigDict

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.auth import ApiCaller, requires_scope
from dashboard.api.error_responses import ApiError
from dashboard.api.identifiers import NAME_LIMIT, OPTIONAL_QUEUE, QUEUE, SLUG, QueueName, job_id, queue_ref
from dashboard.live import state_cache
from dashboard.queues.job.api import JobPrecondition
from recovery.actions import operators, runner
from recovery.actions.catalog import ENTRIES, ActionSpec
from recovery.domain.actions import types as actions_types
from recovery.domain.actions.types import (
    AFFECTED_LISTED,
    Action,
    ActionCommand,
    ActionPrecheck,
    JobResult,
    JobSideEffect,
    Outcome,
    RelativeChange,
    Right,
)
from recovery.domain.identifiers import QueueRef, printable, slug
from recovery.domain.jobs import JobState
from recovery.reads.queues import job_lists

router = Router(tags=["Actions"])
MESSAGE_LIMIT = 300  # characters of the reason that `fail` writes into a job
REASON_LIMIT = 2_000  # characters of a reason that are read; the engine reports its own limit
LONGEST_AGE = 3650 * 86_400_000  # ms


class ActionOptionsBody(Schema):
    """Options of an action. Each action ignores options that it does not have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    force: bool = Field(default=False, description="Also if the job is quarantined or its worker is still connected.")
    consent: bool = Field(default=False, description="n8n: the workflow may run a second time from its start.")
    reset_stalls: bool = Field(default=False, description="requeue, retry: reset the stalled counter.")
    counts_as_stall: bool = Field(
        default=True, description="requeue: increment the stalled counter, as the library's stalled check does."
    )
    requeue: bool = Field(default=False, description="release: also requeue the job.")
    reset_attempts: bool = Field(default=False, description="retry: reset the attempts.")
    rerun_completed: bool = Field(
        default=False, description="retry: also completed jobs. They do their work a second time."
    )
    children: bool = Field(
        default=False,
        description="remove: also all jobs below it in the flow. This requires the scope bulk.",
    )
    other_queues: bool = Field(
        default=False,
        description="remove, fail, clean, drain: also change children and parents in other queues.",
    )
    directly: bool = Field(default=False, description="fail: fail the job now, without a worker.")
    state: JobState | None = Field(default=None, strict=False, description="clean: job state.")
    older_than: int = Field(
        default=0,
        ge=0,
        le=LONGEST_AGE,
        description="clean: only jobs that finished or were added at least this many milliseconds ago.",
    )
    limit: int = Field(default=0, ge=0, le=10_000_000, description="clean: limit; 0 = none.")
    delayed: bool = Field(default=False, description="drain: also delayed jobs.")
    mark: bool = Field(
        default=False, description="retry-execution: mark an unfinished execution without a job crashed first."
    )
    latest: bool = Field(default=False, description="retry-execution, rescue: use the currently saved workflow.")
    message: str = Field(default="", max_length=MESSAGE_LIMIT, description="fail: failedReason of the job.")

    def chosen(self) -> actions_types.ActionOptions:
        return actions_types.ActionOptions(**self.dict())


class ActionJob(Schema):
    """A job and its state when the action was decided. Without `seen` the server reads the job now and uses that."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(max_length=NAME_LIMIT, pattern=SLUG)
    seen: JobPrecondition | None = None


class ActionOrder(Schema):
    """An action on jobs of one queue, or on the queue itself if it names no jobs."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {
                "act": "retry",
                "queue": "main/bull:mail",
                "jobs": [{"id": "42"}],
                "reason": "the mail host is back",
            }
        },
    )

    act: Annotated[Action, Field(strict=False)]
    queue: str = Field(max_length=NAME_LIMIT, pattern=QUEUE, description="DEPLOYMENT/ID of the queue.")
    jobs: list[ActionJob] = Field(default=[], max_length=runner.AT_ONCE)
    reason: str = Field(default="", max_length=REASON_LIMIT, description="Recorded in the audit log.")
    options: ActionOptionsBody = Field(default_factory=ActionOptionsBody)
    dry_run: bool = Field(default=False, description="Dry run: check and change nothing.")


class AffectedJob(Schema):
    """A child or parent job that also changes."""

    queue: QueueName
    job: str
    label: str
    change: RelativeChange

    @classmethod
    def of(cls, one: JobSideEffect) -> AffectedJob:
        return cls(queue=QueueName.of(one.job.queue), **_name(one.job.id), change=one.change)


class ActionJobResult(Schema):
    """Result for one job, or for the queue itself if `job` is empty."""

    job: str
    label: str
    outcome: Outcome
    why: str = Field(description="Why it was not done; in a dry run also the risk.")
    audit: int | None = Field(description="Number of the audit entry with the outcome.")
    affected: list[AffectedJob] = Field(
        default=[], description=f"Other jobs that also change; the first {AFFECTED_LISTED}."
    )
    affected_total: int = Field(default=0, description="How many other jobs also change.")

    @classmethod
    def of(cls, result: JobResult) -> ActionJobResult:
        return cls(
            **_name(result.job),
            outcome=result.outcome,
            why=printable(result.why),
            audit=result.audit,
            **_affected(result.affected),
        )

    @classmethod
    def judged(cls, one: ActionPrecheck) -> ActionJobResult:
        """Returns the predicted result, as the shell predicts it; for what may be done `why` is the risk."""
        outcome, why = (Outcome.DONE, one.risk) if one.is_allowed else (one.outcome, one.why)
        return cls(**_name(one.id), outcome=outcome, why=printable(why), audit=None, **_affected(one.effects.affected))


class ActionResults(Schema):
    """A result per job, in the order of the request."""

    action: Action
    queue: QueueName | None
    dry_run: bool = Field(description="Dry run: results are predicted and nothing was changed.")
    results: list[ActionJobResult]


class ActionEntry(Schema):
    """An action."""

    act: Action
    label: str
    effect: str
    states: list[JobState] = Field(description="Job states it applies to; empty: any.")
    is_for_queue: bool
    scopes: list[TokenScope] = Field(description="Required scopes. Several jobs at once also require bulk.")
    irreversible: bool
    restorable: bool = Field(description="Restorable for 24 hours.")
    refused: str | None = Field(description="Why it is not available for the requested queue.")

    @classmethod
    def of(cls, entry: ActionSpec, refused: str | None) -> ActionEntry:
        return cls(
            act=entry.act,
            label=entry.label,
            effect=entry.effect,
            states=sorted(entry.states),
            is_for_queue=entry.is_for_queue,
            scopes=[TokenScope.ACT, TokenScope.BULK] if entry.one is not Right.ACT else [TokenScope.ACT],
            irreversible=entry.irreversible,
            restorable=entry.restorable,
            refused=refused,
        )


class ActionCatalog(Schema):
    """All actions."""

    actions: list[ActionEntry]


class CatalogQuery(Schema):
    """Filter by queue."""

    queue: str = Field(
        default="",
        max_length=NAME_LIMIT,
        pattern=OPTIONAL_QUEUE,
        description="DEPLOYMENT/ID: also say what is not available for this queue.",
    )


@router.get(
    "/actions", **requires_scope(TokenScope.READ), response=ActionCatalog, url_name="actions", summary="List actions"
)
def catalog(request: HttpRequest, query: Annotated[CatalogQuery, Query()]) -> ActionCatalog:
    """Lists what each action does, what it applies to and which scopes it requires."""
    refusals = _refusals(parse_queue(query.queue)) if query.queue else {}
    return ActionCatalog(actions=[ActionEntry.of(entry, refusals.get(act)) for act, entry in ENTRIES.items()])


@router.post(
    "/actions",
    **requires_scope(TokenScope.ACT),
    response=ActionResults,
    url_name="actions",
    summary="Act on jobs, or on a queue",
)
def act(request: HttpRequest, order: ActionOrder) -> ActionResults:
    """Applies the rules and audit of the web interface. A job that changed since it was seen is refused, others not."""
    whole = _order(order, ApiCaller.of(request).actor)
    if order.dry_run:
        results = [ActionJobResult.judged(one) for one in runner.preview(whole).judgements]
    else:
        runner.insist_on_undo(whole)
        results = [ActionJobResult.of(one) for one in runner.perform(whole)]
    if not whole.jobs and results[0].outcome == Outcome.REFUSED:
        raise ApiError(409, "refused", results[0].why, "GET /actions lists the actions.")
    return ActionResults(action=order.act, queue=QueueName.of(whole.queue), dry_run=order.dry_run, results=results)


def parse_queue(written: str) -> QueueRef:
    """Parses `DEPLOYMENT/ID`, as a queue is written in bodies and queries. Raises QueueMissing."""
    deployment, _, base = written.partition("/")
    return queue_ref(deployment, base)


def current_jobs(queue: QueueRef, jobs: list[ActionJob]) -> tuple[actions_types.ExpectedJob, ...]:
    """Returns the jobs as the client saw them, those without `seen` as they are now, in the order of the request."""
    found = {id: asked.seen for id, asked in ((job_id(asked.id), asked) for asked in jobs)}
    looked = {seen.id: seen for seen in _look(queue, tuple(id for id, seen in found.items() if seen is None))}
    return tuple(looked.get(id) or _whole(id, seen) for id, seen in found.items())


def _order(order: ActionOrder, actor: actions_types.Actor) -> ActionCommand:
    if order.act is Action.RESTORE:
        raise ApiError(422, "invalid", "act: restore needs an audit entry.", "POST /audit/{number}/restore")
    queue = parse_queue(order.queue)
    jobs = current_jobs(queue, order.jobs)
    return ActionCommand(order.act, queue, actor, order.reason, jobs, order.options.chosen())


def _look(queue: QueueRef, ids: tuple[str, ...]) -> tuple[actions_types.ExpectedJob, ...]:
    return runner.current_jobs(queue, ids) if ids else ()


def _whole(id: str, seen: JobPrecondition | None) -> actions_types.ExpectedJob:
    try:
        return seen.whole(id) if seen else actions_types.ExpectedJob(id, JobState.UNKNOWN)
    except ValueError:
        raise ApiError(422, "invalid", "jobs: invalid lock token.") from None


def _name(job: str) -> dict[str, Any]:
    return {"job": slug(job) if job else "", "label": printable(job)}


def _affected(affected: Sequence[JobSideEffect]) -> dict[str, Any]:
    listed = [AffectedJob.of(one) for one in affected[:AFFECTED_LISTED]]
    return {"affected": listed, "affected_total": len(affected)}


def _refusals(ref: QueueRef) -> dict[Action, str]:
    flavour = job_lists.locate(ref, state_cache.newest_snapshot()).flavour
    return {act: printable(why) for act, why in operators.refusals(flavour).items()}
