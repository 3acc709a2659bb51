"""Reads all jobs of one installation from Redis, of its queue and its pools' queues, and the connected workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from recovery.backends import client_list
from recovery.backends.base import CommandClient
from recovery.backends.bull import n8n_jobs
from recovery.backends.bull.n8n_jobs import N8nJobPlaces
from recovery.backends.redis_common import decode
from recovery.config import N8nInstallation
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.join import N8nJobs
from recovery.domain.n8n.worker_ages import WorkerAges
from recovery.domain.queues.types import QueueLibrary, Snapshot
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.time_units import SECOND
from recovery.stores.redis.client import StoreClient as NodesWire
from recovery.stores.registry import ConnectionRegistry

CLAIM_LIMIT = 100_000  # jobs of one reading: some 60 MB
_UPTIME = re.compile(rb"^uptime_in_seconds:(\d{1,12})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class N8nWorkers:
    """Workers of the queues. `sole`: the only worker that a queue has, so every lock in it is its own."""

    counts: Mapping[QueueRef, int | None]
    sole: Mapping[QueueRef, str]
    oldest: int | None  # ms since 1970, when the connection that is up longest was made


@dataclass(frozen=True, slots=True)
class N8nQueueReading:
    """A reading of all jobs."""

    claims: N8nJobs
    paused: frozenset[QueueRef]
    left_out: int


def refs(n8n: N8nInstallation, snapshot: Snapshot | None) -> tuple[QueueRef, ...]:
    """Returns its queue, and those of its pools as far as they were discovered."""
    known = snapshot.queues if snapshot else ()
    pools = (sample.ref for sample in known if sample.flavour.library is QueueLibrary.BULL and n8n.owns(sample.ref))
    return tuple(dict.fromkeys((n8n.queue, *sorted(pools))))


def workers_of(queues: tuple[QueueRef, ...], snapshot: Snapshot | None, where: AddressMap) -> N8nWorkers:
    """Returns the workers of these queues. All of n8n's workers have the same name, so with several it is unknown which
    one has a job.
    """
    counts: dict[QueueRef, int | None] = dict.fromkeys(queues)
    sole: dict[QueueRef, str] = {}
    if snapshot is None:
        return N8nWorkers(counts, sole, None)
    counts |= {sample.ref: sample.workers for sample in snapshot.queues if sample.ref in counts}
    here = [worker for worker in snapshot.workers if worker.queue in counts]
    for queue in queues:
        mine = [worker for worker in here if worker.queue == queue]
        if len(mine) == 1:
            sole[queue] = where.server(mine[0].address) or mine[0].address
    # Ages are whole seconds, cut off: each may be a second older.
    return N8nWorkers(
        counts, sole, min((snapshot.taken_at - (worker.age + 1) * SECOND for worker in here), default=None)
    )


def worker_ages(
    registry: ConnectionRegistry, n8n: N8nInstallation, queues: tuple[QueueRef, ...], now: int
) -> WorkerAges:
    """Reads how long the workers have been connected, by one CLIENT LIST a node: an old snapshot would miss a worker,
    and has no queue without a key.

    Raises StoreError.
    """
    name = n8n.queue.deployment
    wire = registry.wire(name)
    database = next((one.database for one in registry.config.deployments if one.name == name), None)
    listings = wire.each_node((b"CLIENT", b"LIST")).values()
    told = [one for one in listings if isinstance(one, bytes)]
    if len(told) != len(listings):
        return WorkerAges()
    ages = [one.age for listing in told for one in client_list.parse(listing, queues, db=database)]
    return WorkerAges(True, min((now - age * SECOND for age in ages), default=None), _started_at(wire, now))


def _started_at(wire: NodesWire, now: int) -> int | None:
    """Returns when Redis was started (ms since 1970), the youngest node; None if a node does not report it. Raises
    StoreError.
    """
    replies = [decode.octets(reply) for reply in wire.each_node((b"INFO", b"server")).values()]
    found = [_UPTIME.search(reply or b"") for reply in replies]
    uptimes = [int(one[1]) for one in found if one]
    return now - min(uptimes) * SECOND if uptimes and len(uptimes) == len(found) else None


def read_jobs(
    wire: CommandClient, queues: tuple[QueueRef, ...], crew: N8nWorkers, known: N8nJobs | None = None
) -> N8nQueueReading:
    """Reads every job; with `known`, of an earlier reading, only those that may have changed. Raises StoreError."""
    found: list[N8nJob] = []
    paused, left_out = set[QueueRef](), 0
    for queue in queues:
        where = n8n_jobs.places(wire, queue, max(0, CLAIM_LIMIT - len(found)))
        left_out += where.left_out
        if where.is_paused:
            paused.add(queue)
        found += _claims(wire, where, known, crew.sole.get(queue, ""))
    return N8nQueueReading(N8nJobs(found), frozenset(paused), left_out)


def _claims(wire: CommandClient, where: N8nJobPlaces, known: N8nJobs | None, holder: str) -> list[N8nJob]:
    wanted, found = dict(where.states), list[N8nJob]()
    if known is not None:
        before = {encode_name(claim.job.id): claim for claim in known.by_job.values() if claim.job.queue == where.ref}
        wanted, found = n8n_jobs.split_unchanged(wanted, before)
    for claim in n8n_jobs.read(wire, where.ref, wanted):
        found.append(replace(claim, holder=holder) if claim.lock and holder else claim)
    return found
