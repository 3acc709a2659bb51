"""Runs the orphan watch on one Redis deployment, and keeps its state between two passes.

1. Note which workers connected or left, which process of n8n that was, and whether Redis was restarted. 2. Read the
active jobs. 3. Follow the locks that are not renewed. 4. Assess the jobs. 5. Make rows of the most urgent ones. 6. Open
and close incidents. 7. Store the state. A deployment that does not answer keeps what was found last, marked; none of
its incidents is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from django.db import Error

from recovery.config import Deployment
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.queues.types import QueueSample, Snapshot, Worker
from recovery.domain.scanners.blockers import Blocker, ScannerBlock
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.stuck.context import VerdictContext
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.outlook import outlook_of_queue, recovers_within
from recovery.domain.stuck.types import StuckJob
from recovery.errors import StoreError
from recovery.reads.bulk import queries as bulk_queries
from recovery.reads.scanners.forecast import ScannerForecast
from recovery.reads.stuck import incidents, verdict_context
from recovery.scanners.orphan_watch.active_job_reader import ACTIVE_LIMIT, ActiveJobReader
from recovery.scanners.orphan_watch.assessment import AssessedJob, assess_queue
from recovery.scanners.orphan_watch.inbox_rows import InboxRows
from recovery.scanners.orphan_watch.incident_store import IncidentStore
from recovery.scanners.orphan_watch.incident_sync import IncidentSync
from recovery.scanners.orphan_watch.lost_locks import count_lost_locks
from recovery.scanners.orphan_watch.n8n_instances import N8nInstanceWatch
from recovery.scanners.orphan_watch.n8n_shutdowns import ShutdownLogs
from recovery.scanners.orphan_watch.payload_checks import count_malformed
from recovery.scanners.orphan_watch.queue_state import QueueState
from recovery.scanners.orphan_watch.redis_identity import RedisIdentity, read_redis_identity
from recovery.scanners.orphan_watch.redis_pause import RedisPauseGuard
from recovery.scanners.orphan_watch.resolution import UnresolvedJob, find_actions
from recovery.scanners.orphan_watch.watch_memory import WatchMemory
from recovery.scanners.orphan_watch.worker_changes import QueueWorkerChanges, WorkerChanges, merge_changes
from recovery.servers import address_queries
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import ConnectionRegistry

_CLOCKS = 10_000  # ms between the clocks of the hosts that write the audit


@dataclass(frozen=True, slots=True)
class DeploymentFindings:
    """Result of one pass over one deployment."""

    rows: tuple[StuckJob, ...] = ()
    tallies: tuple[StuckTally, ...] = ()
    faults: tuple[str, ...] = ()
    judged: Sequence[AssessedJob] = ()  # all jobs that are stuck or may be soon, not only those in a row
    around: Mapping[QueueRef, VerdictContext] = field(default_factory=dict)
    soon: frozenset[QueueRef] = frozenset()  # queues that are to be checked again at the next snapshot


class DeploymentWatch:
    """Orphan watch of one deployment. `pause_guard` learns at each pass if Redis may have lost locks; without it no
    scanner acts on the result.
    """

    def __init__(
        self,
        registry: ConnectionRegistry,
        deployment: Deployment,
        incident_store: IncidentStore | None,
        pause_guard: RedisPauseGuard | None = None,
    ) -> None:
        self.name = deployment.name
        self._registry = registry
        self._posts: dict[QueueRef, QueueState] = {}
        self._recall = WatchMemory(registry, deployment.name, writes=incident_store is not None)
        self._cases = IncidentSync(incident_store) if incident_store else None
        self._arrivals = WorkerChanges()
        self._instances = N8nInstanceWatch(registry.config)
        self._shutdowns = ShutdownLogs(registry.config)
        self._pause_guard = pause_guard
        self._lines = InboxRows(registry.config)
        self._last = DeploymentFindings()
        self._faults: list[str] = []
        self._where = AddressMap()
        self._run_id = ""

    def look(self, snapshot: Snapshot, now: int) -> DeploymentFindings:
        deployment = snapshot.deployment(self.name)
        error = deployment.error if deployment else "it is not in the snapshot"
        if error:
            return self._blind(error)
        try:
            self._last = self._look(snapshot, now)
        except StoreError as caught:
            return self._blind(caught.reason)
        return self._last

    def doubt(self, jobs: Iterable[JobRef]) -> None:
        """Makes the next pass read these jobs again: an action may have moved them since the last one."""
        for job in jobs:
            if job.queue in self._posts:
                self._posts[job.queue].doubt(job.id)

    def _blind(self, error: str) -> DeploymentFindings:
        """Returns the result of the last pass, marked as old."""
        if self._pause_guard:
            self._pause_guard.failed(self.name, error)
        fault = f"{self.name} cannot be read: {error}. The last known state is kept."
        silent = ScannerBlock(Blocker.SILENT, self.name, error).clause
        last = StuckInbox(0, self._last.rows, self._last.tallies).unpromised(silent)
        return replace(
            self._last,
            rows=last.rows,
            tallies=tuple(replace(tally, error=error) for tally in last.queues),
            faults=(fault,),
            judged=(),
        )

    def _look(self, snapshot: Snapshot, now: int) -> DeploymentFindings:
        self._faults = []
        wire = self._registry.wire(self.name)
        alive = read_redis_identity(wire)
        self._recall.begin(alive.run_id, now)
        self._where = address_queries.address_map(self._registry)
        workers = [worker for worker in snapshot.workers if worker.queue.deployment == self.name]
        samples = {sample.ref: sample for sample in snapshot.queues if sample.ref.deployment == self.name}
        self._note(snapshot, samples, workers, now)
        self._instances.explain(wire, self._posts.values(), workers, snapshot.taken_at, now)
        self._shutdowns.explain(self._posts.values(), now)
        left, posts = self._left_to_runs(now), self._on_duty(samples)
        for ref in left & posts.keys():
            posts.pop(ref).jobs.clear()  # it is outdated when the run is over
        if alive.run_id != self._run_id:
            for post in posts.values():
                post.jobs.forget_locks()
        job_reader = ActiveJobReader(wire, posts)
        job_reader.find(now)
        for post in posts.values():
            post.learn_locks(now)
            post.learn_rhythm(now)
        job_reader.inquire(now)
        around = self._around(posts, workers, snapshot, now)
        job_reader.look(around)
        self._follow_locks(alive, around, now)
        self._tell_pause_guard(alive, posts, around)
        tallies, found = self._judge(posts, around, snapshot, now)
        rows = self._lines.of(wire, found, around, now)
        rows = self._settle(wire, posts, found, rows, now)
        self._recall.save(self._posts.values(), self._forget(samples))
        faults = [*self._faults, self._recall.fault]
        counted = (*count_malformed(tallies, rows, found, around), *self._unread(samples))
        rows = (*rows, *(row for row in self._last.rows if row.job.queue in left))
        known = {tally.queue for tally in counted}
        counted = (*counted, *(tally for tally in self._last.tallies if tally.queue in left - known))
        soon = frozenset(ref for ref, post in posts.items() if post.tells_more_soon(now))
        return DeploymentFindings(rows, counted, tuple(fault for fault in faults if fault), found, around, soon)

    def _left_to_runs(self, now: int) -> frozenset[QueueRef]:
        """Returns queues that a bulk run is changing: each pass would assess the rest again, and act at the same time.

        The last result there is shown until the run is over or paused.
        """
        try:
            under_way = bulk_queries.queues_under_repair(self.name, now)
        except Error as error:
            self._faults.append(f"Bulk runs cannot be read: {type(error).__name__}.")
            return frozenset()
        return under_way & {tally.queue for tally in self._last.tallies if not tally.error}

    def _follow_locks(self, alive: RedisIdentity, around: Mapping[QueueRef, VerdictContext], now: int) -> None:
        """Follows expiring locks; forgets them after a restart of Redis, and those of jobs that our actions changed."""
        same_life, self._run_id = alive.run_id == self._run_id, alive.run_id
        for post in self._posts.values():
            if not same_life:
                post.expiries = {}
            post.follow_locks(around.get(post.ref))
            ended = [UnresolvedJob(id, post.expiries[id].locked_at - _CLOCKS) for id in post.unproven()]
            try:
                touched = find_actions(post.ref, ended, now)
            except Error as error:
                self._faults.append(f"The audit cannot be read: {type(error).__name__}.")
                touched = dict.fromkeys(one.id for one in ended)
            for id in touched:
                del post.expiries[id]

    def _tell_pause_guard(
        self, alive: RedisIdentity, posts: Mapping[QueueRef, QueueState], around: Mapping[QueueRef, VerdictContext]
    ) -> None:
        """Reports lost locks to the Redis pause before jobs are assessed, so that it holds before a scanner acts."""
        if self._pause_guard and (
            fault := self._pause_guard.seen(self.name, alive, count_lost_locks(posts.values(), around, alive.uptime))
        ):
            self._faults.append(fault)
        for post in self._posts.values():
            post.end()

    def _note(
        self, snapshot: Snapshot, samples: Mapping[QueueRef, QueueSample], workers: Sequence[Worker], now: int
    ) -> None:
        deployment = snapshot.deployment(self.name)
        assert deployment is not None  # noqa: S101 -- `look` has made sure of it
        restarted_at = self._recall.restarted_at
        if restarted_at is not None and deployment.taken_at <= restarted_at:
            self._arrivals.forget()  # these connections may still be those before the restart
        moves = self._arrivals.since(workers, now, self._where) if deployment.workers_known else {}
        for ref, sample in samples.items():
            if ref not in self._posts and _is_readable(sample) and self._is_worth_a_post(sample):
                self._posts[ref] = self._new(sample)
            if ref in self._posts and _is_readable(sample):
                self._refresh(self._posts[ref], sample, moves.get(ref, QueueWorkerChanges()), deployment.taken_at, now)

    def _is_worth_a_post(self, sample: QueueSample) -> bool:
        return bool(sample.counts.active) or bool(self._cases and self._cases.has(sample.ref))

    def _new(self, sample: QueueSample) -> QueueState:
        marks = self._recall.marks(sample.ref)
        if self._cases:
            self._cases.remind(sample.ref, marks)
        return QueueState(sample.ref, sample, self._recall.memory(sample.ref), marks, written=dict(marks))

    def _refresh(
        self, post: QueueState, sample: QueueSample, moves: QueueWorkerChanges, taken_at: int, now: int
    ) -> None:
        post.begin(sample)
        post.learn_watchdog(taken_at)
        memory = post.memory
        post.memory = replace(
            memory, left=merge_changes(memory.left, moves.left, now), came=merge_changes(memory.came, moves.came, now)
        )

    def _on_duty(self, samples: Mapping[QueueRef, QueueSample]) -> dict[QueueRef, QueueState]:
        """Returns queues with active jobs, marks or open incidents; forgets the jobs of the others."""
        on_duty = {
            ref: post
            for ref, post in self._posts.items()
            if ref in samples
            and _is_readable(samples[ref])
            and (post.sample.counts.active or post.marks or (self._cases and self._cases.has(ref)))
        }
        for ref, post in self._posts.items():
            if ref not in on_duty and (ref not in samples or _is_readable(samples[ref])):
                post.jobs.clear()  # kept while it cannot be read: locks lost meanwhile say something about Redis
        return on_duty

    def _around(
        self, posts: Mapping[QueueRef, QueueState], workers: Sequence[Worker], snapshot: Snapshot, now: int
    ) -> dict[QueueRef, VerdictContext]:
        by_queue: dict[QueueRef, list[Worker]] = {}
        for worker in workers:
            by_queue.setdefault(worker.queue, []).append(worker)
        deployment = snapshot.deployment(self.name)  # a slow deployment shows an earlier time
        taken_at = min(snapshot.taken_at, deployment.taken_at if deployment else snapshot.taken_at)
        return {
            ref: verdict_context.build_context(
                post.sample,
                by_queue.get(ref, ()),
                post.memory,
                self._registry.config,
                now,
                taken_at=taken_at,
                restarted_at=self._recall.restarted_at,
                where=self._where,
                n8n_version=self._instances.version(ref),
            )
            for ref, post in posts.items()
        }

    def _judge(
        self, posts: Mapping[QueueRef, QueueState], around: dict[QueueRef, VerdictContext], snapshot: Snapshot, now: int
    ) -> tuple[list[StuckTally], list[AssessedJob]]:
        """Assesses all queues; adds to `around` which scanners will recover the jobs, where any is stuck."""
        tallies: list[StuckTally] = []
        found: list[AssessedJob] = []
        lookout = ScannerForecast(self._registry, now, snapshot)
        for ref, post in posts.items():
            mine = [] if post.found_error else assess_queue(post, around[ref], partial(self._before, ref, now))
            found += mine
            if mine:
                lost = sum(one.kind.is_lost for one in mine)
                around[ref] = replace(around[ref], rescuers=lookout.of(ref, post.sample.flavour), lost=lost)
            tallies.append(_tally(post, mine, around[ref], now))
        return [tally for tally in tallies if tally.looked or tally.error], found

    def _before(self, ref: QueueRef, now: int, ids: Sequence[str]) -> Mapping[str, int] | None:
        """Returns how often these jobs were orphaned earlier; None without the database, which also stops actions."""
        try:
            return incidents.orphan_counts(ref, ids, now)
        except Error as error:
            if self._cases:
                self._faults.append(f"Earlier incidents cannot be read: {type(error).__name__}.")
            return None

    def _settle(
        self,
        wire: StoreClient,
        posts: Mapping[QueueRef, QueueState],
        found: Sequence[AssessedJob],
        rows: tuple[StuckJob, ...],
        now: int,
    ) -> tuple[StuckJob, ...]:
        """Opens and closes incidents; returns the rows with their numbers. A failed write is reported as a fault."""
        if self._cases is None:
            return rows
        try:
            return self._cases.settle(wire, posts, found, rows, now)
        except Error as error:
            self._cases.forget()
            self._faults.append(f"Incidents cannot be written: {type(error).__name__}.")
            return rows

    def _unread(self, samples: Mapping[QueueRef, QueueSample]) -> list[StuckTally]:
        """Returns the last tallies, marked with the error, of queues whose number of active jobs is not known."""
        before = {tally.queue: tally for tally in self._last.tallies}
        return [
            replace(before.get(ref, StuckTally(ref)), error=sample.error or "it cannot be read")
            for ref, sample in samples.items()
            if not _is_readable(sample)
        ]

    def _forget(self, samples: Mapping[QueueRef, QueueSample]) -> list[str]:
        """Forgets queues that are gone; returns their bases."""
        gone = [ref for ref in self._posts if ref not in samples]
        for ref in gone:
            del self._posts[ref]
        return [ref.base for ref in gone]


def _is_readable(sample: QueueSample) -> bool:
    """Returns True if the active jobs can be counted now. Another key of the queue may still be refused."""
    return sample.counts.active is not None and not sample.is_old


def _tally(post: QueueState, found: Sequence[AssessedJob], around: VerdictContext, now: int) -> StuckTally:
    looked = 0 if post.found_error else len(post.jobs)
    active = post.sample.counts.active or 0
    recovers = recovers_within(around)
    ahead = [(one, one.outlook(around)) for one in found]
    return StuckTally(
        queue=post.ref,
        kinds=post.found_kinds,
        people=sum(one.needs_a_person(outlook) for one, outlook in ahead),
        looked=looked,
        left_out=max(0, active - looked) if looked >= ACTIVE_LIMIT else 0,
        checked_at=now,
        watchdog=StalledCheckState(around.watchdog_seen_at, around.stalled_interval, around.watchdog_is_dead, recovers),
        error=post.found_error,
        holders=post.holders(),
        outlook=outlook_of_queue((one.kind, outlook) for one, outlook in ahead if one.kind.is_lost),
    )
