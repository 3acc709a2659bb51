"""Serves /scanners: the scanners, their runs and what these did; and starts a run."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status
from pydantic import ConfigDict

from dashboard.accounts.token_scopes import TokenScope
from dashboard.actions.api import REASON_LIMIT, parse_queue
from dashboard.actions.bulk.api import Number
from dashboard.api.auth import ApiCaller, requires_scope
from dashboard.api.identifiers import NAME_LIMIT, OPTIONAL_QUEUE, QueueName
from dashboard.base.redaction import MASKED, PayloadRedactor
from recovery import shared_clock
from recovery.actions import scanner_control as actions
from recovery.domain.identifiers import printable, slug
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scanners.types import ScanStatus as RunStatus
from recovery.reads.scanners import queries as reads

router = Router(tags=["Scanners"])
CURSOR = Field(default="", max_length=20, pattern=r"^[0-9]*$", description="The value of next from the previous page.")


class ScannerPauseInfo(Schema):
    """A pause of a scanner."""

    by: str
    at: int
    reason: str

    @classmethod
    def of(cls, pause: reads.ScannerPauseRow) -> ScannerPauseInfo:
        return cls(by=printable(pause.by), at=pause.at, reason=printable(pause.reason))


class ScanRunInfo(Schema):
    """A stored run: requested, changing, failed, or of a scanner that runs rarely."""

    id: int
    scanner: ScannerKind
    status: RunStatus
    dry_run: bool = Field(description="It was a dry run.")
    queue: QueueName | None = Field(description="Only this queue; null: all queues.")
    actor: str | None = Field(description="Who requested it; null: scheduled.")
    reason: str
    term: int | None = Field(description="The leader's term that it ran in.")
    wanted_at: int
    started_at: int | None
    ended_at: int | None
    looked: int
    found: int
    acted: int
    refused: int
    holds: list[str] = Field(description="What limited the run.")
    trouble: str | None

    @classmethod
    def of(cls, run: reads.ScannerRunRow, see: PayloadRedactor) -> ScanRunInfo:
        same = {name: getattr(run, name) for name in cls.model_fields if hasattr(run, name)}
        return cls(
            **same
            | {
                "scanner": run.scan,
                "term": run.epoch,
                "queue": QueueName.of(run.queue) if run.queue else None,
                "actor": printable(run.actor.name) if run.actor else None,
                "reason": printable(run.reason),
                "holds": [see.text(hold) for hold in run.holds],
                "trouble": see.text(run.trouble) or None,
            }
        )


class ScannerStatus(Schema):
    """Status of one scanner. See /policies for its rights in each queue."""

    scanner: ScannerKind
    purpose: str
    every: float = Field(description="Interval in seconds.")
    started_at: int | None = Field(description="The last run, also if it is not stored.")
    ended_at: int | None
    succeeded_at: int | None = Field(description="When a run last succeeded.")
    late: bool = Field(description="A run is overdue.")
    next_at: int | None
    looked: int | None
    found: int | None
    acted: int | None
    refused: int | None
    holds: list[str]
    paused: ScannerPauseInfo | None
    under_way: ScanRunInfo | None = Field(description="The run that is running or waiting.")
    trouble: str | None

    @classmethod
    def of(cls, card: reads.ScannerCard, see: PayloadRedactor) -> ScannerStatus:
        names = ("started_at", "ended_at", "looked", "found", "acted", "refused")
        pulse: dict[str, Any] = {name: getattr(card.pulse, name, None) for name in names}
        return cls(
            scanner=card.scan,
            purpose=card.purpose,
            every=card.every,
            succeeded_at=card.succeeded_at,
            late=card.is_late,
            next_at=card.next_at,
            holds=[see.text(hold) for hold in card.pulse.holds] if card.pulse else [],
            paused=ScannerPauseInfo.of(card.pause) if card.pause else None,
            under_way=ScanRunInfo.of(card.open, see) if card.open else None,
            trouble=see.text(card.trouble) or None,
            **pulse,
        )


class ScannerList(Schema):
    """All scanners."""

    scanners: list[ScannerStatus]


class ScanRuns(Schema):
    """Runs, newest first."""

    runs: list[ScanRunInfo]
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class ScanFindInfo(Schema):
    """A job matched by a run, or the queue itself if job is empty."""

    queue: QueueName
    job: str
    label: str
    what: str
    act: str | None = Field(description="null: checked only.")
    outcome: str | None
    why: str
    policy: str = Field(description="The policy that allowed or prevented it.")
    audit: int | None

    @classmethod
    def of(cls, find: reads.ScannerFindRow, see: PayloadRedactor) -> ScanFindInfo:
        return cls(
            queue=QueueName.of(find.job.queue),
            job=slug(find.job.id) if find.job.id else "",
            label=find.job.label,
            what=see.text(find.what),
            act=find.act or None,
            outcome=find.outcome or None,
            why=see.text(find.why),
            policy=printable(find.policy),
            audit=find.audit,
        )


class ScanFinds(Schema):
    """Changed jobs first; at most a thousand per run are stored."""

    finds: list[ScanFindInfo]
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class ScanPage(Schema):
    """Page of a list."""

    cursor: str = CURSOR
    size: int = Field(default=reads.SIZES[0], ge=1, le=max(reads.SIZES))


class ScanOrder(Schema):
    """A run now. All policies and safety limits apply."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"dry_run": True, "reason": "before the deploy"}}
    )

    dry_run: bool = Field(default=False, description="Dry run, whatever the policies say.")
    queue: str = Field(
        default="",
        max_length=NAME_LIMIT,
        pattern=OPTIONAL_QUEUE,
        description="DEPLOYMENT/ID of a queue, to check only this one.",
    )
    reason: str = Field(max_length=REASON_LIMIT, pattern=r"\S", description="Recorded in the audit log.")


