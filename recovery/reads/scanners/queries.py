"""Reads what the scanners page shows: a card for each scanner, its runs, and what a run did to which job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from recovery.config import Config
from recovery.domain.actions.types import Actor
from recovery.domain.identifiers import JobRef, QueueRef, unslug
from recovery.domain.scanners.types import ScannerKind, ScanStatus
from recovery.errors import ConfigError, Missing, StoreError
from recovery.models import ScanFind, ScannerPause, ScanRun
from recovery.reads.scanners import last_runs
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.stuck.incidents import id_of
from recovery.stores.registry import registry

SIZES = (50, 200)
MISSED = 2.0  # runs without success; one may be in progress, and one may have met a restart
SLACK = 15_000  # ms: another scheduler takes over within this time, and one run of a fast scanner may take some of it
_DIGITS = 18  # of a number that a cursor may be


@dataclass(frozen=True, slots=True)
class ScannerPauseRow:
    by: str
    at: int
    reason: str


@dataclass(frozen=True, slots=True)
class ScannerRunRow:
    """Recorded run of a scanner. `queue` None: all queues; `actor` None: it was scheduled."""

    id: int
    scan: ScannerKind
    status: ScanStatus
    dry_run: bool
    queue: QueueRef | None
    actor: Actor | None
    reason: str
    epoch: int | None
    wanted_at: int
    started_at: int | None
    ended_at: int | None
    looked: int
    found: int
    acted: int
    refused: int
    holds: tuple[str, ...]
    trouble: str

    @property
    def is_open(self) -> bool:
        return self.status in (ScanStatus.WAITING, ScanStatus.RUNNING)

    @property
    def took(self) -> int | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0, self.ended_at - self.started_at)


@dataclass(frozen=True, slots=True)
class ScannerCard:
    """Card of one scanner. `pulse` None: it never ran, or its last run cannot be read, and `trouble` says why.

    `next_at` None: it is paused, or the next run is unknown.
    """

    scan: ScannerKind
    every: float  # seconds between two runs
    pulse: LastScannerRun | None
    pause: ScannerPauseRow | None
    open: ScannerRunRow | None  # the run that is in progress or waits to be started, if it has a row
    last: ScannerRunRow | None  # the newest run with a row that has ended
    trouble: str
    is_late: bool  # it should have succeeded since

    @property
    def purpose(self) -> str:
        return self.scan.purpose

    @property
    def succeeded_at(self) -> int | None:
        return self.pulse.succeeded_at if self.pulse else None

    @property
    def next_at(self) -> int | None:
        stands = self.pause is not None and not self.scan.looks_on
        return None if stands or self.pulse is None else self.pulse.next_at


@dataclass(frozen=True, slots=True)
class ScannerRunsPage:
    rows: tuple[ScannerRunRow, ...]
    next: str = ""


@dataclass(frozen=True, slots=True)
class ScannerFindRow:
    """Job that a run matched; the queue itself if `job.id` is "". `act` "": it was not changed."""

    id: int
    job: JobRef
    what: str
    act: str
    outcome: str
    why: str
    policy: str
    audit: int | None


@dataclass(frozen=True, slots=True)
class ScannerFindsPage:
    rows: tuple[ScannerFindRow, ...]
    next: str = ""


def every(config: Config, scan: ScannerKind) -> float:
    """Returns the seconds between two runs of a scanner."""
    return {
        ScannerKind.COLLECT: config.collect_every,
        ScannerKind.DISCOVER: config.discover_every,
        ScannerKind.ORPHAN_WATCH: config.orphans_every,
        ScannerKind.STALE_CHECK: config.stale_check_every,
        ScannerKind.AUTO_RETRY: config.auto_retry_every,
        ScannerKind.STARTUP_SWEEP: config.startup_sweep_every,
        ScannerKind.PRUNE: config.prune_every,
    }[scan]


def cards(now: int) -> tuple[ScannerCard, ...]:
    """Returns all cards in the order of the page. Without the state store they lack the last runs, and say so."""
    known = _known(now)
    return tuple(_card(scan, known) for scan in ScannerKind)


def card(scan: ScannerKind, now: int) -> ScannerCard:
    return _card(scan, _known(now))


def is_late(often: float, succeeded_at: int | None, now: int) -> bool:
    """Tells whether a scanner is late; False if it never succeeded as far as known. A success in the future is none."""
    return succeeded_at is not None and not -SLACK <= now - succeeded_at <= MISSED * often * 1000 + SLACK


def pauses() -> dict[ScannerKind, ScannerPauseRow]:
    rows = ScannerPause.objects.filter(scanner__in=[scan.value for scan in ScannerKind])
    return {ScannerKind(row.scanner): ScannerPauseRow(row.by, row.at, row.reason) for row in rows}


def runs(scan: ScannerKind | None = None, *, cursor: str = "", size: int = SIZES[0]) -> ScannerRunsPage:
    """Returns a page of runs, newest first; of one scanner, or of all."""
    size = max(1, min(size, max(SIZES)))
    rows = list(_rows(scan, cursor)[: size + 1])
    shown = tuple(map(_run, rows[:size]))
    return ScannerRunsPage(shown, str(shown[-1].id) if len(rows) > size else "")


def run(id: int) -> ScannerRunRow:
    """Loads one run; raises Missing."""
    row = ScanRun.objects.filter(pk=id).first()
    if row is None:
        raise Missing(f"There is no run {id} of a scanner (any more).")
    return _run(row)


def finds(id: int, *, cursor: str = "", size: int = SIZES[0]) -> ScannerFindsPage:
    """Returns a page of a run's jobs, in the order in which they were recorded: changed ones come first."""
    size = max(1, min(size, max(SIZES)))
    found = ScanFind.objects.filter(run_id=id).order_by("pk")
    if (after := _number(cursor)) is not None:
        found = found.filter(pk__gt=after)
    rows = list(found[: size + 1])
    shown = tuple(map(_find, rows[:size]))
    return ScannerFindsPage(shown, str(shown[-1].id) if len(rows) > size else "")


