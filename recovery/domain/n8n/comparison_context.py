"""Context in which n8n's jobs and executions are compared: workers, paused queues, n8n's version, ages of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.worker_ages import WorkerAges
from recovery.domain.stuck.context import VerdictContext
from recovery.domain.time_units import SECOND

# n8n itself waits this long for an execution that seems lost to succeed after all, and the two stores are never read
# in one moment: a contradiction that is younger is not reported.
GRACE = 30 * SECOND
# Comparisons run at the same interval, and the second one, which reports the contradiction, may run a moment early.
REPORTED_AFTER = GRACE - SECOND


@dataclass(frozen=True, slots=True)
class ComparisonContext:
    """Context of one comparison. `workers`: how many each queue has, None when an ACL forbids to count them."""

    now: int
    grace: int = REPORTED_AFTER
    release: N8nRelease = N8nRelease.UNKNOWN
    paused: frozenset[QueueRef] = frozenset()
    workers: Mapping[QueueRef, int | None] = field(default_factory=dict)
    watched: Mapping[QueueRef, VerdictContext] = field(default_factory=dict)  # as the orphan watch has them
    oldest_worker: int | None = None  # ms since 1970, when the longest connected worker connected; None: no worker
    worker_ages: WorkerAges = field(default_factory=WorkerAges)

    @property
    def knows_workers(self) -> bool:
        return bool(self.workers) and None not in self.workers.values()

    def near(self, queue: QueueRef) -> VerdictContext:
        """Returns the verdict context of this queue's jobs: what recovers a lost one, and within what time."""
        known = self.watched.get(queue) or VerdictContext(
            self.now, workers=self.workers.get(queue), is_paused=queue in self.paused, is_n8n=True
        )
        return replace(known, fails_stalled=self.release.fails_stalled)

    def nobody_works(self, queue: QueueRef) -> bool:
        return self.near(queue).nobody_is_here is True
