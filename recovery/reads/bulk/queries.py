"""Reads bulk runs: progress, rate, time left, and the outcome of each job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import QueueRef, unslug
from recovery.errors import Missing
from recovery.models import BulkItem, BulkRun

OPEN = ("waiting", "gathering", "running")
RATE_AFTER = 1000  # ms: the rate of a running run over less is noise
SIZES = (100, 500)
SILENT = 5_000  # ms without a heartbeat: no scheduler works on it now
_PLACE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """Progress of a bulk run. `left_ms` None: no estimate yet. `trouble` says why it waits, or why it failed."""

    id: int
    act: str
    queue: QueueRef
    actor: str
    reason: str
    status: str
    wants_stop: bool
    created_at: int
    started_at: int | None
    ended_at: int | None
    total: int
    done: int
    refused: int
    missing: int
    unchanged: int
    unknown: int
    trouble: str
    options: dict[str, Any]
    selection: dict[str, Any]
    rate: float | None = None  # jobs a second
    left_ms: int | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def settled(self) -> int:
        return self.done + self.refused + self.missing + self.unchanged + self.unknown

    @property
    def share(self) -> float:
        """Share of the jobs that are settled, 0 to 1."""
        return min(1.0, self.settled / self.total) if self.total else float(not self.is_open)


@dataclass(frozen=True, slots=True)
class BulkJobResult:
    """Result of one job of a bulk run. `outcome` "": it was not tried yet."""

    place: int
    job: str
    outcome: str
    why: str
    audit: int | None


@dataclass(frozen=True, slots=True)
class BulkJobResults:
    rows: tuple[BulkJobResult, ...]
    next: str = ""


def progress(id: int, now: int) -> BulkProgress:
    """Loads one bulk run; raises Missing."""
    run = BulkRun.objects.filter(pk=id).first()
    if run is None:
        raise Missing(f"There is no bulk run {id}.")
    return _progress(run, now)


def recent(now: int, size: int = 20) -> tuple[BulkProgress, ...]:
    """Returns the newest bulk runs, open ones among them."""
    return tuple(_progress(run, now) for run in BulkRun.objects.order_by("-pk")[:size])


def queues_under_repair(deployment: str, now: int) -> frozenset[QueueRef]:
    """Returns the queues whose jobs a bulk run requeues, fails or releases now; a run with `trouble` does not count.

    Raises django.db.Error.
    """
    running = BulkRun.objects.filter(status__in=OPEN, deployment=deployment, trouble="", beat_at__gte=now - SILENT)
    acts = running.filter(act__in=(Action.REQUEUE, Action.FAIL, Action.RELEASE)).values_list("base", flat=True)
    return frozenset(QueueRef(deployment, unslug(base)) for base in acts)


def results(id: int, *, outcome: str = "", cursor: str = "", size: int = SIZES[0]) -> BulkJobResults:
    """Returns one page of the jobs, in the order of processing. `outcome` "left" selects those not tried yet."""
    size = max(1, min(size, max(SIZES)))
    found = BulkItem.objects.filter(run_id=id).order_by("place")
    if outcome:
        found = found.filter(outcome="" if outcome == "left" else outcome)
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= _PLACE_DIGITS:
        found = found.filter(place__gt=int(cursor))
    rows = list(found[: size + 1])
    shown = tuple(map(_result, rows[:size]))
    return BulkJobResults(shown, str(shown[-1].place) if len(rows) > size else "")


def _result(item: BulkItem) -> BulkJobResult:
    """Decodes one job's row. While it has no outcome, the column `why` holds a mark of the run, which is not shown."""
    return BulkJobResult(item.place, unslug(item.job), item.outcome, item.why if item.outcome else "", item.audit)


def _progress(run: BulkRun, now: int) -> BulkProgress:
    settled = sum(getattr(run, outcome.value) for outcome in Outcome)
    took = (run.ended_at or now) - run.started_at if run.started_at else 0
    is_telling = took >= RATE_AFTER or bool(took and run.ended_at)
    rate = settled * 1000 / took if is_telling and settled else None
    left = int((run.total - settled) * 1000 / rate) if rate and run.status == "running" else None
    return BulkProgress(
        id=run.pk,
        act=run.act,
        queue=QueueRef(run.deployment, unslug(run.base)),
        actor=json.loads(run.actor)["name"],
        reason=run.reason,
        status=run.status,
        wants_stop=run.wants_stop,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        total=run.total,
        done=run.done,
        refused=run.refused,
        missing=run.missing,
        unchanged=run.unchanged,
        unknown=run.unknown,
        trouble=run.trouble,
        options=json.loads(run.options),
        selection=json.loads(run.selection),
        rate=rate,
        left_ms=None if left is None else max(0, left),
    )
