"""Serves /n8n: jobs and executions side by side, as of the last check. No queue and no database of n8n is read."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.auth import requires_scope
from dashboard.api.identifiers import JobName, QueueName
from recovery import shared_clock
from recovery.config import N8nInstallation
from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobState
from recovery.domain.n8n.comparison import (
    MATCHING_LIMIT,
    MISMATCH_LIMIT,
    JobExecutionPair,
    MismatchFinding,
    N8nComparison,
)
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.instances import EMPTY, EndedInstance, InstanceEnding, InstanceHistory, N8nInstance, concerns
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.domain.n8n.rescue import RescueWay
from recovery.domain.stuck.types import VerdictKind
from recovery.n8n import comparison_store, instance_store, lost_executions
from recovery.stores.registry import registry

router = Router(tags=["n8n"])
SIZE = 100


class N8nMismatchInfo(Schema):
    """A mismatch and its repair."""

    kind: MismatchKind
    since: int | None
    why: str = Field(description="Evidence.")
    fate: str = Field(description="What n8n does without intervention.")
    cause: str | None = Field(description="Why the worker of its job was lost; null: it was not, or unknown.")
    repair: MismatchRepair = Field(description="Empty: the only option is to wait.")
    parent: str | None = Field(description="The lost execution that started this sub-workflow; null: unknown or none.")

    @classmethod
    def of(cls, finding: MismatchFinding) -> N8nMismatchInfo:
        return cls(
            kind=finding.kind,
            since=finding.since,
            why=printable(finding.why),
            fate=printable(finding.fate),
            cause=printable(finding.cause) or None,
            repair=finding.repair,
            parent=finding.parent or None,
        )


class N8nJobInfo(Schema):
    """A job of n8n's queue, or of a pool's."""

    job: JobName
    state: JobState
    is_locked: bool | None = Field(description="Lock of an active job; null: not active, or no permission to read it.")
    holder: str | None = Field(description="Its worker, if the queue has only one.")

    @classmethod
    def of(cls, claim: N8nJob) -> N8nJobInfo:
        is_locked = claim.is_locked if claim.is_active and claim.lock_known else None
        return cls(
            job=JobName.of(claim.job), state=claim.state, is_locked=is_locked, holder=printable(claim.holder) or None
        )


class N8nExecutionInfo(Schema):
    """An execution as n8n's database has it; never its data."""

    status: ExecutionStatus
    mode: str
    created_at: int | None
    started_at: int | None
    stopped_at: int | None
    is_deleted: bool

    @classmethod
    def of(cls, execution: Execution) -> N8nExecutionInfo:
        return cls(
            status=execution.status,
            mode=printable(execution.mode),
            created_at=execution.created_at,
            started_at=execution.started_at,
            stopped_at=execution.stopped_at,
            is_deleted=execution.is_deleted,
        )


class N8nPairInfo(Schema):
    """A job with its execution; either may be missing."""

    id: str = Field(description="The execution's.")
    workflow: str
    title: str = Field(description="The workflow's name.")
    claim: N8nJobInfo | None
    execution: N8nExecutionInfo | None
    mismatch: N8nMismatchInfo | None

    @classmethod
    def of(cls, pair: JobExecutionPair) -> N8nPairInfo:
        return cls(
            id=printable(pair.id),
            workflow=printable(pair.workflow),
            title=printable(pair.title),
            claim=N8nJobInfo.of(pair.claim) if pair.claim else None,
            execution=N8nExecutionInfo.of(pair.execution) if pair.execution else None,
            mismatch=N8nMismatchInfo.of(pair.finding) if pair.finding else None,
        )


