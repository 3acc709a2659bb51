"""What has to be in the database before a lost job is put back to work: its incident, so that this time is counted.

Poison is known by its incidents alone. A job that went back without one would take one worker more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from django.db.models import QuerySet

from recovery.domain.chain import job_key
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import POISON_AFTER
from recovery.models import Incident
from recovery.reads import incidents

_AT_ONCE = 400


def counted(queue: QueueRef, ids: Sequence[str]) -> set[str]:
    """Those whose incident is open. Raises Error, as everything here."""
    return set(incidents.open_numbers(queue, ids))


def poison(queue: QueueRef, ids: Sequence[str], now: int) -> set[str]:
    """Asked anew: somebody may have forgiven them, or the last answer was none."""
    before = incidents.orphaned(queue, ids, now)
    return {id for id in ids if before.get(id, 0) + 1 >= POISON_AFTER}


def prove(queue: QueueRef, ids: Sequence[str], now: int) -> set[str]:
    """Counts them as orphaned, before their locks have ended; those that were not before."""
    fresh = set()
    for mine in _open(queue, ids):
        fresh |= {incidents.id_of(key) for key in mine.filter(proven_at=None).values_list("job", flat=True)}
        mine.filter(proven_at=None).update(proven_at=now)
    return fresh & set(ids)


def withdraw(queue: QueueRef, ids: Collection[str]) -> None:
    """Nothing was done to them after all, so nothing is proven yet."""
    for mine in _open(queue, list(ids)):
        mine.update(proven_at=None)


def _open(queue: QueueRef, ids: Sequence[str]) -> Iterator[QuerySet[Incident]]:
    for start in range(0, len(ids), _AT_ONCE):
        keys = [job_key(id) for id in ids[start : start + _AT_ONCE]]
        yield Incident.objects.filter(deployment=queue.deployment, base=queue.slug, job__in=keys, closed_at=None)