@dataclass(frozen=True, slots=True)
class _Known:
    """Data that all cards are built from."""

    config: Config
    now: int
    pulses: Mapping[ScannerKind, LastScannerRun]
    pauses: Mapping[ScannerKind, ScannerPauseRow]
    trouble: str = ""


def _known(now: int) -> _Known:
    config, paused = registry().config, pauses()
    try:
        return _Known(config, now, last_runs.read(registry().state()), paused)
    except (ConfigError, StoreError) as error:
        return _Known(config, now, {}, paused, f"The last runs are in the state store, which does not answer: {error}")


def _card(scan: ScannerKind, known: _Known) -> ScannerCard:
    kept, pulse, pause = _rows(scan, ""), known.pulses.get(scan), known.pauses.get(scan)
    under_way = kept.filter(status__in=(ScanStatus.RUNNING, ScanStatus.WAITING)).first()
    last = kept.filter(status__in=(ScanStatus.ENDED, ScanStatus.FAILED)).first()
    often, stands = every(known.config, scan), pause is not None and not scan.looks_on
    return ScannerCard(
        scan,
        often,
        pulse,
        pause,
        _run(under_way) if under_way else None,
        _run(last) if last else None,
        known.trouble or (pulse.trouble if pulse else ""),
        not stands and is_late(often, pulse.succeeded_at if pulse else None, known.now),
    )


def _rows(scan: ScannerKind | None, cursor: str) -> QuerySet[ScanRun]:
    rows = ScanRun.objects.order_by("-pk")
    if scan is not None:
        rows = rows.filter(scanner=scan.value)
    before = _number(cursor)
    return rows if before is None else rows.filter(pk__lt=before)


def _number(cursor: str) -> int | None:
    return int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) <= _DIGITS else None


def _run(row: ScanRun) -> ScannerRunRow:
    return ScannerRunRow(
        id=row.pk,
        scan=ScannerKind(row.scanner),
        status=ScanStatus(row.status),
        dry_run=row.dry_run,
        queue=QueueRef(row.deployment, unslug(row.base)) if row.base else None,
        actor=Actor(**_json(row.actor)) if row.actor else None,
        reason=row.reason,
        epoch=row.epoch,
        wanted_at=row.wanted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        looked=row.looked,
        found=row.found,
        acted=row.acted,
        refused=row.refused,
        holds=tuple(_json(row.holds)),
        trouble=row.trouble,
    )


def _json(written: str) -> Any:
    return json.loads(written)


def _find(row: ScanFind) -> ScannerFindRow:
    job = JobRef(QueueRef(row.deployment, unslug(row.base)), id_of(row.job))
    return ScannerFindRow(row.pk, job, row.what, row.act, row.outcome, row.why, row.policy, row.audit)
