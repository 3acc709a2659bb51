"""What has to be in the database before a lost job is put back to work: its incident, so that this time is counted.

Quarantine is known by its incidents alone. A job that went back without one would take one worker more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from django.db import Error
from django.db.models import QuerySet

from recovery.domain.acting import Outcome
from recovery.domain.chain import job_key
from recovery.domain.refs import QueueRef
from recovery.domain.scans import Find
from recovery.domain.surroundings import QUARANTINE_AFTER
from recovery.models import Incident
from recovery.reads import incidents

_AT_ONCE = 400


def counted(queue: QueueRef, ids: Sequence[str]) -> set[str]:
    """Those whose incident is open. Raises Error, as everything here."""
    return set(incidents.open_numbers(queue, ids))


def quarantined(queue: QueueRef, ids: Sequence[str], now: int) -> set[str]:
    """Asked anew: somebody may have forgiven them, or the last answer was none."""
    before = incidents.orphaned(queue, ids, now)
    return {id for id in ids if before.get(id, 0) + 1 >= QUARANTINE_AFTER}


def prove(queue: QueueRef, ids: Sequence[str], now: int) -> set[str]:
    """Counts them as orphaned, before their locks have ended; those that were not before."""
    fresh = set()
    for mine in _open(queue, ids):
        fresh |= {incidents.id_of(key) for key in mine.filter(proven_at=None).values_list("job", flat=True)}
        mine.filter(proven_at=None).update(proven_at=now)
    return fresh & set(ids)


def releasing(queue: QueueRef, ids: Sequence[str], now: int, release: Callable[[], tuple[Find, ...]]) -> list[Find]:
    """Proven first, so that it counts whatever comes between; of what was not touched after all that is taken back."""
    fresh = prove(queue, ids, now)
    done = release()
    untouched = {find.job.id for find in done if find.outcome not in (Outcome.DONE, Outcome.UNKNOWN)}
    with suppress(Error):  # then these count as orphaned, as they nearly were
        withdraw(queue, fresh & untouched)
    return list(done)


def withdraw(queue: QueueRef, ids: Collection[str]) -> None:
    """Nothing was done to them after all, so nothing is proven yet."""
    for mine in _open(queue, list(ids)):
        mine.update(proven_at=None)


def _open(queue: QueueRef, ids: Sequence[str]) -> Iterator[QuerySet[Incident]]:
    for start in range(0, len(ids), _AT_ONCE):
        keys = [job_key(id) for id in ids[start : start + _AT_ONCE]]
        yield Incident.objects.filter(deployment=queue.deployment, base=queue.slug, job__in=keys, closed_at=None)