class N8nInstanceInfo(Schema):
    """A process of n8n, by n8n's own registry (n8n 2.20 and later)."""

    host: str = Field(description="Its type and hostname in a container, else its type and random letters.")
    type: str = Field(description="main, worker or webhook.")
    role: str = Field(description="leader or follower of a main; else unset.")
    version: str
    pool: str = Field(description="Worker pool; empty: none.")
    registered_at: int
    seen_at: int = Field(description="Last heartbeat; one comes every 30 s.")
    ended_at: int | None = Field(description="When a check missed it; null: it is there.")
    ending: InstanceEnding = Field(description="How it ended; empty: it has not, or unknown.")

    @classmethod
    def of(cls, one: N8nInstance, gone: EndedInstance | None = None) -> N8nInstanceInfo:
        return cls(
            **{name: printable(getattr(one, name)) for name in ("host", "type", "role", "version", "pool")},
            registered_at=one.registered_at,
            seen_at=one.seen_at,
            ended_at=gone.at if gone else None,
            ending=gone.ending if gone else InstanceEnding.UNKNOWN,
        )

    @classmethod
    def every(cls, history: InstanceHistory) -> list[N8nInstanceInfo]:
        here = [cls.of(one) for one in history.instances]
        return here + [cls.of(gone.instance, gone) for gone in reversed(history.gone)]


class WorkflowErrors(Schema):
    """A workflow with failed executions in the last hour; manual, canceled and unsaved ones are not counted."""

    workflow: str
    title: str
    failed: int
    ended: int

    @classmethod
    def of(cls, rate: ErrorRate) -> WorkflowErrors:
        return cls(workflow=printable(rate.workflow), title=printable(rate.title), failed=rate.failed, ended=rate.ended)


class N8nInstallationInfo(Schema):
    """A n8n with a page of its table: mismatches first, then some rows without a mismatch."""

    name: str
    queue: QueueName
    checked_at: int
    fault: str | None = Field(description="Why the comparison failed; the counts are then meaningless.")
    release: str = Field(description="n8n versions that have such tables.")
    took: int
    counts: dict[MismatchKind, int]
    jobs: int
    executions: int = Field(description="Executions that have not ended.")
    parked: int
    elsewhere: int = Field(description="Running without a job because of their mode (manual etc.).")
    unsure_parents: int = Field(description="Sub-workflows whose parent may be alive.")
    left_out: int = Field(description="Beyond the limit of one check.")
    notes: list[str]
    version: str | None = Field(description="n8n's exact version by its registry; null: unknown, or several.")
    instances: list[N8nInstanceInfo] = Field(
        description="Processes that are there, then those that ended within an hour."
    )
    concerns: list[str] = Field(description="What is amiss among the processes.")
    error_rates: list[WorkflowErrors] | None = Field(
        description="Workflows with failures in the last hour, most failures first; null: not counted."
    )
    pairs: list[N8nPairInfo]
    matched: int
    next: str | None = Field(description="Cursor of the next page; null on the last page.")

    @classmethod
    def of(cls, truth: N8nComparison, query: N8nTableQuery, known: InstanceHistory) -> N8nInstallationInfo:
        found = query.chosen(truth)
        after = query.cursor + query.size
        named = ("checked_at", "took", "jobs", "executions", "parked", "elsewhere", "unsure_parents", "left_out")
        return cls(
            name=truth.name,
            queue=QueueName.of(truth.queue),
            fault=printable(truth.fault) or None,
            release=truth.release.value,
            counts=dict(truth.counts),
            notes=[printable(note) for note in truth.notes],
            version=printable(known.versions[0]) if len(known.versions) == 1 else None,
            instances=N8nInstanceInfo.every(known),
            concerns=[printable(one) for one in concerns(known, shared_clock.now())],
            error_rates=None if truth.error_rates is None else list(map(WorkflowErrors.of, truth.error_rates)),
            pairs=[N8nPairInfo.of(pair) for pair in found[query.cursor : after]],
            matched=len(found),
            next=str(after) if after < len(found) else None,
            **{name: getattr(truth, name) for name in named},
        )


class N8nTableList(Schema):
    """A table per n8n installation; empty: no n8n configured, or not checked yet."""

    installations: list[N8nInstallationInfo]


class N8nTableQuery(Schema):
    """Filter; omitted fields match anything."""

    n8n: str = Field(default="", max_length=40, description="Name of one installation.")
    mismatch: MismatchKind | None = None
    execution: str = Field(default="", max_length=20)
    mismatches: bool = Field(default=False, description="Only mismatches.")
    cursor: int = Field(default=0, ge=0, le=MISMATCH_LIMIT + MATCHING_LIMIT)
    size: int = Field(default=SIZE, ge=1, le=SIZE)

    def chosen(self, truth: N8nComparison) -> list[JobExecutionPair]:
        pairs = truth.pairs if self.mismatches or self.mismatch else (*truth.pairs, *truth.matching)
        return [
            pair
            for pair in pairs
            if (self.mismatch is None or (pair.finding is not None and pair.finding.kind is self.mismatch))
            and self.execution in ("", pair.id)
        ]