Named = Annotated[ScannerKind, Path(description="Name of the scanner.")]


@router.get(
    "/scanners", **requires_scope(TokenScope.READ), response=ScannerList, url_name="scanners", summary="List scanners"
)
def scanners(request: HttpRequest) -> ScannerList:
    """Lists last run, last success and errors of each scanner."""
    see = MASKED
    return ScannerList(scanners=[ScannerStatus.of(card, see) for card in reads.cards(shared_clock.now())])


@router.get(
    "/scanners/{scanner}/runs",
    **requires_scope(TokenScope.READ),
    response=ScanRuns,
    url_name="scanner-runs",
    summary="List runs of a scanner",
)
def runs(request: HttpRequest, scanner: Named, query: Annotated[ScanPage, Query()]) -> ScanRuns:
    """Lists stored runs."""
    found, see = reads.runs(scanner, cursor=query.cursor, size=query.size), MASKED
    return ScanRuns(runs=[ScanRunInfo.of(run, see) for run in found.rows], next=found.next or None)


@router.post(
    "/scanners/{scanner}/runs",
    **requires_scope(TokenScope.BULK),
    response={202: ScanRunInfo},
    url_name="scanner-runs",
    summary="Run a scanner now",
)
def order(request: HttpRequest, scanner: Named, wanted: ScanOrder) -> Status[ScanRunInfo]:
    """The scheduler starts it within a second."""
    caller, queue = ApiCaller.of(request), parse_queue(wanted.queue) if wanted.queue else None
    run = actions.order(caller.actor, scanner, wanted.dry_run, queue, wanted.reason)
    return Status(202, ScanRunInfo.of(reads.run(run.pk), MASKED))


@router.get(
    "/runs/{number}", **requires_scope(TokenScope.READ), response=ScanRunInfo, url_name="scan-run", summary="Get a run"
)
def run(request: HttpRequest, number: Number) -> ScanRunInfo:
    """Returns the result or the progress."""
    return ScanRunInfo.of(reads.run(number), MASKED)


@router.get(
    "/runs/{number}/finds",
    **requires_scope(TokenScope.READ),
    response=ScanFinds,
    url_name="scan-finds",
    summary="Jobs matched by a run",
)
def finds(request: HttpRequest, number: Number, query: Annotated[ScanPage, Query()]) -> ScanFinds:
    """Lists what was done to each job, or why not."""
    reads.run(number)
    found, see = reads.finds(number, cursor=query.cursor, size=query.size), MASKED
    return ScanFinds(finds=[ScanFindInfo.of(find, see) for find in found.rows], next=found.next or None)
