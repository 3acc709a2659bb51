"""A job of n8n's queue: which execution it is for, where it is, and who holds it."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.jobs import Lock, State
from recovery.domain.refs import JobRef

LIVE = frozenset({State.ACTIVE, State.WAITING, State.PRIORITIZED, State.PAUSED, State.DELAYED})
UNLOOKED = frozenset({State.PAUSED, State.DELAYED})  # n8n's recovery look asks for active and waiting jobs only


@dataclass(frozen=True, slots=True)
class Claim:
    """`execution` is "" when its data does not say: then it is no job of n8n's, or a damaged one."""

    job: JobRef
    state: State
    execution: str = ""
    workflow: str = ""
    lock: Lock | None = None
    lock_known: bool = True
    added_at: int | None = None
    processed_at: int | None = None
    finished_at: int | None = None
    holder: str = ""  # the worker that has it, as far as it is known
    is_aborting: bool = False  # n8n has asked its worker to abort it

    @property
    def is_live(self) -> bool:
        """A worker has it or will have it; the others are kept for the record."""
        return self.state in LIVE

    @property
    def is_active(self) -> bool:
        return self.state is State.ACTIVE

    @property
    def is_locked(self) -> bool:
        """A lock that cannot be seen counts as one: nothing is said of a job that may well be held."""
        return self.is_active and (self.lock is not None or not self.lock_known)

    @property
    def is_orphaned(self) -> bool:
        return self.is_active and not self.is_locked
