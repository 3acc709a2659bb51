"""Serves /queues: all queues from the newest snapshot, and one queue with what is known of it."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.auth import requires_scope
from dashboard.api.error_responses import RETRY_SECONDS, ApiError
from dashboard.api.identifiers import Base, Deployment, QueueName, queue
from dashboard.live import state_cache
from recovery.domain.identifiers import printable
from recovery.domain.queues.health import failure_rate, problem_kind, ready
from recovery.domain.queues.types import LibraryVersion, QueueSample, Snapshot
from recovery.reads.queues import overview
from recovery.reads.queues.filters import FILTER_LIMIT
from recovery.reads.queues.overview import OverviewColumn

router = Router(tags=["Queues"])
_START_LIMIT = 1_000_000  # rows; the page's own limit

_SORT = rf"^-?({'|'.join(OverviewColumn)})$"


class QueueJobCounts(Schema):
    """Number of jobs in each state; null: not known, or not a state of this library."""

    waiting: int | None
    active: int | None
    prioritized: int | None
    delayed: int | None
    waiting_children: int | None
    completed: int | None
    failed: int | None
    paused: int | None


class QueueRow(QueueName):
    """A queue in the newest snapshot. Times are milliseconds since 1970; null: unknown."""

    library: str
    version: str
    counts: QueueJobCounts
    ready: int | None = Field(description="Jobs that a worker could take now, ignoring a pause.")
    is_paused: bool | None
    workers: int | None
    oldest_waiting_at: int | None
    oldest_active_at: int | None
    stalled_check_ttl: int | None = Field(description="Milliseconds until the library's stalled check can run again.")
    failure_rate: float | None = Field(description="Failed share of the jobs finished in the last hour.")
    trouble: str | None = Field(description="The most severe of abandoned, unattended, failing, paused, late.")
    read_at: int | None = Field(
        description="When these numbers were read; an idle queue is read at every second snapshot."
    )
    error: str | None = Field(description="Why this queue could not be read; its numbers are stale or missing.")

    @classmethod
    def facts(cls, sample: QueueSample, error: str, now: int) -> dict[str, Any]:
        kind = None if error else problem_kind(sample, now)
        return {
            **QueueName.of(sample.ref).dict(),
            "library": sample.flavour.library.value,
            "version": printable(sample.flavour.version or str(sample.flavour.major or "")),
            "counts": QueueJobCounts(**sample.counts._asdict()),
            "ready": ready(sample.counts),
            "is_paused": sample.is_paused,
            "workers": sample.workers,
            "oldest_waiting_at": sample.oldest_waiting_at,
            "oldest_active_at": sample.oldest_active_at,
            "stalled_check_ttl": sample.stalled_check_ttl,
            "failure_rate": failure_rate(sample),
            "trouble": kind.name.lower() if kind else None,
            "read_at": sample.read_at,
            "error": printable(error) or None,
        }


class QueuePage(Schema):
    """At most a hundred queues."""

    taken_at: int = Field(description="When the snapshot was taken.")
    stale: str | None = Field(description="Why these numbers are stale; null if they are current.")
    queues: list[QueueRow]
    matched: int
    total: int
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class QueueDetail(QueueRow):
    """A queue and the features of its library."""

    taken_at: int
    stale: str | None
    evidence: list[str] = Field(description="Evidence for the library of the queue.")
    read_only: str | None = Field(description="Why the queue is read-only; null if it is not.")
    states: list[str] = Field(description="States that its jobs can have.")
    concurrency: int | None
    limited_for: int | None = Field(description="Remaining milliseconds of its rate limit.")


class QueueQuery(Schema):
    """Filter and order of queues."""

    q: str = Field(
        default="",
        max_length=FILTER_LIMIT,
        description="Words and state:, workers:, deployment:, flavour:; a leading minus excludes a term.",
    )
    deployment: str = Field(default="", max_length=64)
    sort: str = Field(
        default="-worst", pattern=_SORT, description=f"{', '.join(OverviewColumn)}; a leading minus sorts descending."
    )
    cursor: int = Field(default=0, ge=0, lt=_START_LIMIT, description="The value of next from the previous page.")


@router.get("/queues", **requires_scope(TokenScope.READ), response=QueuePage, url_name="queues", summary="List queues")
def queues(request: HttpRequest, query: Annotated[QueueQuery, Query()]) -> QueuePage:
    """Lists queues from the newest snapshot: this call never reads a store."""
    snapshot = _newest()
    column, falling = OverviewColumn(query.sort.removeprefix("-")), query.sort.startswith("-")
    asked = overview.OverviewQuery(query.q.strip(), query.deployment, column, falling, start=query.cursor)
    found = overview.view(snapshot, asked)
    if found.problem:
        raise ApiError(422, "invalid", found.problem)
    following = found.following(asked)
    return QueuePage(
        taken_at=snapshot.taken_at,
        stale=state_cache.health().reason or None,
        queues=[QueueRow(**QueueRow.facts(row.sample, row.reason, snapshot.taken_at)) for row in found.rows],
        matched=found.matched,
        total=found.total,
        next=None if following is None else str(following),
    )


@router.get(
    "/queues/{deployment}/{base}",
    **requires_scope(TokenScope.READ),
    response=QueueDetail,
    url_name="queue",
    summary="One queue",
)
def one_queue(request: HttpRequest, deployment: Deployment, base: Base) -> QueueDetail:
    """Returns a queue from the newest snapshot. A queue that is not in the snapshot yet has null numbers."""
    found, snapshot = queue(deployment, base), _newest()
    sample = found.sample or QueueSample(found.ref, found.flavour)
    place = snapshot.deployment(found.ref.deployment)
    return QueueDetail(
        **QueueRow.facts(sample, sample.error or (place.error if place else ""), snapshot.taken_at),
        taken_at=snapshot.taken_at,
        stale=state_cache.health().reason or None,
        evidence=[printable(line) for line in found.flavour.evidence],
        read_only=_read_only(found.flavour),
        states=[state.value for state in found.capabilities.states],
        concurrency=sample.concurrency,
        limited_for=sample.limited_for,
    )


def _read_only(flavour: LibraryVersion) -> str | None:
    return printable(flavour.read_only) or None


def _newest() -> Snapshot:
    snapshot = state_cache.newest_snapshot()
    if snapshot is None:
        advice = "Check that the scheduler is running: manage.py scheduler takes a snapshot every few seconds."
        raise ApiError(503, "no_snapshot", "No snapshot has been taken yet.", advice, retry=RETRY_SECONDS)
    return snapshot
