"""Reads incidents from the database: those of one job, recent ones, and times to recovery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from django.db import Error
from django.db.models import Count, Max, Q, QuerySet

from recovery import shared_clock
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import JobRef, QueueRef, unslug
from recovery.domain.safety_limits import quarantine
from recovery.domain.stuck.context import QUARANTINE_AFTER
from recovery.domain.time_units import HOUR
from recovery.errors import NotRecorded
from recovery.models import Incident
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import QUARANTINE_RELEASE, SafetyLimitScope

LIMIT = 500  # incidents listed: of more the page shows the number
TIMES_LIMIT = 20_000  # recoveries that the median is computed from
_UNREAD = "It is unknown whether it is quarantined, because earlier incidents cannot be read, so nothing was changed"
CLOCKS_MS = 10_000  # how far the clock of a job's producer and ours may differ
_AT_ONCE = 400  # names in one query: SQLite takes 999 of all kinds


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    """Incident, as the pages show it. `resolved_by`: watchdog, operator, scanner, worker, removed, or "" if unknown."""

    number: int
    job: JobRef
    name: str
    kind: str
    cause: str
    evidence: str
    holder: str
    server: str
    opened_at: int
    proven_at: int | None
    closed_at: int | None
    resolved_by: str
    audit: int | None

    @property
    def took(self) -> int | None:
        """Time from first sight to resolution in ms; None while the incident is open."""
        return None if self.closed_at is None else max(0, self.closed_at - self.opened_at)


@dataclass(frozen=True, slots=True)
class RecoveryTimes:
    """Measured times to recovery of proven orphans in ms; None if there was none."""

    count: int = 0
    median: int | None = None
    worst: int | None = None
    still_open: int = 0


def incidents_of_job(job: JobRef, *, added_at: int | None = None) -> tuple[IncidentRecord, ...]:
    """Returns a job's incidents, newest first; those closed before `added_at` are an older job's, and are left out."""
    mine = Incident.objects.filter(**_of(job.queue), job=job_key(job.id))
    if added_at is not None:
        mine = mine.filter(Q(closed_at=None) | Q(closed_at__gte=added_at - CLOCKS_MS))
    return _records(mine)


def recent(hours: int = 24, *, queue: QueueRef | None = None, now: int | None = None) -> tuple[IncidentRecord, ...]:
    """Returns open incidents, and those that were closed in these hours; newest first."""
    since = _since(hours, now)
    found = Incident.objects.filter(Q(closed_at=None) | Q(closed_at__gte=since))
    return _records(found.filter(**_of(queue)) if queue else found)


def recovery_times(hours: int = 24, *, queue: QueueRef | None = None, now: int | None = None) -> RecoveryTimes:
    proven = Incident.objects.exclude(proven_at=None)
    if queue:
        proven = proven.filter(**_of(queue))
    closed = proven.filter(closed_at__gte=_since(hours, now)).order_by("-closed_at")
    pairs = closed.values_list("opened_at", "closed_at")[:TIMES_LIMIT]
    times = sorted(max(0, end - start) for start, end in pairs if end is not None)
    still_open = proven.filter(closed_at=None).count()
    if not times:
        return RecoveryTimes(still_open=still_open)
    return RecoveryTimes(len(times), times[max(0, ceil(0.5 * len(times)) - 1)], times[-1], still_open)


def orphan_counts(queue: QueueRef, ids: Sequence[str], now: int) -> dict[str, int]:
    """Counts how often these jobs were orphaned before, as it counts for quarantine. Jobs that never were are left out,
    and so are incidents before a quarantine release. For a job orphaned now the window ends when that began.
    """
    keys = {job_key(id): id for id in ids}
    found: dict[str, int] = {}
    for key, rows in _suffered(queue, list(keys)).items():
        began = min((row.opened_at for row in rows if row.is_open), default=now)
        found[keys[key]] = quarantine.orphaned_count(
            [row.proven_at for row in rows if row.proven_at and not row.is_open], began
        )
    return {id: count for id, count in found.items() if count}


def known_orphan_counts(queue: QueueRef, ids: Sequence[str], now: int, *, insists: bool) -> Mapping[str, int]:
    """Counts as `orphaned`, while the database may be unavailable. A page then gets no counts; an action passes
    `insists`, because it would send quarantined jobs back to work, and gets NotRecorded.
    """
    try:
        return orphan_counts(queue, ids, now) if ids else {}
    except Error as error:
        if insists:
            raise NotRecorded(f"{_UNREAD}: {type(error).__name__}.") from error
        return {}


def orphan_counts_by_key(queue: QueueRef, keys: Sequence[str], now: int) -> dict[str, int]:
    """Counts by `job_key` how often jobs were orphaned, with open incidents."""
    proven = ((key, [row.proven_at for row in rows if row.proven_at]) for key, rows in _suffered(queue, keys).items())
    found = {key: quarantine.orphaned_count(times, now) for key, times in proven}
    return {key: count for key, count in found.items() if count}


def quarantined_jobs(now: int, queue: QueueRef | None = None) -> dict[tuple[QueueRef, str], int]:
    """Returns the quarantined jobs by `job_key`, with how often each was orphaned; newest first."""
    proven = Incident.objects.exclude(proven_at=None)
    rows = (proven.filter(**_of(queue)) if queue else proven).values("deployment", "base", "job")
    often = rows.annotate(times=Count("id"), last=Max("opened_at")).filter(times__gte=QUARANTINE_AFTER)
    found = [(QueueRef(row["deployment"], unslug(row["base"])), row["job"]) for row in often.order_by("-last")[:LIMIT]]
    groups: dict[QueueRef, list[str]] = {}
    for ref, key in found:
        groups.setdefault(ref, []).append(key)
    counts = {
        (ref, key): count for ref, keys in groups.items() for key, count in orphan_counts_by_key(ref, keys, now).items()
    }
    return {job: counts[job] for job in found if counts.get(job, 0) >= QUARANTINE_AFTER}


class _Suffered(NamedTuple):
    opened_at: int
    proven_at: int | None
    is_open: bool


def _suffered(queue: QueueRef, keys: Sequence[str]) -> dict[str, list[_Suffered]]:
    """Reads each job's incidents, without those before its quarantine release."""
    found: dict[str, list[_Suffered]] = {}
    for start in range(0, len(keys), _AT_ONCE):
        mine = Incident.objects.filter(**_of(queue), job__in=keys[start : start + _AT_ONCE])
        for job, opened_at, proven_at, closed_at in mine.values_list("job", "opened_at", "proven_at", "closed_at"):
            found.setdefault(job, []).append(_Suffered(opened_at, proven_at, closed_at is None))
    pardons = limit_rows.read_rows(QUARANTINE_RELEASE, SafetyLimitScope.of(queue), found)
    return {
        job: [row for row in rows if (row.proven_at or row.opened_at) > pardons[job].value.at]
        for job, rows in found.items()
    }


