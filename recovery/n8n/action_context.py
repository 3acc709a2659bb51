"""Reads the state of executions, directly before an action on them or on their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from recovery.backends.bull import job_fields
from recovery.config import N8nInstallation
from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.action_context import ExecutionActionContext
from recovery.domain.n8n.comparison import N8nComparison
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.mismatches import MismatchRepair
from recovery.domain.queues.types import Snapshot
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.stuck.types import Verdict
from recovery.errors import ConfigError, StoreError, Unsupported
from recovery.n8n import action_targets, api_client, comparison_store, queue_reader
from recovery.n8n import jobless_executions as marks
from recovery.n8n.database import executions, mark_crashed, run_data_inspection
from recovery.reads.queues.job_lists import Queue, locate
from recovery.reads.stuck import queries as stuck_queries
from recovery.stores.registry import ConnectionRegistry


def contexts_of_jobs(
    registry: ConnectionRegistry, queue: Queue, ids: Sequence[str]
) -> dict[str, ExecutionActionContext]:
    """Returns the state of each job's execution, by job, without jobs whose data names none. Raises StoreError of the
    queue's store.
    """
    named = {
        id: found
        for id, found in job_fields.executions(queue.wire, queue.ref, ids).items()
        if action_targets.is_id(found)
    }
    n8n = registry.config.n8n_of(queue.ref)
    if not named:
        return {}
    if n8n is None or not n8n.database:
        return {id: ExecutionActionContext(execution, is_configured=False) for id, execution in named.items()}
    try:
        found = executions.fetch_by_ids(*action_targets.database(registry, n8n), set(named.values()))
    except (Unsupported, StoreError) as error:
        return {id: ExecutionActionContext(execution, silence=str(error)) for id, execution in named.items()}
    return {id: ExecutionActionContext(execution, found.get(execution)) for id, execution in named.items()}


def contexts_of_executions(
    registry: ConnectionRegistry,
    ref: QueueRef,
    ids: Sequence[str],
    snapshot: Snapshot | None,
    now: int,
    *,
    is_rerun: bool,
) -> dict[str, ExecutionActionContext]:
    """Returns the state of each execution, by id. Every job of n8n's is read, some 0.3 s for ten thousand. What a retry
    would run, and earlier retries, are looked up only if it `is_rerun`: that reads the stored data of each execution.

    Raises QueueMissing, Unsupported, StoreError.
    """
    n8n = action_targets.installation(registry, ref)
    wire, known = action_targets.database(registry, n8n)
    found = executions.fetch_by_ids(wire, known, ids)
    claims = _claims(registry, n8n, snapshot)
    alone = [one for one in found.values() if claims is not None and not claims.get(one.id)]
    since = _alone_since(registry, n8n, alone, now)
    listed = _listed(n8n)
    fixed, no_api = mark_crashed.refusal(wire, known), api_client.lacks(n8n)
    retried = executions.newest_retries(wire, known, ids) if is_rerun else {}
    workers = queue_reader.worker_ages(registry, n8n, queue_reader.refs(n8n, snapshot), now)
    return {
        id: ExecutionActionContext(
            id,
            execution=found.get(id),
            claims=None if claims is None else tuple(claims.get(id, ())),
            is_proven=_is_proven(claims.get(id, ()) if claims else (), snapshot, now),
            alone_for=max(0, now - since.get(id, now)),
            has_start=run_data_inspection.has_start(wire, n8n, id) if is_rerun else None,
            retried_as=retried.get(id, ""),
            workers=workers,
            is_listed=id in listed,
            fixed=fixed,
            no_api=no_api,
        )
        for id in ids
    }


def _claims(
    registry: ConnectionRegistry, n8n: N8nInstallation, snapshot: Snapshot | None
) -> Mapping[str, list[N8nJob]] | None:
    """Returns live jobs by the execution that they name; None if there are more than one reading takes."""
    refs = queue_reader.refs(n8n, snapshot)
    jobs = queue_reader.read_jobs(
        registry.wire(n8n.queue.deployment), refs, queue_reader.workers_of(refs, snapshot, AddressMap())
    )
    if jobs.left_out:
        return None
    return {id: jobs.claims.live(id) for id in jobs.claims.executions}


def _is_proven(claims: Iterable[N8nJob], snapshot: Snapshot | None, now: int) -> bool:
    """Returns True if the verdict on each of these jobs proves that no worker holds it."""
    return all(found is not None and found.of_lock.is_orphaned for found in verdicts(claims, snapshot, now))


def verdicts(claims: Iterable[N8nJob], snapshot: Snapshot | None, now: int) -> Iterator[Verdict | None]:
    """Yields the current verdict on each of these jobs; None for one that is gone or has none."""
    for claim in claims:
        queue = locate(claim.job.queue, snapshot)
        (row,) = queue.rows([(claim.job.id, claim.state)])
        yield stuck_queries.verdicts_of_rows(queue, (row,), snapshot, now).get(claim.job.id) if row else None


def _alone_since(
    registry: ConnectionRegistry, n8n: N8nInstallation, alone: Sequence[Execution], now: int
) -> dict[str, int]:
    """Returns since when executions have had no job; without a state store nothing is remembered.

    A comparison knows of one before it lists it. That counts for an execution that began before, not for a later start.
    """
    try:
        marked = marks.first_seen(registry.state(), n8n.name, alone, now)
    except (ConfigError, StoreError):
        return {}
    found = _newest(n8n)
    young = {one.id: at for one in alone if found and (at := found.young_since(one.id)) is not None}
    began = {one.id: one.began_at for one in alone}
    return {
        id: min(at, young[id]) if id in young and (began[id] or now) <= young[id] else at for id, at in marked.items()
    }


def _listed(n8n: N8nInstallation) -> frozenset[str]:
    """Returns executions for which the newest comparison suggests to mark them as crashed."""
    found = _newest(n8n)
    pairs = found.pairs if found else ()
    return frozenset(pair.id for pair in pairs if pair.finding and pair.finding.repair is MismatchRepair.MARK)


def _newest(n8n: N8nInstallation) -> N8nComparison | None:
    """Returns the newest comparison of this installation, unless it is old."""
    found = (one for one in comparison_store.newest() if one.name == n8n.name and not comparison_store.is_old(one))
    return next(found, None)
