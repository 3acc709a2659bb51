"""Queries of the history of n8n's executions whose worker was late or lost; never the copies themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import Q, QuerySet

from recovery.config import N8nInstallation, current
from recovery.domain.identifiers import QueueRef, unslug
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.n8n.rescue import RescueOffer, offer
from recovery.domain.stuck.types import VerdictKind
from recovery.models import ExecutionCopy, LostExecution
from recovery.reads.stuck.incidents import id_of

LISTED_OUTCOMES = tuple(outcome for outcome in LostExecutionOutcome if outcome is not LostExecutionOutcome.HELD)
LISTED = 500  # records in one list; beyond that only the counts matter
_AT_ONCE = 400  # names in one query: SQLite takes 999 of all kinds


def newest(
    n8n: str = "", *, execution: str = "", outcome: LostExecutionOutcome | None = None, most: int = LISTED
) -> list[LostExecutionRecord]:
    """Returns executions at risk first, then the newest others. Raises Error of the database."""
    rows = LostExecution.objects.exclude(outcome=LostExecutionOutcome.HELD)
    rows = rows.filter(n8n=n8n) if n8n else rows
    rows = rows.filter(execution=execution) if execution else rows
    rows = rows.filter(outcome=outcome) if outcome else rows
    at_risk = rows.filter(outcome=LostExecutionOutcome.AT_RISK).order_by("-noticed_at", "-pk")[:most]
    found = _losses(at_risk)
    if len(found) < most:
        others = rows.exclude(outcome=LostExecutionOutcome.AT_RISK).order_by("-noticed_at", "-pk")
        found += _losses(others[: most - len(found)])
    return found


def newest_by_execution(n8n: str, ids: Iterable[str]) -> dict[str, LostExecutionRecord]:
    """Returns the newest record of each execution. Raises Error of the database."""
    wanted, found = list(dict.fromkeys(ids)), dict[str, LostExecutionRecord]()
    for start in range(0, len(wanted), _AT_ONCE):
        rows = LostExecution.objects.filter(n8n=n8n, execution__in=wanted[start : start + _AT_ONCE]).order_by("pk")
        found |= {loss.execution: loss for loss in _losses(rows)}
    return found


def open_and_recent(n8n: str, since: int, most: int) -> list[LostExecutionRecord]:
    """Returns executions that have not ended, and those that were lost after `since`. Raises Error of the database."""
    lost = Q(outcome=LostExecutionOutcome.LOST, ended_at__gte=since)
    going = Q(outcome__in=(LostExecutionOutcome.AT_RISK, LostExecutionOutcome.HELD))
    chosen = LostExecution.objects.filter(going | lost, n8n=n8n)
    return _losses(chosen.order_by("-noticed_at")[:most])


def counts(n8n: str) -> dict[LostExecutionOutcome, int]:
    """Counts the records by outcome. Raises Error of the database."""
    rows = LostExecution.objects.filter(n8n=n8n)
    return {outcome: count for outcome in LISTED_OUTCOMES if (count := rows.filter(outcome=outcome).count())}


def offered(loss: LostExecutionRecord, n8n: N8nInstallation, now: int) -> RescueOffer:
    """Returns the rescue that is possible now, and for how long."""
    checked = current().thresholds_of(loss.job.queue.deployment, loss.job.queue.base).stalled_interval
    return offer(loss, now, check_interval=checked, keep=n8n.copies.keep)


def _losses(rows: QuerySet[LostExecution]) -> list[LostExecutionRecord]:
    found: Sequence[LostExecution] = list(rows)
    copies: dict[int, tuple[int, int]] = {}
    keys = [row.pk for row in found]
    for start in range(0, len(keys), _AT_ONCE):
        part = ExecutionCopy.objects.filter(loss__in=keys[start : start + _AT_ONCE])
        copies |= {loss: (at, size) for loss, at, size in part.values_list("loss_id", "at", "size")}
    return [_loss(row, copies.get(row.pk)) for row in found]


def _loss(row: LostExecution, copy: tuple[int, int] | None) -> LostExecutionRecord:
    return LostExecutionRecord(
        number=row.pk,
        n8n=row.n8n,
        execution=row.execution,
        workflow=row.workflow,
        title=row.title,
        mode=row.mode,
        job=QueueRef(row.deployment, unslug(row.base)).job(id_of(row.job)),
        verdict=VerdictKind(row.verdict),
        noticed_at=row.noticed_at,
        outcome=LostExecutionOutcome(row.outcome),
        started_at=row.started_at,
        worker=row.worker,
        cause=row.cause,
        proven_at=row.proven_at,
        lock_ends_at=row.lock_ends_at,
        unheld_at=row.unheld_at,
        ended_at=row.ended_at,
        claimed_at=row.claimed_at,
        retried_as=row.retried_as,
        audit=row.audit,
        copied_at=copy[0] if copy else None,
        copy_size=copy[1] if copy else None,
        copy_trouble=row.copy_trouble,
    )
