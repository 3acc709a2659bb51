"""Makes sure that the incident of a lost job is in the database before the job is put back to work.

Quarantine counts incidents alone. A repeatedly stalled job put back without one would cost one more worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from django.db import Error
from django.db.models import QuerySet

from recovery.domain.actions.types import Outcome
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerFinding
from recovery.domain.stuck.context import QUARANTINE_AFTER
from recovery.models import Incident
from recovery.reads.stuck import incidents

_AT_ONCE = 400


def jobs_with_open_incident(queue: QueueRef, ids: Sequence[str]) -> set[str]:
    """Returns the jobs with an open incident. Raises Error, as every function of this module."""
    return set(incidents.open_numbers(queue, ids))


def quarantined_jobs(queue: QueueRef, ids: Sequence[str], now: int) -> set[str]:
    """Returns the quarantined jobs, read anew: a person may have released them, or the last read failed."""
    before = incidents.orphan_counts(queue, ids, now)
    return {id for id in ids if before.get(id, 0) + 1 >= QUARANTINE_AFTER}


def mark_proven(queue: QueueRef, ids: Sequence[str], now: int) -> set[str]:
    """Marks these jobs as proven orphans before their locks have expired; returns those that were not marked before."""
    fresh = set()
    for mine in _open(queue, ids):
        fresh |= {incidents.id_of(key) for key in mine.filter(proven_at=None).values_list("job", flat=True)}
        mine.filter(proven_at=None).update(proven_at=now)
    return fresh & set(ids)


def release_as_proven(
    queue: QueueRef, ids: Sequence[str], now: int, release: Callable[[], tuple[ScannerFinding, ...]]
) -> list[ScannerFinding]:
    """Marks jobs as proven, then releases them; revokes the mark of those that were not changed after all.

    The mark comes first, so that the incident counts even if the process ends in between.
    """
    fresh = mark_proven(queue, ids, now)
    done = release()
    untouched = {find.job.id for find in done if find.outcome not in (Outcome.DONE, Outcome.UNKNOWN)}
    with suppress(Error):  # then these stay counted as orphaned
        withdraw(queue, fresh & untouched)
    return list(done)


def withdraw(queue: QueueRef, ids: Collection[str]) -> None:
    """Revokes the proof of incidents whose jobs were not changed after all."""
    for mine in _open(queue, list(ids)):
        mine.update(proven_at=None)


def _open(queue: QueueRef, ids: Sequence[str]) -> Iterator[QuerySet[Incident]]:
    for start in range(0, len(ids), _AT_ONCE):
        keys = [job_key(id) for id in ids[start : start + _AT_ONCE]]
        yield Incident.objects.filter(deployment=queue.deployment, base=queue.slug, job__in=keys, closed_at=None)
