"""Counts lost jobs over time, for the chart of one server: those whose worker ran there, and those whose worker's
server is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Q

from recovery.domain.identifiers import QueueRef, slug, unslug
from recovery.models import Incident

LIMIT = 5_000  # incidents counted: a chart of more is unreadable
QUEUES_TOLD = 3  # queues named for one bucket


@dataclass(frozen=True, slots=True)
class JobLossBucket:
    """Jobs that were lost in the same bucket of time. `is_here`: their worker ran on this server."""

    at: int
    is_here: bool
    jobs: int
    queues: tuple[QueueRef, ...]  # most jobs first; at most QUEUES_TOLD

    @property
    def words(self) -> str:
        where = ", ".join(queue.label for queue in self.queues)
        return f"{self.jobs:,} job{'s' * (self.jobs != 1)} of {where}"


def losses_by_step(server: str, others: Collection[str], since: int, step: int) -> tuple[JobLossBucket, ...]:
    """Returns a bucket for each `step` ms in which jobs were lost, oldest first. Jobs lost on another known server are
    left out. Raises DatabaseError.
    """
    rows = (
        Incident.objects.filter(Q(closed_at=None) | Q(closed_at__gte=since), opened_at__gte=since)
        .exclude(server__in=[slug(other) for other in others if other != server])
        .order_by("-opened_at")
        .values_list("opened_at", "server", "deployment", "base")[:LIMIT]
    )
    groups: dict[tuple[int, bool], Counter[QueueRef]] = {}
    for at, where, deployment, base in rows:
        queue = QueueRef(deployment, unslug(base))
        groups.setdefault((at // step * step, where == slug(server)), Counter())[queue] += 1
    return tuple(
        JobLossBucket(at, is_here, counted.total(), tuple(queue for queue, _ in counted.most_common(QUEUES_TOLD)))
        for (at, is_here), counted in sorted(groups.items())
    )
