"""The Redis side of one installation: all jobs of its queue and of its pools' queues, and who works on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from recovery.backends.base import Wire
from recovery.backends.bull import claims
from recovery.backends.bull.claims import Places
from recovery.config import N8n
from recovery.domain.ages import SECOND
from recovery.domain.counts import Library, Snapshot
from recovery.domain.n8n.claims import Claim
from recovery.domain.n8n.joining import Claims
from recovery.domain.refs import QueueRef, raw
from recovery.domain.whereabouts import Whereabouts

CLAIM_LIMIT = 100_000  # jobs of a look: some 60 MB


@dataclass(frozen=True, slots=True)
class Crew:
    """Who works on the queues. `sole`: the one worker that a queue has, so every lock in it is its own."""

    counts: Mapping[QueueRef, int | None]
    sole: Mapping[QueueRef, str]
    oldest: int | None  # ms since 1970, when the connection that is up longest was made


@dataclass(frozen=True, slots=True)
class Jobs:
    """One look at all jobs."""

    claims: Claims
    paused: frozenset[QueueRef]
    left_out: int


def refs(n8n: N8n, snapshot: Snapshot | None) -> tuple[QueueRef, ...]:
    """Its queue, and those of its pools as far as they were discovered."""
    known = snapshot.queues if snapshot else ()
    pools = (sample.ref for sample in known if sample.flavour.library is Library.BULL and n8n.owns(sample.ref))
    return tuple(dict.fromkeys((n8n.queue, *sorted(pools))))


def crew(queues: tuple[QueueRef, ...], snapshot: Snapshot | None, where: Whereabouts) -> Crew:
    """n8n's workers all have the same name: which of several holds a job, nobody can tell."""
    counts: dict[QueueRef, int | None] = dict.fromkeys(queues)
    sole: dict[QueueRef, str] = {}
    if snapshot is None:
        return Crew(counts, sole, None)
    counts |= {sample.ref: sample.workers for sample in snapshot.queues if sample.ref in counts}
    here = [worker for worker in snapshot.workers if worker.queue in counts]
    for queue in queues:
        mine = [worker for worker in here if worker.queue == queue]
        if len(mine) == 1:
            sole[queue] = where.server(mine[0].address) or mine[0].address
    return Crew(counts, sole, min((snapshot.taken_at - worker.age * SECOND for worker in here), default=None))


def look(wire: Wire, queues: tuple[QueueRef, ...], crew: Crew, known: Claims | None = None) -> Jobs:
    """Every job; with `known`, of an earlier look, only those are read that may have changed. Raises StoreError."""
    found: list[Claim] = []
    paused, left_out = set[QueueRef](), 0
    for queue in queues:
        where = claims.places(wire, queue, max(0, CLAIM_LIMIT - len(found)))
        left_out += where.left_out
        if where.is_paused:
            paused.add(queue)
        found += _claims(wire, where, known, crew.sole.get(queue, ""))
    return Jobs(Claims(found), frozenset(paused), left_out)


def _claims(wire: Wire, where: Places, known: Claims | None, holder: str) -> list[Claim]:
    wanted, found = dict(where.states), list[Claim]()
    if known is not None:
        before = {raw(claim.job.id): claim for claim in known.by_job.values() if claim.job.queue == where.ref}
        wanted, found = claims.again(wanted, before)
    for claim in claims.read(wire, where.ref, wanted):
        found.append(replace(claim, holder=holder) if claim.lock and holder else claim)
    return found
