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
from recovery.config import N8n
from recovery.connections.registry import Registry
from recovery.connections.sql import SqlWire, of
from recovery.domain.counts import QueueSample, Snapshot
from recovery.domain.n8n import telling
from recovery.domain.n8n.around import TOLD_AFTER, Around
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.joining import GENERATIONS, Family, Join, again
from recovery.domain.n8n.pairs import MISMATCH_LIMIT, Pair, Truth
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import Surroundings
from recovery.domain.tuning.versions import Version
from recovery.errors import ConfigError, StatementRefused, StoreError, Unsupported
from recovery.n8n import error_rates, executions, remains, tables
from recovery.n8n.tables import Tables
from recovery.reads import sightings, surroundings, whereabouts
from recovery.reads.n8n import losses, queues
from recovery.reads.n8n.queues import Jobs
from recovery.reads.sightings import Memory

_ENDED_LIMIT = 100  # parents that ended with an error, whose stored data is looked up
NO_DATABASE = "[[n8n]] has no database, so its executions are unknown."


@dataclass(frozen=True, slots=True)
class Wish:
    """Parameters of one comparison. `young`: contradictions of the one before, with the time they were first found.
    `between` is for tests: it is called between the two readings. `version`: n8n's, where its registry has it.
    """

    snapshot: Snapshot | None
    now: int
    young: Mapping[str, int]
    grace: int = TOLD_AFTER
    between: Callable[[], object] = lambda: None
    version: Version | None = None


def look(registry: Registry, n8n: N8n, wish: Wish) -> Truth:
    """Compares one installation. What cannot be read is a fault in the result; only programming errors are raised."""
    began = time.monotonic()
    told = Truth(name=n8n.name, queue=n8n.queue, checked_at=wish.now, young=wish.young)
    if not n8n.database:
        return replace(told, fault=NO_DATABASE)
    try:
        found = _Look(registry, n8n, wish).run(told)
    except Unsupported as error:
        return replace(told, fault=str(error))
    except StoreError as error:
        if isinstance(error, StatementRefused):
            tables.forget(of(registry.wire(n8n.database)), n8n)  # n8n may have been brought up to date
        return replace(told, fault=f"{error}. {error.advice}")
    return replace(found, took=round((time.monotonic() - began) * 1000))


