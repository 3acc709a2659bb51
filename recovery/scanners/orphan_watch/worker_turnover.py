"""Detects workers that came or left since the last snapshot: then the orphan watch runs at once.

It has to see new workers too: it cannot tell that a worker has left which it never saw.
"""

from __future__ import annotations

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import DeploymentSample, Snapshot

_Connection = tuple[QueueRef, str, str]


class WorkerTurnover:
    """Worker connections of the last snapshot, for one thread."""

    def __init__(self) -> None:
        self._here: dict[str, frozenset[_Connection]] = {}  # by deployment

    def has_any(self, snapshot: Snapshot) -> bool:
        """Returns True if any worker came or left. A deployment whose workers are not known now is compared later."""
        groups: dict[str, set[_Connection]] = {one.name: set() for one in snapshot.deployments if _is_told(one)}
        for worker in snapshot.workers:
            if worker.queue.deployment in groups:
                groups[worker.queue.deployment].add((worker.queue, worker.address, worker.connection))
        changed = any(name in self._here and self._here[name] != here for name, here in groups.items())
        self._here |= {name: frozenset(here) for name, here in groups.items()}
        return changed


def _is_told(deployment: DeploymentSample) -> bool:
    return deployment.workers_known and not deployment.error
