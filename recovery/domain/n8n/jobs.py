"""A job of n8n's queue: its execution, its state, its lock, and the worker that runs it."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.identifiers import JobRef
from recovery.domain.jobs import JobLock, JobState

LIVE = frozenset({JobState.ACTIVE, JobState.WAITING, JobState.PRIORITIZED, JobState.PAUSED, JobState.DELAYED})
UNCHECKED_STATES = frozenset(
    {JobState.PAUSED, JobState.DELAYED}
)  # n8n's recovery check asks for active and waiting jobs only


@dataclass(frozen=True, slots=True)
class N8nJob:
    """A job of n8n's queue. `execution` is "" when its data names none: it is not n8n's job, or its data is damaged."""

    job: JobRef
    state: JobState
    execution: str = ""
    workflow: str = ""
    lock: JobLock | None = None
    lock_known: bool = True
    added_at: int | None = None
    processed_at: int | None = None
    finished_at: int | None = None
    holder: str = ""  # the worker that runs it, as far as it is known
    is_aborting: bool = False  # n8n has asked its worker to abort it

    @property
    def is_live(self) -> bool:
        """Returns True if a worker runs the job or will run it; jobs in other states are kept for the record."""
        return self.state in LIVE

    @property
    def is_active(self) -> bool:
        return self.state is JobState.ACTIVE

    @property
    def is_locked(self) -> bool:
        """Returns True if a worker holds the lock, and also if the lock cannot be read: the job may well be held."""
        return self.is_active and (self.lock is not None or not self.lock_known)

    @property
    def is_orphaned(self) -> bool:
        return self.is_active and not self.is_locked
