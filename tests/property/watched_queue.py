"""One queue of a real library: two workers moved by hand, our operator at the one door, and all of it as it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recovery import shared_clock
from recovery.actions import runner
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, Actor, ExpectedJob, JobResult, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.types import VerdictKind
from recovery.models import AuditJob
from recovery.reads.stuck import observations
from recovery.reads.stuck.observations import JobObservation
from recovery.stores import registry
from tests.contract.places import places
from tests.support.hands import Hand
from tests.support.processes.fleet import Library, Queue
from tests.support.stores.stores import Store

PERSON = Actor("person", "ada", "admin", may_act=True, may_bulk=True)
LATER_MS = 3_600_000  # a delayed job does not come due within a test
PROOF_MS = 60_000  # longer than a stalled interval: what a look so long ago saw, a look now proves
COUNTERS = ("stc", "stalledCounter", "atm", "attemptsMade", "ats")


@dataclass(frozen=True, slots=True)
class Picture:
    """A job as it stands in the store."""

    places: tuple[str, ...]
    fields: dict[bytes, bytes]
    token: str = ""

    @property
    def counters(self) -> dict[str, int]:
        return {name: int(self.fields.get(name.encode(), 0)) for name in COUNTERS}


class WatchedQueue:
    """Every job that was ever added is known here, also after it is gone."""

    def __init__(self, library: Library, store: Store) -> None:
        self.queue: Queue = library.queue(store)
        self.ref = QueueRef("main", self.queue.base)
        self.hands = (Hand.of(self.queue), Hand.of(self.queue))
        self.jobs: list[str] = []
        self._client = store.client

    # -- what the library does

    def add(self, **options: Any) -> None:
        self.jobs.append(self.queue.add("job", **options))

    def sweep(self, hand: Hand) -> None:
        """The library's own check, however long ago the last one was."""
        self._client.delete(self.queue.key("stalled-check"))
        hand.sweep()

    def expire(self, job: str) -> None:
        """Its holder is dead, and the lock's time is up."""
        self._client.pexpire(self.queue.key(job, "lock"), 0)

    # -- what an operator does

    def seen(self, job: str) -> ExpectedJob:
        return runner.current_jobs(self.ref, (job,))[0]

    def act(self, act: Action, seen: ExpectedJob, options: ActionOptions) -> JobResult:
        (result,) = runner.perform(ActionCommand(act, self.ref, PERSON, "to see what happens", (seen,), options))
        return result

    def turn(self, act: Action) -> JobResult:
        (result,) = runner.perform(ActionCommand(act, self.ref, PERSON, "to see what happens"))
        return result

    def restore(self, entry: int) -> JobResult:
        (result,) = runner.restore(entry, PERSON, "it was a mistake")
        return result

    def was_looked_at(self) -> None:
        """The watch saw every job that has no lock now, long enough ago that the next look proves it."""
        then = shared_clock.now() - PROOF_MS
        marks = {}
        for job, picture in self.pictures().items():
            if picture.places == ("active",) and not picture.token:
                seen = self.seen(job)
                signature = (seen.processed_at, seen.starts, seen.attempts, seen.stalls)
                marks[job] = JobObservation(VerdictKind.UNLOCKED, then, then, then, signature)
        observations.save(registry.registry().state(), self.ref, marks, ())

    # -- how it stands

    def pictures(self) -> dict[str, Picture]:
        found = places(self._client, self.ref.base)
        pipeline = self._client.pipeline(transaction=True)
        for job in self.jobs:
            pipeline.hgetall(self.queue.key(job))
            pipeline.get(self.queue.key(job, "lock"))
        replies = iter(pipeline.execute())
        return {
            job: Picture(tuple(found.get(job, ())), next(replies), (next(replies) or b"").decode()) for job in self.jobs
        }

    def added(self) -> int:
        return int(self._client.get(self.queue.key("id")) or 0)

    def audited(self) -> int:
        """How many changes of this queue the audit knows to have been made."""
        return AuditJob.objects.filter(base=self.ref.slug, outcome=Outcome.DONE.value).count()


def changed(before: dict[str, Picture], after: dict[str, Picture]) -> set[str]:
    return {job for job, picture in after.items() if before.get(job) != picture}
