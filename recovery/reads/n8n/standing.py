"""Reads the state of executions, directly before an action on them or on their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from recovery.backends.bull import looks
from recovery.config import N8n
from recovery.connections.registry import Registry
from recovery.domain.counts import Snapshot
from recovery.domain.n8n.claims import Claim
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.mismatches import Repair
from recovery.domain.n8n.standing import Standing
from recovery.domain.refs import QueueRef
from recovery.domain.verdicts import Verdict
from recovery.domain.whereabouts import Whereabouts
from recovery.errors import ConfigError, StoreError, Unsupported
from recovery.n8n import executions, marking, public, remains
from recovery.reads import stuck
from recovery.reads.lists import Queue, locate
from recovery.reads.n8n import alone as marks
from recovery.reads.n8n import queues, targets, truths


def of_jobs(registry: Registry, queue: Queue, ids: Sequence[str]) -> dict[str, Standing]:
    """Returns the state of each job's execution, by job, without jobs whose data names none. Raises StoreError of the
    queue's store.
    """
    named = {id: found for id, found in looks.executions(queue.wire, queue.ref, ids).items() if targets.is_id(found)}
    n8n = registry.config.n8n_of(queue.ref)
    if not named:
        return {}
    if n8n is None or not n8n.database:
        return {id: Standing(execution, is_configured=False) for id, execution in named.items()}
    try:
        found = executions.of_ids(*targets.database(registry, n8n), set(named.values()))
    except (Unsupported, StoreError) as error:
        return {id: Standing(execution, silence=str(error)) for id, execution in named.items()}
    return {id: Standing(execution, found.get(execution)) for id, execution in named.items()}


def of_executions(
    registry: Registry, ref: QueueRef, ids: Sequence[str], snapshot: Snapshot | None, now: int, *, is_rerun: bool
) -> dict[str, Standing]:
    """Returns the state of each execution, by id. Every job of n8n's is read, some 0.3 s for ten thousand. What a retry
    would run, and earlier retries, are looked up only if it `is_rerun`: that reads the stored data of each execution.

    Raises QueueMissing, Unsupported, StoreError.
    """
    n8n = targets.installation(registry, ref)
    wire, known = targets.database(registry, n8n)
    found = executions.of_ids(wire, known, ids)
    claims = _claims(registry, n8n, snapshot)
    alone = [one for one in found.values() if claims is not None and not claims.get(one.id)]
    since = _alone_since(registry, n8n, alone, now)
    listed = _listed(n8n)
    fixed, no_api = marking.refusal(wire, known), public.lacks(n8n)
    retried = executions.retries(wire, known, ids) if is_rerun else {}
    workers = queues.worker_ages(registry, n8n, queues.refs(n8n, snapshot), now)
    return {
        id: Standing(
            id,
            execution=found.get(id),
            claims=None if claims is None else tuple(claims.get(id, ())),
            is_proven=_is_proven(claims.get(id, ()) if claims else (), snapshot, now),
            alone_for=max(0, now - since.get(id, now)),
            has_start=remains.has_start(wire, n8n, id) if is_rerun else None,
            retried_as=retried.get(id, ""),
            workers=workers,
            is_listed=id in listed,
            fixed=fixed,
            no_api=no_api,
        )
        for id in ids
    }


def _claims(registry: Registry, n8n: N8n, snapshot: Snapshot | None) -> Mapping[str, list[Claim]] | None:
    """Returns live jobs by the execution that they name; None if there are more than one reading takes."""
    refs = queues.refs(n8n, snapshot)
    jobs = queues.look(registry.wire(n8n.queue.deployment), refs, queues.crew(refs, snapshot, Whereabouts()))
    if jobs.left_out:
        return None
    return {id: jobs.claims.live(id) for id in jobs.claims.executions}


def _is_proven(claims: Iterable[Claim], snapshot: Snapshot | None, now: int) -> bool:
    """Returns True if the verdict on each of these jobs proves that no worker holds it."""
    return all(found is not None and found.of_lock.is_orphaned for found in verdicts(claims, snapshot, now))


def verdicts(claims: Iterable[Claim], snapshot: Snapshot | None, now: int) -> Iterator[Verdict | None]:
    """Yields the current verdict on each of these jobs; None for one that is gone or has none."""
    for claim in claims:
        queue = locate(claim.job.queue, snapshot)
        (row,) = queue.rows([(claim.job.id, claim.state)])
        yield stuck.of_rows(queue, (row,), snapshot, now).get(claim.job.id) if row else None


def _alone_since(registry: Registry, n8n: N8n, alone: Sequence[Execution], now: int) -> dict[str, int]:
    """Returns since when executions have had no job; without a state store nothing is remembered."""
    try:
        return marks.since(registry.state(), n8n.name, alone, now)
    except (ConfigError, StoreError):
        return {}


def _listed(n8n: N8n) -> frozenset[str]:
    """Returns executions for which the newest comparison suggests to mark them as crashed."""
    truth = next((one for one in truths.newest() if one.name == n8n.name and not truths.is_old(one)), None)
    pairs = truth.pairs if truth else ()
    return frozenset(pair.id for pair in pairs if pair.finding and pair.finding.repair is Repair.MARK)