class _Look:
    def __init__(self, registry: Registry, n8n: N8n, wish: Wish) -> None:
        self._wish = wish
        self._name = n8n.name
        self._registry = registry
        self._n8n = n8n
        self._redis = registry.wire(n8n.queue.deployment)
        self._sql: SqlWire = of(registry.wire(n8n.database))
        self._tables: Tables = tables.learned(self._sql, n8n)
        self._queues = queues.refs(n8n, wish.snapshot)
        self._crew = queues.crew(self._queues, wish.snapshot, whereabouts.known(registry))
        self._ages = queues.worker_ages(registry, n8n, self._queues, shared_clock.now())

    @cached_property
    def _watched(self) -> Mapping[QueueRef, Surroundings]:
        """Verdict contexts of the queues that the snapshot has."""
        snapshot = self._wish.snapshot
        samples = [snapshot and surroundings.sample_of(snapshot, ref) for ref in self._queues]
        return {one.ref: self._around_queue(one, snapshot) for one in samples if one and snapshot}

    def _around_queue(self, sample: QueueSample, snapshot: Snapshot) -> Surroundings:
        """Returns the verdict context at the time of the snapshot. Scanners do not count: they skip n8n's jobs."""
        memory = Memory()
        with suppress(ConfigError, StoreError):
            memory, _ = sightings.memory(self._registry.state(), sample.ref)
        workers = [worker for worker in snapshot.workers if worker.queue == sample.ref]
        config, at = self._registry.config, snapshot.taken_at
        near = surroundings.around(sample, workers, memory, config, at, taken_at=at)
        return replace(near, is_n8n=True, n8n_version=self._wish.version)

    def run(self, told: Truth) -> Truth:
        jobs = queues.look(self._redis, self._queues, self._crew)
        join = self._joined(jobs)
        found, young = _grown(self._sure(join), self._wish)
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
            return error_rates.of_workflows(self._sql, self._tables, self._wish.now)
        except StoreError:
            return None

    def _joined(self, jobs: Jobs) -> Join:
        join = Join(jobs.claims, self._around(jobs))
        for some in executions.still_open(self._sql, self._tables):
            join.take(some)
        unmet = join.unmet
        for start in range(0, len(unmet), executions.STEP):
            ids = unmet[start : start + executions.STEP]
            join.take_named(ids, executions.of_ids(self._sql, self._tables, ids))
        join.settle(self._family(join.doubtful))
        return join

    def _family(self, children: Sequence[str]) -> Family:
        """Looks up the executions that started these sub-workflows, generation by generation, as far as our user may
        read them.
        """
        parents: dict[str, str] = {}
        found: dict[str, Execution] = {}
        for _ in range(GENERATIONS):
            known = remains.parents(self._sql, self._tables, self._n8n, children) if children else {}
            parents |= known
            new = sorted(set(known.values()) - found.keys())
            some = executions.of_ids(self._sql, self._tables, new) if new else {}
            found |= some
            children = [one.id for one in some.values() if one.is_sub_workflow and one.id not in parents]
        ended = [one.id for one in found.values() if one.status is ExecutionStatus.ERROR]
        emptied = {id for id in ended[:_ENDED_LIMIT] if remains.has_start(self._sql, self._n8n, id) is False}
        return Family(parents, found, emptied)

    def _sure(self, join: Join) -> list[Pair]:
        """Reads suspects from Redis and SQL again; returns those that still contradict each other."""
        if not join.suspects:
            return []
        self._wish.between()
        found: dict[str, Execution] = {}
        ids = list(dict.fromkeys(pair.id for pair in join.suspects))
        jobs = queues.look(self._redis, self._queues, self._crew, join.claims)
        for start in range(0, len(ids), executions.STEP):
            found |= executions.of_ids(self._sql, self._tables, ids[start : start + executions.STEP])
        return list(again(join.suspects, jobs.claims, found, self._around(jobs)))

    def _around(self, jobs: Jobs) -> Around:
        return Around(
            now=self._wish.now,
            grace=self._wish.grace,
            release=self._tables.release,
            paused=jobs.paused,
            workers=self._crew.counts,
            watched=self._watched,
            oldest_worker=self._crew.oldest,
            worker_ages=self._ages,
        )

    def _told(self, pair: Pair, since: int, jobs: Jobs) -> Pair:
        dated = replace(pair, finding=replace(pair.finding, since=since)) if pair.finding else pair
        return telling.told(dated, self._around(jobs))

    def _caused(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """Adds the loss of the worker to the pairs; returns them unchanged if our database does not answer."""
        try:
            known = losses.of_executions(self._name, [pair.id for pair in pairs])
        except Error:
            return pairs
        return [telling.caused(pair, known.get(pair.id), self._wish.now) for pair in pairs]

    def _titled(self, pairs: Sequence[Pair]) -> tuple[Pair, ...]:
        names = executions.titles(self._sql, self._tables, {pair.workflow for pair in pairs if pair.workflow})
        return tuple(replace(pair, title=names.get(pair.workflow, "")) for pair in pairs)


def _grown(pairs: Iterable[Pair], wish: Wish) -> tuple[list[tuple[int, Pair]], dict[str, int]]:
    """Returns the pairs that are old enough, each with its time, and the first-seen times of those without one."""
    grown: list[tuple[int, Pair]] = []
    seen: dict[str, int] = {}
    for pair in pairs:
        since = pair.finding.since if pair.finding else wish.now
        if since is None:
            since = seen[pair.key] = min(wish.young.get(pair.key, wish.now), wish.now)
        if wish.now - since >= wish.grace:
            grown.append((since, pair))
    return grown, seen


def _order(dated: tuple[int, Pair]) -> tuple[int, int]:
    """Sort key: worst kind first, of equal ones the longest."""
    since, pair = dated
    return (pair.finding.kind.rank if pair.finding else 0), since


def _notes(join: Join, known: Tables) -> tuple[str, ...]:
    told = []
    if known.read_only:
        told.append(known.read_only)
    if join.executions >= executions.OPEN_LIMIT:
        told.append(f"More than {executions.OPEN_LIMIT:,} executions are unfinished: the others were not checked.")
    return tuple(told)
