"""Reads the safety limits for the pages: paused deployments, budgets, breakers, and jobs that wait for a person.

Errors of jobs are redacted here: they may hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from recovery.config import Config
from recovery.connections.registry import registry
from recovery.domain import redact
from recovery.domain.ages import HOUR
from recovery.domain.brake import Brake, Hold
from recovery.domain.breaker import Breaker, Stage
from recovery.domain.budget import Gauge
from recovery.domain.refs import JobRef, QueueRef
from recovery.domain.retry import CAP_WINDOW, RELAUNCH_CAP
from recovery.models import BrakeState
from recovery.reads import brake_rows, incidents
from recovery.reads.brake_rows import BREAKER, BUDGET, PAST, STORE, Place, Row
from recovery.reads.incidents import id_of

LISTED = 200  # of each kind: of more the page shows the number
_READ = 2_000  # rows read, those written last
_SPENT_FOR = HOUR  # a budget unused for so long is full, and is not listed
_ORDER = (Stage.OPEN, Stage.HALF_OPEN, Stage.CLOSED)


@dataclass(frozen=True, slots=True)
class StoreBrake:
    """Redis pause of one deployment. `changed_at` None: the deployment was not checked yet."""

    deployment: str
    holds: tuple[Hold, ...] = ()
    words: tuple[str, ...] = ()
    changed_at: int | None = None
    released_at: int | None = None
    released_by: str = ""

    @property
    def is_holding(self) -> bool:
        return bool(self.holds)


@dataclass(frozen=True, slots=True)
class QueueGauge:
    """Budget of a queue: `gauge.spent` of `gauge.limit.per_minute`."""

    queue: QueueRef
    gauge: Gauge


@dataclass(frozen=True, slots=True)
class ErrorBreaker:
    """Breaker of one error; `signature` "" with `key` "" is the one for all errors of its queue."""

    queue: QueueRef
    key: str
    signature: str
    stage: Stage
    words: str
    failed: int  # retried jobs that failed again
    of: int
    out: int
    opened_at: int | None
    retry_at: int | None  # when a probe may go; None while it is closed
    probe: str | None
    error: str  # the last error of a retried job

    @property
    def is_for_all(self) -> bool:
        return not self.key

    @property
    def is_open(self) -> bool:
        return self.stage is not Stage.CLOSED


@dataclass(frozen=True, slots=True)
class Capped:
    """Job at its auto-retry limit; it is retried automatically at `free_at` at the earliest."""

    job: JobRef
    key: str
    count: int  # lately
    made: int  # ever
    last_at: int
    free_at: int


@dataclass(frozen=True, slots=True)
class QuarantinedJob:
    """Job that was orphaned so often that only a person may touch it."""

    job: JobRef
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class Brakes:
    """Safety limits that are in use or in effect. At most LISTED of each kind, the worst first."""

    stores: tuple[StoreBrake, ...] = ()
    gauges: tuple[QueueGauge, ...] = ()
    breakers: tuple[ErrorBreaker, ...] = ()
    capped: tuple[Capped, ...] = ()
    quarantined: tuple[QuarantinedJob, ...] = ()

    @property
    def holding(self) -> tuple[StoreBrake, ...]:
        return tuple(store for store in self.stores if store.is_holding)


def of_all(now: int) -> Brakes:
    """Returns the limits of all queues. Raises django.db.Error, as every function of this module."""
    return replace(_of(None, now), stores=stores(now))


def of_queue(ref: QueueRef, now: int) -> Brakes:
    """Returns the limits of one queue, with the Redis pause of its deployment."""
    mine = tuple(store for store in stores(now) if store.deployment == ref.deployment)
    return replace(_of(ref, now), stores=mine)


def stores(now: int, config: Config | None = None) -> tuple[StoreBrake, ...]:
    """Returns the Redis pause of every configured deployment."""
    config = config or registry().config
    rows = {row.deployment: brake_rows.decoded(STORE, row) for row in brake_rows.of(STORE)}
    names = (deployment.name for deployment in config.deployments)
    return tuple(_store(name, rows.get(name), now) for name in names)


def breakers(now: int) -> tuple[ErrorBreaker, ...]:
    """Returns the breakers of all queues that are not idle."""
    return tuple(_breakers(None, now))


def _store(name: str, row: Row[Brake] | None, now: int) -> StoreBrake:
    if row is None:
        return StoreBrake(name)
    brake = row.value
    return StoreBrake(name, brake.holding(now), brake.words(now), row.at, brake.released_at, brake.released_by)


def _of(queue: QueueRef | None, now: int) -> Brakes:
    place = Place.of(queue) if queue else None
    breakers = sorted(_breakers(place, now), key=lambda one: (_ORDER.index(one.stage), -one.failed, one.queue))
    return Brakes(
        gauges=tuple(sorted(_gauges(place, now), key=lambda one: (-one.gauge.spent, one.queue))[:LISTED]),
        breakers=tuple(breakers[:LISTED]),
        capped=tuple(_capped(place, now))[:LISTED],
        quarantined=tuple(_quarantined(queue, now))[:LISTED],
    )


def _gauges(place: Place | None, now: int) -> Iterator[QueueGauge]:
    for row in brake_rows.of(BUDGET, place).filter(at__gt=now - _SPENT_FOR).order_by("-at")[:_READ]:
        purse = brake_rows.decoded(BUDGET, row).value
        budget = purse.found(now, purse.limit).budget
        yield QueueGauge(_queue(row), budget.gauge(now, purse.limit))


def _breakers(place: Place | None, now: int) -> Iterator[ErrorBreaker]:
    for row in brake_rows.of(BREAKER, place).order_by("-at")[:_READ]:
        breaker = brake_rows.decoded(BREAKER, row).value
        if not breaker.is_idle(now):
            yield _breaker(row, breaker, now)


def _breaker(row: BrakeState, breaker: Breaker, now: int) -> ErrorBreaker:
    failed, of = breaker.tally(now)
    return ErrorBreaker(
        queue=_queue(row),
        key=row.key,
        signature=redact.text(breaker.signature),
        stage=breaker.stage(now),
        words=redact.text(breaker.words(now)),
        failed=failed,
        of=of,
        out=len(breaker.followed(now)),
        opened_at=breaker.opened_at,
        retry_at=None if breaker.opened_at is None else breaker.retry_at,
        probe=breaker.probe,
        error=redact.text(breaker.error),
    )


def _capped(place: Place | None, now: int) -> Iterator[Capped]:
    """Yields jobs at their auto-retry limit. Each retry writes the row, so a row of fewer versions is below it."""
    rows = brake_rows.of(PAST, place).filter(at__gt=now - CAP_WINDOW, version__gte=RELAUNCH_CAP)
    for row in rows.order_by("-at")[:_READ]:
        past = brake_rows.decoded(PAST, row).value
        if past.is_capped(now):
            job = _queue(row).job(id_of(row.key))
            yield Capped(job, row.key, len(past.lately(now)), past.made, past.at[-1], past.free_at())


def _quarantined(queue: QueueRef | None, now: int) -> Iterator[QuarantinedJob]:
    for (ref, key), count in incidents.quarantined_jobs(now, queue).items():
        yield QuarantinedJob(ref.job(id_of(key)), key, count)


def _queue(row: BrakeState) -> QueueRef:
    return brake_rows.place_of(row).queue
