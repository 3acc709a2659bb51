"""Counts quarantined jobs of each queue, which wait for a person because they were orphaned too often.

It reads all incidents, so it runs once a minute, and only when anything has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from django.db.models import Count, Max

from recovery.domain.identifiers import QueueRef
from recovery.domain.time_units import MINUTE
from recovery.models import Incident
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import QUARANTINE_RELEASE
from recovery.reads.stuck import incidents

_Sign = tuple[object, ...]


class QuarantineCounts:
    def __init__(self) -> None:
        self._sign: _Sign = ()
        self._counted_at = 0
        self._jobs: Mapping[QueueRef, int] = {}

    def jobs(self, now: int) -> Mapping[QueueRef, int]:
        """Returns the numbers of quarantined jobs by queue. Raises Error of the database."""
        if 0 <= now - self._counted_at < MINUTE:
            return self._jobs
        sign = _sign()
        if sign != self._sign:
            self._jobs = Counter(queue for queue, _ in incidents.quarantined_jobs(now))
        self._sign, self._counted_at = sign, now
        return self._jobs


def _sign() -> _Sign:
    """Returns a value that changes with each incident that is opened, proven or closed, and with each release."""
    rows = Incident.objects.aggregate(Max("id"), Max("closed_at"), Max("proven_at"), Count("proven_at"))
    pardons = limit_rows.rows_of_kind(QUARANTINE_RELEASE).aggregate(Count("id"), Max("at"), Max("version"))
    return (*rows.values(), *pardons.values())
