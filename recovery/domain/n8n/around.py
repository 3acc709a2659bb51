"""What is known around n8n's jobs and executions when they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recovery.domain.ages import SECOND
from recovery.domain.n8n.pairs import Release
from recovery.domain.n8n.worker_ages import WorkerAges
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import Surroundings

# So long n8n itself waits for an execution that seems lost to end well after all; and the two stores are never read in
# one moment. What has contradicted itself for less is no news.
GRACE = 30 * SECOND
# Looks come that often too, and the second one may come a moment early: it is the one that tells.
TOLD_AFTER = GRACE - SECOND


@dataclass(frozen=True, slots=True)
class Around:
    """`workers`: how many a queue has, None when nobody may look."""

    now: int
    grace: int = TOLD_AFTER
    release: Release = Release.UNKNOWN
    paused: frozenset[QueueRef] = frozenset()
    workers: Mapping[QueueRef, int | None] = field(default_factory=dict)
    watched: Mapping[QueueRef, Surroundings] = field(default_factory=dict)  # as the orphan-watch knows them
    oldest_worker: int | None = None  # ms since 1970, when the one that is up longest connected; None: none is
    worker_ages: WorkerAges = field(default_factory=WorkerAges)

    @property
    def knows_workers(self) -> bool:
        return bool(self.workers) and None not in self.workers.values()

    def near(self, queue: QueueRef) -> Surroundings:
        """What is known around the jobs of this queue: who puts a lost one right, and within what time."""
        known = self.watched.get(queue) or Surroundings(
            self.now, workers=self.workers.get(queue), is_paused=queue in self.paused, is_n8n=True
        )
        return replace(known, fails_stalled=self.release.fails_stalled)

    def nobody_works(self, queue: QueueRef) -> bool:
        return self.near(queue).nobody_is_here is True
