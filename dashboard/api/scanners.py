"""/scanners: what looks after the queues by itself, its runs and what they did; and having one run now."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status
from pydantic import ConfigDict

from dashboard.api.actions import REASON_LIMIT, named
from dashboard.api.bulk import Number
from dashboard.api.caller import Caller, guarded
from dashboard.api.names import NAME_LIMIT, OPTIONAL_QUEUE, QueueName
from dashboard.discretion import Discretion
from dashboard.scopes import Scope
from recovery import shared_clock
from recovery.actions import scans as actions
from recovery.domain.refs import shown, slug
from recovery.domain.scans import Scan
from recovery.domain.scans import ScanStatus as RunStatus
from recovery.reads import scans as reads

router = Router(tags=["Scanners"])
CURSOR = Field(default="", max_length=20, pattern=r"^[0-9]*$", description="What next was on the page before.")


class ScannerPause(Schema):
    """Who stopped it."""

    by: str
    at: int
    reason: str

    @classmethod
    def of(cls, pause: reads.Pause) -> ScannerPause:
        return cls(by=shown(pause.by), at=pause.at, reason=shown(pause.reason))


class ScanRun(Schema):
    """One run that is kept: asked for, acting, failed, or of a scanner that runs seldom."""

    id: int
    scanner: Scan
    status: RunStatus
    observes: bool = Field(description="It was to look only.")
    queue: QueueName | None = Field(description="Only there; null: everywhere.")
    actor: str | None = Field(description="Who asked for it; null: it was due.")
    reason: str
    epoch: int | None
    wanted_at: int
    started_at: int | None
    ended_at: int | None
    looked: int
    found: int
    acted: int
    refused: int
    holds: list[str] = Field(description="What held something back.")
    trouble: str | None

    @classmethod
    def of(cls, run: reads.Run, see: Discretion) -> ScanRun:
        same = {name: getattr(run, name) for name in cls.model_fields if hasattr(run, name)}
        return cls(
            **same
            | {
                "scanner": run.scan,
                "queue": QueueName.of(run.queue) if run.queue else None,
                "actor": shown(run.actor.name) if run.actor else None,
                "reason": shown(run.reason),
                "holds": [see.text(hold) for hold in run.holds],
                "trouble": see.text(run.trouble) or None,
            }
        )


class ScannerStatus(Schema):
    """How one scanner is. What it may do to which queue is told by /policies."""

    scanner: Scan
    purpose: str
    every: float = Field(description="Seconds between two runs.")
    started_at: int | None = Field(description="Of the last run, also of one that is not kept.")
    ended_at: int | None
    succeeded_at: int | None = Field(description="When a run last succeeded.")
    late: bool = Field(description="It should have succeeded since.")
    next_at: int | None
    looked: int | None
    found: int | None
    acted: int | None
    refused: int | None
    holds: list[str]
    paused: ScannerPause | None
    under_way: ScanRun | None = Field(description="The run that goes on, or waits to be started.")
    trouble: str | None

    @classmethod
    def of(cls, card: reads.Card, see: Discretion) -> ScannerStatus:
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
            paused=ScannerPause.of(card.pause) if card.pause else None,
            under_way=ScanRun.of(card.open, see) if card.open else None,
            trouble=see.text(card.trouble) or None,
            **pulse,
        )


class ScannerList(Schema):
    """In the order of the page."""

    scanners: list[ScannerStatus]


class ScanRuns(Schema):
    """Newest first."""

    runs: list[ScanRun]
    next: str | None = Field(description="The cursor of the following page; null after the last.")


class ScanFind(Schema):
    """One job that a run stopped at; the queue itself where job is empty."""

    queue: QueueName
    job: str
    label: str
    what: str
    act: str | None = Field(description="null: it was only looked at.")
    outcome: str | None
    why: str
    policy: str = Field(description="What allowed it, or what held it.")
    audit: int | None

    @classmethod
    def of(cls, find: reads.FindRow, see: Discretion) -> ScanFind:
        return cls(
            queue=QueueName.of(find.job.queue),
            job=slug(find.job.id) if find.job.id else "",
            label=find.job.label,
            what=see.text(find.what),
            act=find.act or None,
            outcome=find.outcome or None,
            why=see.text(find.why),
            policy=shown(find.policy),
            audit=find.audit,
        )


class ScanFinds(Schema):
    """What was done comes first; at most a thousand of a run are kept."""

    finds: list[ScanFind]
    next: str | None = Field(description="The cursor of the following page; null after the last.")


class ScanPage(Schema):
    """Which part."""

    cursor: str = CURSOR
    size: int = Field(default=reads.SIZES[0], ge=1, le=max(reads.SIZES))


class ScanOrder(Schema):
    """A run now. Every policy and every brake counts as when it is due."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"observes": True, "reason": "before the deploy"}}
    )

    observes: bool = Field(default=False, description="Look only, whatever the policies say.")
    queue: str = Field(
        default="", max_length=NAME_LIMIT, pattern=OPTIONAL_QUEUE, description="DEPLOYMENT/ID of the only queue."
    )
    reason: str = Field(max_length=REASON_LIMIT, pattern=r"\S", description="For whoever reads the audit.")


Named = Annotated[Scan, Path(description="Its name.")]


@router.get("/scanners", **guarded(Scope.READ), response=ScannerList, url_name="scanners", summary="All scanners")
def scanners(request: HttpRequest) -> ScannerList:
    """When each last ran and last succeeded, and what stops it."""
    see = Caller.of(request).sees
    return ScannerList(scanners=[ScannerStatus.of(card, see) for card in reads.cards(shared_clock.now())])


@router.get(
    "/scanners/{scanner}/runs",
    **guarded(Scope.READ),
    response=ScanRuns,
    url_name="scanner-runs",
    summary="Runs of a scanner",
)
def runs(request: HttpRequest, scanner: Named, query: Annotated[ScanPage, Query()]) -> ScanRuns:
    """Those that are kept."""
    found, see = reads.runs(scanner, cursor=query.cursor, size=query.size), Caller.of(request).sees
    return ScanRuns(runs=[ScanRun.of(run, see) for run in found.rows], next=found.next or None)


@router.post(
    "/scanners/{scanner}/runs",
    **guarded(Scope.BULK),
    response={202: ScanRun},
    url_name="scanner-runs",
    summary="Run a scanner now",
)
def order(request: HttpRequest, scanner: Named, wanted: ScanOrder) -> Status[ScanRun]:
    """The scheduler begins within a second."""
    caller, queue = Caller.of(request), named(wanted.queue) if wanted.queue else None
    run = actions.order(caller.actor, scanner, wanted.observes, queue, wanted.reason)
    return Status(202, ScanRun.of(reads.run(run.pk), caller.sees))


@router.get("/runs/{number}", **guarded(Scope.READ), response=ScanRun, url_name="scan-run", summary="One run")
def run(request: HttpRequest, number: Number) -> ScanRun:
    """What it came to, or how far it is."""
    return ScanRun.of(reads.run(number), Caller.of(request).sees)


@router.get(
    "/runs/{number}/finds",
    **guarded(Scope.READ),
    response=ScanFinds,
    url_name="scan-finds",
    summary="What a run did to which job",
)
def finds(request: HttpRequest, number: Number, query: Annotated[ScanPage, Query()]) -> ScanFinds:
    """Done, refused and why, or left alone and why."""
    reads.run(number)
    found, see = reads.finds(number, cursor=query.cursor, size=query.size), Caller.of(request).sees
    return ScanFinds(finds=[ScanFind.of(find, see) for find in found.rows], next=found.next or None)
