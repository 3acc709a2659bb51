"""Whether workers came or left since the snapshot before: then the orphan-watch looks at once, and not when it is due.

It has to see who came too: of a worker that it never saw it cannot say that it has gone.
"""

from __future__ import annotations

from recovery.domain.counts import DeploymentSample, Snapshot
from recovery.domain.refs import QueueRef

_Connection = tuple[QueueRef, str, str]


class Turnover:
    """For one thread."""

    def __init__(self) -> None:
        self._here: dict[str, frozenset[_Connection]] = {}  # by deployment

    def has_any(self, snapshot: Snapshot) -> bool:
        """A deployment that says nothing of its workers now is compared later."""
        groups: dict[str, set[_Connection]] = {one.name: set() for one in snapshot.deployments if _is_told(one)}
        for worker in snapshot.workers:
            if worker.queue.deployment in groups:
                groups[worker.queue.deployment].add((worker.queue, worker.address, worker.connection))
        changed = any(name in self._here and self._here[name] != here for name, here in groups.items())
        self._here |= {name: frozenset(here) for name, here in groups.items()}
        return changed


def _is_told(deployment: DeploymentSample) -> bool:
    return deployment.workers_known and not deployment.error
