"""One queue of a real library, with the reader that fits it."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.backends import client_list, detection
from recovery.backends.base import QueueReader
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import Job, JobRow, JobRowPage, JobState
from recovery.domain.queues.types import LibraryVersion, QueueSample, Worker
from tests.support.processes.fleet import Queue
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store
from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class Scene:
    """The queue as its library sees it, and as we do."""

    queue: Queue
    store: Store
    pipe: Pipe

    @property
    def ref(self) -> QueueRef:
        return QueueRef("main", self.queue.base)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return client_list.parse(self.pipe.call([("CLIENT", "LIST")])[0], [self.ref])

    @property
    def flavour(self) -> LibraryVersion:
        (found,) = detection.identify(self.pipe, [self.ref.base], {self.ref.base: self.workers})
        assert found is not None
        return found

    @property
    def reader(self) -> QueueReader:
        return reader(self.flavour)

    @property
    def sample(self) -> QueueSample:
        return self.heads[0]

    @property
    def heads(self) -> tuple[QueueSample, tuple[str, str]]:
        ours = self.reader
        return ours.sample(self.ref, LibraryVersion(), self.pipe.call(ours.sample_plan(self.ref)), 0)

    def page(self, state: JobState, **wish: object) -> JobRowPage:
        return self.reader.page(self.pipe, self.ref, state, **wish)  # type: ignore[arg-type] # passed on as they are

    def ids(self, state: JobState, **wish: object) -> list[str]:
        return [row.id for row in self.page(state, **wish).rows]

    def row(self, id: str) -> JobRow:
        return self.reader.row(self.pipe, self.ref, id)

    def job(self, id: str) -> Job:
        return self.reader.job(self.pipe, self.ref, id)

    def finished(self, count: int) -> None:
        """Wait until so many jobs have ended."""
        until(lambda: sum(self.queue.counts()[state] for state in ("completed", "failed")) == count)

    def running(self, count: int = 1) -> None:
        until(
            lambda: self.queue.counts()["active"] == count and all(row.lock for row in self.page(JobState.ACTIVE).rows)
        )
