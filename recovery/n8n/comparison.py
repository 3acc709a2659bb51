"""Compares an installation's jobs with its executions: reads all, reads contradictions again, and describes those left.

The two stores are never read at one moment. A contradiction therefore counts only when both, read again, show it again,
and when it is older than n8n itself waits; where neither store says since when, the first comparison to find it does.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from django.db import Error

from recovery import shared_clock
from recovery.config import N8nInstallation
from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n import mismatch_text
from recovery.domain.n8n.comparison import MISMATCH_LIMIT, JobExecutionPair, N8nComparison
from recovery.domain.n8n.comparison_context import REPORTED_AFTER, ComparisonContext
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.join import GENERATIONS, JobExecutionJoin, ParentExecutions, confirm_mismatches
from recovery.domain.n8n.versions import Version
from recovery.domain.queues.types import QueueSample, Snapshot
from recovery.domain.stuck.context import VerdictContext
from recovery.errors import ConfigError, StatementRefused, StoreError, Unsupported
from recovery.n8n import lost_executions, queue_reader
from recovery.n8n.database import error_rates, executions, run_data_inspection, schema
from recovery.n8n.database.schema import N8nTables
from recovery.n8n.queue_reader import N8nQueueReading
from recovery.reads.stuck import observations, verdict_context
from recovery.reads.stuck.observations import QueueObservation
from recovery.servers import address_queries
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

_ENDED_LIMIT = 100  # parents that ended with an error, whose stored data is looked up
NO_DATABASE = "[[n8n]] has no database, so its executions are unknown."


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """Parameters of one comparison. `young`: contradictions of the one before, with the time they were first found.
    `between` is for tests: it is called between the two readings. `version`: n8n's, where its registry has it.
    """

    snapshot: Snapshot | None
    now: int
    young: Mapping[str, int]
    grace: int = REPORTED_AFTER
    between: Callable[[], object] = lambda: None
    version: Version | None = None


def compare(registry: ConnectionRegistry, n8n: N8nInstallation, request: ComparisonRequest) -> N8nComparison:
    """Compares one installation. What cannot be read is a fault in the result; only programming errors are raised."""
    began = time.monotonic()
    told = N8nComparison(name=n8n.name, queue=n8n.queue, checked_at=request.now, young=request.young)
    if not n8n.database:
        return replace(told, fault=NO_DATABASE)
    try:
        found = _Look(registry, n8n, request).run(told)
    except Unsupported as error:
        return replace(told, fault=str(error))
    except StoreError as error:
        if isinstance(error, StatementRefused):
            schema.forget(as_sql_client(registry.wire(n8n.database)), n8n)  # n8n may have been brought up to date
        return replace(told, fault=f"{error}. {error.advice}")
    return replace(found, took=round((time.monotonic() - began) * 1000))


class _Look:
    def __init__(self, registry: ConnectionRegistry, n8n: N8nInstallation, request: ComparisonRequest) -> None:
        self._request = request
        self._name = n8n.name
        self._registry = registry
        self._n8n = n8n
        self._redis = registry.wire(n8n.queue.deployment)
        self._sql: SqlClient = as_sql_client(registry.wire(n8n.database))
        self._tables: N8nTables = schema.cached_tables(self._sql, n8n)
        self._queues = queue_reader.refs(n8n, request.snapshot)
        self._crew = queue_reader.workers_of(self._queues, request.snapshot, address_queries.address_map(registry))
        self._ages = queue_reader.worker_ages(registry, n8n, self._queues, shared_clock.now())

    @cached_property
    def _watched(self) -> Mapping[QueueRef, VerdictContext]:
        """Verdict contexts of the queues that the snapshot has."""
        snapshot = self._request.snapshot
        samples = [snapshot and verdict_context.sample_of(snapshot, ref) for ref in self._queues]
        return {one.ref: self._around_queue(one, snapshot) for one in samples if one and snapshot}

    def _around_queue(self, sample: QueueSample, snapshot: Snapshot) -> VerdictContext:
        """Returns the verdict context at the time of the snapshot. Scanners do not count: they skip n8n's jobs."""
        memory = QueueObservation()
        with suppress(ConfigError, StoreError):
            memory, _ = observations.memory(self._registry.state(), sample.ref)
        workers = [worker for worker in snapshot.workers if worker.queue == sample.ref]
        config, at = self._registry.config, snapshot.taken_at
        near = verdict_context.build_context(sample, workers, memory, config, at, taken_at=at)
        return replace(near, is_n8n=True, n8n_version=self._request.version)

    def run(self, told: N8nComparison) -> N8nComparison:
        jobs = queue_reader.read_jobs(self._redis, self._queues, self._crew)
        join = self._joined(jobs)
        found, young = _grown(self._sure(join), self._request)
        listed = [self._told(pair, since, jobs) for since, pair in heapq.nsmallest(MISMATCH_LIMIT, found, key=_order)]
        return replace(
            told,
            release=self._tables.release,
            pairs=self._titled(self._caused(listed)),
            matching=self._titled(join.matching),
            counts=Counter(pair.finding.kind for _, pair in found if pair.finding),
            jobs=len(jobs.claims),
            executions=join.executions,
            parked=join.parked,
            elsewhere=join.elsewhere,
            unsure_parents=join.unsure_parents,
            unnamed=jobs.claims.unnamed,
            left_out=jobs.left_out + join.dropped,
            young=young,
            notes=_notes(join, self._tables),
            error_rates=self._error_rates(),
        )

    def _error_rates(self) -> tuple[ErrorRate, ...] | None:
        """Returns the error rates; None if they cannot be counted: the comparison is valid all the same."""
        try:
            return error_rates.of_workflows(self._sql, self._tables, self._request.now)
        except StoreError:
            return None

    def _joined(self, jobs: N8nQueueReading) -> JobExecutionJoin:
        join = JobExecutionJoin(jobs.claims, self._around(jobs))
        for some in executions.still_open(self._sql, self._tables):
            join.take(some)
        unmet = join.unmet
        for start in range(0, len(unmet), executions.STEP):
            ids = unmet[start : start + executions.STEP]
            join.take_named(ids, executions.fetch_by_ids(self._sql, self._tables, ids))
        join.settle(self._family(join.doubtful))
        return join

    def _family(self, children: Sequence[str]) -> ParentExecutions:
        """Looks up the executions that started these sub-workflows, generation by generation, as far as our user may
        read them.
        """
        parents: dict[str, str] = {}
        found: dict[str, Execution] = {}
        for _ in range(GENERATIONS):
            known = run_data_inspection.parents(self._sql, self._tables, self._n8n, children) if children else {}
            parents |= known
            new = sorted(set(known.values()) - found.keys())
            some = executions.fetch_by_ids(self._sql, self._tables, new) if new else {}
            found |= some
            children = [one.id for one in some.values() if one.is_sub_workflow and one.id not in parents]
        ended = [one.id for one in found.values() if one.status is ExecutionStatus.ERROR]
        emptied = {
            id for id in ended[:_ENDED_LIMIT] if run_data_inspection.has_start(self._sql, self._n8n, id) is False
        }
        return ParentExecutions(parents, found, emptied)

    def _sure(self, join: JobExecutionJoin) -> list[JobExecutionPair]:
        """Reads suspects from Redis and SQL again; returns those that still contradict each other."""
        if not join.suspects:
            return []
        self._request.between()
        found: dict[str, Execution] = {}
        ids = list(dict.fromkeys(pair.id for pair in join.suspects))
        jobs = queue_reader.read_jobs(self._redis, self._queues, self._crew, join.claims)
        for start in range(0, len(ids), executions.STEP):
            found |= executions.fetch_by_ids(self._sql, self._tables, ids[start : start + executions.STEP])
        return list(confirm_mismatches(join.suspects, jobs.claims, found, self._around(jobs)))

    def _around(self, jobs: N8nQueueReading) -> ComparisonContext:
        return ComparisonContext(
            now=self._request.now,
            grace=self._request.grace,
            release=self._tables.release,
            paused=jobs.paused,
            workers=self._crew.counts,
            watched=self._watched,
            oldest_worker=self._crew.oldest,
            worker_ages=self._ages,
        )

    def _told(self, pair: JobExecutionPair, since: int, jobs: N8nQueueReading) -> JobExecutionPair:
        dated = replace(pair, finding=replace(pair.finding, since=since)) if pair.finding else pair
        return mismatch_text.describe_pair(dated, self._around(jobs))

    def _caused(self, pairs: Sequence[JobExecutionPair]) -> Sequence[JobExecutionPair]:
        """Adds the loss of the worker to the pairs; returns them unchanged if our database does not answer."""
        try:
            known = lost_executions.newest_by_execution(self._name, [pair.id for pair in pairs])
        except Error:
            return pairs
        return [mismatch_text.describe_loss(pair, known.get(pair.id), self._request.now) for pair in pairs]

    def _titled(self, pairs: Sequence[JobExecutionPair]) -> tuple[JobExecutionPair, ...]:
        names = executions.titles(self._sql, self._tables, {pair.workflow for pair in pairs if pair.workflow})
        return tuple(replace(pair, title=names.get(pair.workflow, "")) for pair in pairs)


def _grown(
    pairs: Iterable[JobExecutionPair], request: ComparisonRequest
) -> tuple[list[tuple[int, JobExecutionPair]], dict[str, int]]:
    """Returns the pairs that are old enough, each with its time, and the first-seen times of those without one."""
    grown: list[tuple[int, JobExecutionPair]] = []
    seen: dict[str, int] = {}
    for pair in pairs:
        since = pair.finding.since if pair.finding else request.now
        if since is None:
            since = seen[pair.key] = min(request.young.get(pair.key, request.now), request.now)
        if request.now - since >= request.grace:
            grown.append((since, pair))
    return grown, seen


def _order(dated: tuple[int, JobExecutionPair]) -> tuple[int, int]:
    """Sort key: worst kind first, of equal ones the longest."""
    since, pair = dated
    return (pair.finding.kind.rank if pair.finding else 0), since


def _notes(join: JobExecutionJoin, known: N8nTables) -> tuple[str, ...]:
    told = []
    if known.read_only:
        told.append(known.read_only)
    if join.executions >= executions.OPEN_LIMIT:
        told.append(f"More than {executions.OPEN_LIMIT:,} executions are unfinished: the others were not checked.")
    return tuple(told)
