"""Incidents as the database has them: of one job, of late, and how long recoveries took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from django.db.models import Count, Q, QuerySet

from recovery.domain.ages import HOUR
from recovery.domain.chain import job_key
from recovery.domain.refs import JobRef, QueueRef, unslug
from recovery.domain.surroundings import POISON_WINDOW
from recovery.models import Incident

LIMIT = 500  # incidents listed: a worse night than that is told by its numbers
TIMES_LIMIT = 20_000  # recoveries a median is taken of
_AT_ONCE = 400  # names in one query: SQLite takes 999 of all kinds


@dataclass(frozen=True, slots=True)
class Record:
    """One incident. `resolved_by`: watchdog, operator, scanner, worker, removed, or "" when nobody knows."""

    number: int
    job: JobRef
    name: str
    kind: str
    cause: str
    evidence: str
    holder: str
    opened_at: int
    proven_at: int | None
    closed_at: int | None
    resolved_by: str
    audit: int | None

    @property
    def took(self) -> int | None:
        """From first sight to resolution, ms; None while it is open."""
        return None if self.closed_at is None else max(0, self.closed_at - self.opened_at)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Measured times to recovery of proven orphans, ms; None when there was none."""

    count: int = 0
    median: int | None = None
    worst: int | None = None
    still_open: int = 0


def of_job(job: JobRef) -> tuple[Record, ...]:
    """Newest first."""
    return _records(Incident.objects.filter(**_of(job.queue), job=job_key(job.id)))


def recent(hours: int = 24, *, queue: QueueRef | None = None, now: int | None = None) -> tuple[Record, ...]:
    """Open ones, and those that were opened or closed in these hours; newest first."""
    since = _since(hours, now)
    found = Incident.objects.filter(Q(closed_at=None) | Q(closed_at__gte=since))
    return _records(found.filter(**_of(queue)) if queue else found)


def recovery_times(hours: int = 24, *, queue: QueueRef | None = None, now: int | None = None) -> Recovery:
    proven = Incident.objects.exclude(proven_at=None)
    if queue:
        proven = proven.filter(**_of(queue))
    closed = proven.filter(closed_at__gte=_since(hours, now)).order_by("-closed_at")
    pairs = closed.values_list("opened_at", "closed_at")[:TIMES_LIMIT]
    times = sorted(max(0, end - start) for start, end in pairs if end is not None)
    still_open = proven.filter(closed_at=None).count()
    if not times:
        return Recovery(still_open=still_open)
    return Recovery(len(times), times[max(0, ceil(0.5 * len(times)) - 1)], times[-1], still_open)


def orphaned(queue: QueueRef, ids: Sequence[str], now: int) -> dict[str, int]:
    """How often these jobs were orphaned before, within POISON_WINDOW; jobs that never were are left out."""
    found: dict[str, int] = {}
    for part in _parts(ids):
        earlier = Incident.objects.filter(
            **_of(queue), job__in=list(part), proven_at__gte=now - POISON_WINDOW, closed_at__isnull=False
        )
        found |= {part[row["job"]]: row["times"] for row in earlier.values("job").annotate(times=Count("id"))}
    return found


def open_numbers(queue: QueueRef, ids: Sequence[str]) -> dict[str, int]:
    """The numbers of the open incidents of these jobs."""
    found: dict[str, int] = {}
    for part in _parts(ids):
        rows = Incident.objects.filter(**_of(queue), job__in=list(part), closed_at=None).values_list("job", "id")
        found |= {part[job]: number for job, number in rows}
    return found


def _parts(ids: Sequence[str]) -> Iterator[dict[str, str]]:
    """Ids by how the database holds them."""
    for start in range(0, len(ids), _AT_ONCE):
        yield {job_key(id): id for id in ids[start : start + _AT_ONCE]}


def id_of(key: str) -> str:
    """A very long id is held cut, and cannot be told from its key."""
    try:
        return unslug(key)
    except ValueError:
        return key


def _of(queue: QueueRef) -> dict[str, str]:
    return {"deployment": queue.deployment, "base": queue.slug}


def _since(hours: int, now: int | None) -> int:
    return (int(time.time() * 1000) if now is None else now) - hours * HOUR


def _records(found: QuerySet[Incident]) -> tuple[Record, ...]:
    return tuple(_record(row) for row in found.order_by("-opened_at", "-id")[:LIMIT])


def _record(row: Incident) -> Record:
    return Record(
        number=row.id,
        job=QueueRef(row.deployment, unslug(row.base)).job(id_of(row.job)),
        name=row.name,
        kind=row.kind,
        cause=row.cause,
        evidence=row.evidence,
        holder=row.holder,
        opened_at=row.opened_at,
        proven_at=row.proven_at,
        closed_at=row.closed_at,
        resolved_by=row.resolved_by,
        audit=row.audit,
    )
