"""One queue of a real library, and our operator at work on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recovery.backends.base import QueueOperator, Target
from recovery.backends.bull.operator import BullOperator
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.domain.actions.types import (
    Action,
    ActionOptions,
    ExpectedJob,
    Outcome,
    RemovalStep,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.contract import golden
from tests.contract.scene import Scene
from tests.support.processes.fleet import Fleet, Queue
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store
from tests.support.waiting import until

GENERATIONS = ("bullmq3", "bullmq4", "bullmq5", "bullmq6")
_AHEAD = 5_000  # ms
OPERATOR = BullMQOperator()
BULL = BullOperator()


@dataclass(frozen=True, slots=True)
class Desk(Scene):
    """What an operator sees and does. Its acts are on what was seen a moment ago, unless they are given it."""

    @property
    def operator(self) -> QueueOperator:
        return BULL if self.queue.library.is_bull else OPERATOR

    @property
    def target(self) -> Target:
        return Target(self.pipe, self.ref, self.flavour if self.queue.library.is_bull else self.known)

    @property
    def known(self) -> LibraryVersion:
        """The version is a given here: a queue that only a FlowProducer has filled does not show it."""
        return LibraryVersion(QueueLibrary.BULLMQ, self.queue.library.major, self.queue.library.version)

    def seen(self, id: str) -> ExpectedJob:
        return ExpectedJob.of(self.row(id))

    def act(self, act: Action, *jobs: str | ExpectedJob, **options: Any) -> tuple[ScriptOutcome, ...]:
        seen = [self.seen(job) if isinstance(job, str) else job for job in jobs]
        return self.operator.on_jobs(act, self.target, seen, ActionOptions(**options), now())

    def does(self, act: Action, job: str | ExpectedJob, **options: Any) -> ScriptOutcome:
        """It is done, or the test ends here."""
        (done,) = self.act(act, job, **options)
        assert done.outcome is Outcome.DONE, done
        return done

    def turn(self, act: Action, target: Target | None = None) -> ScriptOutcome:
        return self.operator.on_queue(act, target or self.target, ActionOptions(), now())

    def take_away(self, act: Action, *, budget: int = 100, **options: Any) -> RemovalStep:
        """As if ordered a little later: what a worker has just ended by its clock is not too young by ours."""
        at = now() + _AHEAD
        return self.operator.take_away(act, self.target, ActionOptions(**options), at, budget=budget)

    def put_back(self, kept: UndoCopy) -> ScriptOutcome:
        return self.operator.put_back(self.target, kept, now())

    def beside(self, queue: Queue) -> Desk:
        """Another queue of the same store."""
        return Desk(queue, self.store, self.pipe)

    # -- what the library says

    def state(self, id: str) -> str:
        job = self.queue.job(id)
        return "gone" if job is None else str(job["state"])

    def ended(self, id: str, state: JobState = JobState.COMPLETED, *, seconds: float = 10.0) -> None:
        until(lambda: self.state(id) == state.value, seconds, what=f"{id} {state}")

    def fail(self, **options: Any) -> str:
        """A job that failed, with no worker left."""
        job = self.queue.add("failing", **options)
        self.failed(job)
        return job

    def failed(self, *jobs: str) -> None:
        worker = self.queue.work("fail")
        for job in jobs:
            self.ended(job, JobState.FAILED)
        worker.close()

    def done(self, *jobs: str) -> None:
        """Let a worker complete these, and go."""
        worker = self.queue.work("ok")
        for job in jobs:
            self.ended(job)
        worker.close()

    def orphaned(self, count: int = 1) -> list[str]:
        """Active jobs whose locks are gone, and no worker."""
        jobs = [self.queue.add("orphan") for _ in range(count)]
        worker = self.queue.work("hang", apart=True, concurrency=count)
        self.running(count)
        worker.kill()
        for job in jobs:
            self.store.client.delete(self.queue.key(job, "lock"))
        return jobs

    def running_beside(self, orphan: str) -> None:
        """Wait until a second job is held."""
        until(lambda: [row.id for row in self.page(JobState.ACTIVE).rows if row.lock and row.id != orphan])

    # -- what is in the store

    def events(self) -> list[dict[str, str]]:
        found = self.store.client.xrange(self.queue.key("events"))
        return [{key.decode(): value.decode() for key, value in fields.items()} for _, fields in found]

    def hash(self, id: str) -> dict[str, str]:
        return {key.decode(): value.decode() for key, value in self.store.client.hgetall(self.queue.key(id)).items()}

    def list(self, name: str) -> list[str]:
        return [id.decode() for id in self.store.client.lrange(self.queue.key(name), 0, -1)]

    def zset(self, name: str) -> dict[str, float]:
        found = self.store.client.zrange(self.queue.key(name), 0, -1, withscores=True)
        return {id.decode(): score for id, score in found}

    def all_keys(self) -> golden.Keyspace:
        """Everything there is, by value: a dump of a large hash may be another one a moment later."""
        return golden.dump(self.store)


@contextmanager
def desk_of(generation: str, libraries: Fleet, store: Store) -> Iterator[Desk]:
    pipe = Pipe(store.client)
    try:
        yield Desk(libraries[generation].queue(store), store, pipe)
    finally:
        pipe.close()


def now() -> int:
    return int(time.time() * 1000)