def open_numbers(queue: QueueRef, ids: Sequence[str]) -> dict[str, int]:
    """Returns the numbers of the open incidents of these jobs."""
    found: dict[str, int] = {}
    for part in _parts(ids):
        rows = Incident.objects.filter(**_of(queue), job__in=list(part), closed_at=None).values_list("job", "id")
        found |= {part[job]: number for job, number in rows}
    return found


def _parts(ids: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yields batches of job ids by their keys in the database."""
    for start in range(0, len(ids), _AT_ONCE):
        yield {job_key(id): id for id in ids[start : start + _AT_ONCE]}


def id_of(key: str) -> str:
    """Returns the job id of a key. A very long id is stored truncated; then the key itself is returned."""
    try:
        return unslug(key)
    except ValueError:
        return key


def _of(queue: QueueRef) -> dict[str, str]:
    return {"deployment": queue.deployment, "base": queue.slug}


def _since(hours: int, now: int | None) -> int:
    return (shared_clock.now() if now is None else now) - hours * HOUR


def _records(found: QuerySet[Incident]) -> tuple[IncidentRecord, ...]:
    return tuple(_record(row) for row in found.order_by("-opened_at", "-id")[:LIMIT])


def _record(row: Incident) -> IncidentRecord:
    return IncidentRecord(
        number=row.id,
        job=QueueRef(row.deployment, unslug(row.base)).job(id_of(row.job)),
        name=row.name,
        kind=row.kind,
        cause=row.cause,
        evidence=row.evidence,
        holder=row.holder,
        server=id_of(row.server),
        opened_at=row.opened_at,
        proven_at=row.proven_at,
        closed_at=row.closed_at,
        resolved_by=row.resolved_by,
        audit=row.audit,
    )
