"""Serves /bulk: starts, shows and stops actions on many jobs, which the scheduler does in chunks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status
from pydantic import ConfigDict

from dashboard.accounts.token_scopes import TokenScope
from dashboard.actions.api import REASON_LIMIT, ActionJob, ActionOptionsBody, current_jobs, parse_queue
from dashboard.api.auth import ApiCaller, requires_scope
from dashboard.api.identifiers import NAME_LIMIT, QUEUE, QueueName, readable
from recovery import shared_clock
from recovery.actions import runner
from recovery.actions.bulk import bulk_runs as runs
from recovery.actions.bulk.job_selection import BulkSelection
from recovery.domain.actions.types import Action, ActionCommand
from recovery.domain.identifiers import printable, slug
from recovery.reads.bulk import queries as reads

router = Router(tags=["Bulk"])
JOBS_LIMIT = 5_000  # by name: as many as fit into a request; more than that are "all"
FILTER_LIMIT = 300  # characters
RECENT = 50
LARGEST = 2**63 - 1  # what a database takes for a number
Number = Annotated[int, Path(ge=1, le=LARGEST)]


class BulkOrder(Schema):
    """An action on listed jobs, or on all jobs of a state or verdict. Clean and drain find their own jobs."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {"act": "retry", "queue": "main/bull:mail", "all": "failed", "reason": "mail host is back"}
        },
    )

    act: Annotated[Action, Field(strict=False)]
    queue: str = Field(max_length=NAME_LIMIT, pattern=QUEUE, description="DEPLOYMENT/ID of the queue.")
    all: str = Field(default="", max_length=32, description="A state or a verdict: all jobs in it now.")
    name: str = Field(default="", max_length=FILTER_LIMIT, description="With all: only jobs with this name.")
    error: str = Field(default="", max_length=FILTER_LIMIT, description="With all: only failures with this signature.")
    jobs: list[ActionJob] = Field(default=[], max_length=JOBS_LIMIT)
    reason: str = Field(max_length=REASON_LIMIT, pattern=r"\S", description="Recorded in the audit log.")
    options: ActionOptionsBody = Field(default_factory=ActionOptionsBody)

    @property
    def selection(self) -> BulkSelection | None:
        return BulkSelection.all(self.all, _now(), name=self.name, error=self.error) if self.all else None


class BulkRunProgress(Schema):
    """Progress of a run."""

    id: int
    act: Action
    queue: QueueName
    actor: str
    reason: str
    status: str = Field(description="waiting, gathering, running, stopped, ended or failed.")
    wants_stop: bool
    created_at: int
    started_at: int | None
    ended_at: int | None
    total: int = Field(description="Jobs found; more are added while it is gathering.")
    done: int
    refused: int
    missing: int
    unchanged: int
    unknown: int
    rate: float | None = Field(description="Jobs per second.")
    left_ms: int | None
    trouble: str | None = Field(description="Why it waits or failed.")
    options: dict[str, Any]
    selection: dict[str, Any]

    @classmethod
    def of(cls, run: reads.BulkProgress) -> BulkRunProgress:
        same = {name: getattr(run, name) for name in cls.model_fields if hasattr(run, name)}
        texts = {
            "reason": printable(run.reason),
            "actor": printable(run.actor),
            "trouble": printable(run.trouble) or None,
        }
        parts = {"options": readable(run.options), "selection": readable(run.selection)}
        return cls(**same | texts | parts | {"queue": QueueName.of(run.queue)})


class BulkRuns(Schema):
    """Bulk runs, newest first."""

    runs: list[BulkRunProgress]


class BulkResult(Schema):
    """A job of a run."""

    job: str
    label: str
    outcome: str = Field(description="done, refused, missing, unchanged or unknown; empty: pending.")
    why: str
    audit: int | None


class BulkResults(Schema):
    """Results in processing order."""

    results: list[BulkResult]
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class ResultQuery(Schema):
    """Filter for the jobs of a run."""

    outcome: Literal["", "done", "refused", "missing", "unchanged", "unknown", "left"] = ""
    cursor: str = Field(
        default="", max_length=20, pattern=r"^[0-9]*$", description="The value of next from the previous page."
    )
    size: int = Field(default=100, ge=1, le=max(reads.SIZES))


@router.post(
    "/bulk",
    **requires_scope(TokenScope.BULK),
    response={202: BulkRunProgress},
    url_name="bulk",
    summary="Start a bulk run",
)
def order(request: HttpRequest, wanted: BulkOrder) -> Status[BulkRunProgress]:
    """The scheduler starts it within a second. The run continues without the client, also after a restart."""
    queue = parse_queue(wanted.queue)
    actor, jobs = ApiCaller.of(request).actor, current_jobs(queue, wanted.jobs)
    whole = ActionCommand(wanted.act, queue, actor, wanted.reason, jobs, wanted.options.chosen())
    runner.insist_on_undo(whole)
    run = runs.order(whole, wanted.selection)
    return Status(202, _run(run.pk))


@router.get("/bulk", **requires_scope(TokenScope.BULK), response=BulkRuns, url_name="bulk", summary="List bulk runs")
def recent(request: HttpRequest) -> BulkRuns:
    """Lists at most fifty runs, including open ones."""
    return BulkRuns(runs=[BulkRunProgress.of(run) for run in reads.recent(_now(), RECENT)])


@router.get(
    "/bulk/{number}", **requires_scope(TokenScope.BULK), response=BulkRunProgress, url_name="run", summary="Get a run"
)
def run(request: HttpRequest, number: Number) -> BulkRunProgress:
    """Returns progress, speed and remaining time."""
    return _run(number)


@router.get(
    "/bulk/{number}/results",
    **requires_scope(TokenScope.BULK),
    response=BulkResults,
    url_name="results",
    summary="Results of a bulk run",
)
def results(request: HttpRequest, number: Number, query: Annotated[ResultQuery, Query()]) -> BulkResults:
    """Lists the outcome of each job, with the reason if it was refused."""
    _run(number)
    found = reads.results(number, outcome=query.outcome, cursor=query.cursor, size=query.size)
    return BulkResults(results=[_result(row) for row in found.rows], next=found.next or None)


@router.post(
    "/bulk/{number}/stop",
    **requires_scope(TokenScope.BULK),
    response=BulkRunProgress,
    url_name="stop",
    summary="Stop a run",
)
def stop(request: HttpRequest, number: Number) -> BulkRunProgress:
    """The run stops after its current chunk. Changes already made remain. Stopping an ended run changes nothing."""
    _run(number)
    runs.stop(number, ApiCaller.of(request).actor)
    return _run(number)


def _run(number: int) -> BulkRunProgress:
    return BulkRunProgress.of(reads.progress(number, _now()))


def _result(row: reads.BulkJobResult) -> BulkResult:
    return BulkResult(
        job=slug(row.job), label=printable(row.job), outcome=row.outcome, why=printable(row.why), audit=row.audit
    )


def _now() -> int:
    return shared_clock.now()
