"""Locates a queue, and reads its library's capabilities and pages of its lists, shared between viewers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recovery.backends.base import LIST_LIMIT, Capabilities, CommandClient, QueueReader
from recovery.backends.detection import identify
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobRowPage, JobState, SchedulerRow
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample, Snapshot, Worker
from recovery.errors import QueueMissing
from recovery.n8n import action_targets
from recovery.reads.queues.fail_fast_client import fail_fast_client
from recovery.reads.stuck import table_verdicts
from recovery.stores.registry import registry
from recovery.stores.sql.sql_client import SqlClient
from recovery.stores.state.shared_read import identities, windows

SIZES = (25, 50, 100)
_IDENTIFIED = frozenset(
    {QueueLibrary.BULL, QueueLibrary.BULLMQ, QueueLibrary.PRO, QueueLibrary.UNKNOWN}
)  # kept in Redis


@dataclass(frozen=True, slots=True)
class Queue:
    """Queue that exists. `sample` is None if no snapshot has it yet."""

    ref: QueueRef
    flavour: LibraryVersion
    sample: QueueSample | None = None

    @property
    def wire(self) -> CommandClient:
        return fail_fast_client(registry().wire(self.ref.deployment))

    @property
    def reader(self) -> QueueReader:
        return reader(self.flavour)

    def rows(self, wanted: Sequence[tuple[str, JobState]], *, by_script: bool = False) -> tuple[JobRow | None, ...]:
        """Reads these jobs now, by the last known state of each; None: a job is gone. `by_script`: for an action."""
        if self.flavour.library is QueueLibrary.N8N:
            return action_targets.rows(registry(), self.ref, [id for id, _ in wanted])
        return self.reader.rows(self.wire, self.ref, wanted, by_script=by_script)

    @property
    def capabilities(self) -> Capabilities:
        return self.reader.capabilities(self.flavour)


def locate(ref: QueueRef, snapshot: Snapshot | None) -> Queue:
    """Finds a queue in the snapshot; one that is too new for it is read directly. Raises QueueMissing.

    The executions of n8n are in no snapshot: they are a queue for actions only.
    """
    sample = snapshot.queue(ref) if snapshot else None
    if sample is not None:
        return Queue(ref, sample.flavour, sample)
    if registry().config.n8n_with(ref):
        return Queue(ref, action_targets.FLAVOUR)
    place = registry().wire(ref.deployment)
    if isinstance(place, SqlClient):
        return Queue(ref, table_verdicts.flavour(place, place.table(ref.base)))
    wire = fail_fast_client(place)
    found = windows.get(("flavour", ref), lambda: identify(wire, [ref.base], {})[0])
    if found is None:
        raise QueueMissing(f"There is no queue {ref.label} in the deployment {ref.deployment}.")
    return Queue(ref, found)


def with_verified_library(queue: Queue, snapshot: Snapshot | None) -> Queue:
    """Returns the queue with its library as identified from its own Redis; actions do not trust the snapshot for this.

    Two round trips, once in half a minute per process. A queue that cannot be identified any more stays as it was.
    """
    if queue.sample is None or queue.flavour.library not in _IDENTIFIED:
        return queue
    mine = [worker for worker in snapshot.workers if worker.queue == queue.ref] if snapshot else []
    found = identities.get(queue.ref, lambda: identify(queue.wire, [queue.ref.base], {queue.ref.base: mine})[0])
    return replace(queue, flavour=found) if found else queue


def window(queue: Queue, state: JobState, *, cursor: str = "", size: int = SIZES[0]) -> JobRowPage:
    """Returns a page of one list; the same page is read at most once a second, however many viewers there are."""
    size = min(size, LIST_LIMIT)
    return windows.get(
        ("page", queue.ref, state, cursor, size),
        lambda: queue.reader.page(queue.wire, queue.ref, state, cursor=cursor, size=size),
    )


def schedulers(queue: Queue) -> tuple[SchedulerRow, ...]:
    return windows.get(("schedulers", queue.ref), lambda: queue.reader.schedulers(queue.wire, queue.ref))


def workers(queue: Queue, snapshot: Snapshot | None) -> tuple[Worker, ...] | None:
    """Returns the workers of this queue; None if they cannot be listed."""
    if snapshot is None or queue.sample is None or queue.sample.workers is None:
        return None
    return tuple(worker for worker in snapshot.workers if worker.queue == queue.ref)


def count_of(sample: QueueSample, state: JobState) -> int | None:
    """Returns how many jobs are in this state according to the snapshot."""
    return getattr(sample.counts, state.name.lower(), None)
