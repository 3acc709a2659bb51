"""Joins the processes of one server with the worker connections that take jobs, and counts the jobs that each runs.

A process and a connection are one worker when the process has the socket that the connection comes from. Where no
process has it, the connection stands alone. How many jobs a worker runs is told only as far as it can be known: by its
name, or because all workers of the queue are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot, Worker
from recovery.domain.servers.addresses import AddressMap, normalize_address
from recovery.domain.servers.samples import Server, ServerProcess
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import VerdictKind

_NOBODYS = (
    VerdictKind.ORPHAN,
    VerdictKind.ABANDONED,
    VerdictKind.UNLOCKED,
    VerdictKind.WORKER_LOST,
    VerdictKind.MISSING_DATA,
)


@dataclass(frozen=True, slots=True)
class ServerWorker:
    """A worker process. Without a process only its connection is known; without a connection it takes no jobs."""

    process: ServerProcess | None = None
    workers: tuple[Worker, ...] = ()
    active: int | None = None  # jobs that it runs now

    @property
    def queues(self) -> tuple[QueueRef, ...]:
        return tuple(sorted({worker.queue for worker in self.workers}))


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """Workers of one server. `active`: jobs on it, `is_least` when there may be more, as some queues are unknown."""

    members: tuple[ServerWorker, ...] = ()
    active: int | None = None
    is_least: bool = False

    @property
    def workers(self) -> int:
        """Returns the number of connections that take jobs."""
        return sum(len(member.workers) for member in self.members)


@dataclass(frozen=True, slots=True)
class WorkersByServer:
    """Workers of all queues at one moment, each at its server."""

    workers: Mapping[str, tuple[Worker, ...]] = field(default_factory=dict)  # by server; "" where it is not known
    queues: Mapping[QueueRef, QueueWorkers] = field(default_factory=dict)
    is_known: bool = True  # the workers of every deployment could be listed

    @classmethod
    def of(cls, snapshot: Snapshot | None, inbox: StuckInbox | None, where: AddressMap) -> WorkersByServer:
        if snapshot is None:
            return cls(is_known=False)
        at: dict[str, list[Worker]] = {}
        crowds: dict[QueueRef, list[Worker]] = {}
        for worker in snapshot.workers:
            at.setdefault(where.server(worker.address), []).append(worker)
            crowds.setdefault(worker.queue, []).append(worker)
        tallies = {tally.queue: tally for tally in inbox.queues} if inbox else {}
        actives = {sample.ref: sample.counts.active for sample in snapshot.queues if sample.ref in crowds}
        found = {ref: QueueWorkers(tuple(crowd), actives.get(ref), tallies.get(ref)) for ref, crowd in crowds.items()}
        is_known = all(one.workers_known and not one.error for one in snapshot.deployments)
        return cls({server: tuple(here) for server, here in at.items()}, found, is_known)

    def staff(self, server: Server) -> WorkerAssignment:
        mine = self.workers.get(server.id, ())
        ends = {normalize_address(end): process for process in server.processes for end in process.sockets}
        joined: dict[ServerProcess | str, list[Worker]] = {process: [] for process in server.processes}
        for worker in mine:
            joined.setdefault(ends.get(normalize_address(worker.address), worker.address), []).append(worker)
        members = tuple(self._member(one, tuple(workers)) for one, workers in joined.items())
        known = [count for count in self._counts(mine) if count is not None]
        is_partial = len(known) < len({worker.queue for worker in mine})
        return WorkerAssignment(members, sum(known) if known or not is_partial else None, is_partial)

    def _member(self, process: ServerProcess | str, workers: tuple[Worker, ...]) -> ServerWorker:
        counts = list(self._counts(workers))
        active = None if None in counts else sum(count or 0 for count in counts)
        return ServerWorker(process if isinstance(process, ServerProcess) else None, workers, active)

    def _counts(self, workers: Iterable[Worker]) -> Iterable[int | None]:
        """Returns the number of jobs that these workers run, queue by queue."""
        groups: dict[QueueRef, list[Worker]] = {}
        for worker in workers:
            groups.setdefault(worker.queue, []).append(worker)
        return (self.queues[ref].running(group) for ref, group in groups.items())


@dataclass(frozen=True, slots=True)
class QueueWorkers:
    """Workers of one queue. `active` is of the snapshot, the tally of the last check of its jobs."""

    workers: tuple[Worker, ...]
    active: int | None
    tally: StuckTally | None = None

    def running(self, group: Collection[Worker]) -> int | None:
        """Returns how many jobs these workers run; None when that is not known."""
        if self.active is None or self.active == 0:
            return self.active
        if len(group) == len(self.workers):
            return max(0, self.active - self._nobodys)
        others = {worker.name for worker in self.workers if worker not in group}
        names = {worker.name for worker in group}
        if self.tally is None or self.tally.error or "" in names | others or names & others:
            return None
        return sum(self.tally.holders.get(name, 0) for name in names)

    @property
    def _nobodys(self) -> int:
        """Returns the number of active jobs that no worker holds any more."""
        return sum(self.tally.kinds.get(kind, 0) for kind in _NOBODYS) if self.tally else 0