@router.get(
    "/n8n", **requires_scope(TokenScope.READ), response=N8nTableList, url_name="n8n", summary="n8n: jobs and executions"
)
def tables(request: HttpRequest, query: Annotated[N8nTableQuery, Query()]) -> N8nTableList:
    """Lists each mismatch with its evidence, what n8n does without intervention, and the repair."""
    found = [truth for truth in comparison_store.newest() if query.n8n in ("", truth.name)]
    known = instance_store.newest()
    return N8nTableList(
        installations=[N8nInstallationInfo.of(truth, query, known.get(truth.name, EMPTY)) for truth in found]
    )


class N8nLostExecutionInfo(Schema):
    """An execution whose worker was late or lost. Its data is in no answer."""

    n8n: str
    execution: str
    workflow: str
    title: str = Field(description="The workflow's name.")
    mode: str
    job: JobName
    verdict: VerdictKind = Field(description="The gravest verdict that its job had.")
    worker: str | None
    cause: str | None
    noticed_at: int
    proven_at: int | None = Field(description="Since when it is proven that its worker is gone.")
    outcome: LostExecutionOutcome
    ended_at: int | None
    retried_as: str | None = Field(description="The execution as which it ran again.")
    copied_at: int | None = Field(description="When its data was copied; null: there is no copy.")
    copy_bytes: int | None
    copy_trouble: str | None = Field(description="Why there is no copy.")
    rescue: RescueWay = Field(
        description="retry: before n8n overwrites its data; restore: from the copy; empty: neither."
    )
    rescue_open: bool = Field(description="Whether the action rescue can do it now.")
    rescue_first: int | None = Field(description="Earliest moment at which this way can end; null: unknown.")
    rescue_last: int | None = Field(description="Moment at which this way ends at the latest; null: unknown.")
    rescue_text: str

    @classmethod
    def of(cls, loss: LostExecutionRecord, n8n: N8nInstallation, now: int) -> N8nLostExecutionInfo:
        offer = lost_executions.offered(loss, n8n, now)
        same = ("noticed_at", "proven_at", "outcome", "ended_at", "copied_at", "verdict")
        return cls(
            n8n=loss.n8n,
            execution=printable(loss.execution),
            workflow=printable(loss.workflow),
            title=printable(loss.title),
            mode=printable(loss.mode),
            job=JobName.of(loss.job),
            worker=printable(loss.worker) or None,
            cause=loss.cause or None,
            retried_as=loss.retried_as or None,
            copy_bytes=loss.copy_size,
            copy_trouble=loss.copy_trouble or None,
            rescue=offer.way,
            rescue_open=offer.is_open,
            rescue_first=offer.first,
            rescue_last=offer.last,
            rescue_text=offer.sentence,
            **{name: getattr(loss, name) for name in same},
        )


class LostExecutions(Schema):
    """Executions at risk first, then the newest."""

    losses: list[N8nLostExecutionInfo]


class LossQuery(Schema):
    """Filter; omitted fields match anything."""

    n8n: str = Field(default="", max_length=40, description="Name of one installation.")
    execution: str = Field(default="", max_length=20)
    outcome: LostExecutionOutcome | None = None
    size: int = Field(default=SIZE, ge=1, le=lost_executions.LISTED)


@router.get(
    "/n8n/losses",
    **requires_scope(TokenScope.READ),
    response=LostExecutions,
    url_name="n8n-losses",
    summary="n8n: lost executions",
)
def lost(request: HttpRequest, query: Annotated[LossQuery, Query()]) -> LostExecutions:
    """Lists executions whose worker was late or lost, what became of each, and which rescue is possible until when."""
    known, now = {one.name: one for one in registry().config.n8n}, shared_clock.now()
    found = lost_executions.newest(query.n8n, execution=query.execution, outcome=query.outcome, most=query.size)
    return LostExecutions(
        losses=[N8nLostExecutionInfo.of(loss, known[loss.n8n], now) for loss in found if loss.n8n in known]
    )
