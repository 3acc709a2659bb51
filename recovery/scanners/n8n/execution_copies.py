"""Copies the data of n8n's executions at risk before n8n overwrites it, and follows what becomes of each.

1. Active jobs of n8n's queues get the verdicts that every page shows. 2. Those with a late lock, or without their
worker, or gone before their execution has ended, are at risk: their executions are read, and what they would need to
run again is copied once. 3. What was noticed before is read again: an execution that ended well is forgotten with its
copy; one that n8n has failed and overwritten was lost. One whose lock is renewed again keeps its copy until it has
ended, and is in no list.

It writes into the database of the console alone. Cost of a look: three round trips a thousand active jobs, a statement
for those at risk, and for each new one a read of its data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from recovery.backends.bull import n8n_jobs
from recovery.config import N8nInstallation
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.executions import LOST_ENDS, Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.lost_executions import AT_RISK, LostExecutionOutcome, LostExecutionRecord
from recovery.domain.queues.types import Snapshot
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.stuck.types import StuckJob, Verdict, VerdictKind
from recovery.domain.time_units import HOUR, MINUTE
from recovery.errors import AccessDenied, QueueMissing, StatementRefused, StoreError, Unsupported
from recovery.n8n import copy_store as copies
from recovery.n8n import lost_executions, queue_reader
from recovery.n8n.copy_store import ExecutionAtRisk
from recovery.n8n.database import executions, run_data, run_data_inspection, schema
from recovery.n8n.database.schema import N8nTables
from recovery.reads.queues.job_lists import locate
from recovery.reads.stuck import queries as stuck_queries
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

EVERY = 5.0  # seconds: n8n renews a lock every 10, and a late one has tens of seconds left
AFTER = 4.5  # seconds: the first snapshot knows the workers by then
ACTIVE_LIMIT = 5_000  # active jobs of a queue that are looked at
FOLLOWED = 2_000  # executions followed at the same time
FOLLOWED_FOR = HOUR  # after one was lost: a worker that was frozen may still end it, and somebody may retry it in n8n
NOTICED = 200  # executions copied by one look: the others by the next, seconds later
_RETRIES_EVERY = MINUTE
_PRUNE_EVERY = MINUTE
_TOKEN = 8  # characters of a lock's token that tell workers apart
_NOT_READABLE = "Our user may not read the data of n8n's executions: GRANT SELECT on it (docs/n8n.md)."
_TOO_LARGE = "Its data has {size:,} KiB, more than [n8n.copies] megabytes_each allows."
_ELSEWHERE = "n8n does not keep its data in this database."
_DELETED = "n8n has deleted the execution."
_NOTHING = "n8n had nothing of it that could run again."

log = logging.getLogger(__name__)


class ExecutionCopyWatch:
    """Copies executions at risk for the leader. For one thread at a time."""

    def __init__(
        self, registry: ConnectionRegistry, newest: Callable[[], Snapshot | None], may: May = always_leader
    ) -> None:
        self._registry = registry
        self._newest = newest
        self._may = may
        self._retries_at: dict[str, int] = {}
        self._pruned_at: dict[str, int] = {}
        self._active: dict[str, Mapping[str, N8nJob]] = {}  # by installation: what the look before found active

    def run(self, now: int) -> None:
        """Checks each n8n with a database; one that does not answer is skipped. Raises Error of the own database."""
        for n8n in self._registry.config.n8n:
            if not n8n.database:
                continue
            try:
                self._look(n8n, now)
            except (StoreError, Unsupported) as error:
                log.info("%s: executions at risk are not known: %s", n8n.name, error)

    def _look(self, n8n: N8nInstallation, now: int) -> None:
        snapshot = self._newest()
        jobs = _active(self._registry, n8n, snapshot, now)
        gone = {id: claim for id, claim in self._active.get(n8n.name, {}).items() if id not in jobs.active}
        known = lost_executions.open_and_recent(n8n.name, now - FOLLOWED_FOR, FOLLOWED)
        if not self._may():
            return
        if jobs.risks or gone or known:
            look = _Look(self._registry, n8n, now, jobs)
            look.follow(known)
            look.take_new(known, jobs.risks)
            look.take_gone(known, gone)
            if self._is_due(self._retries_at, n8n, _RETRIES_EVERY, now):
                look.find_retries(known)
        self._active[n8n.name] = jobs.active  # after a look that failed its jobs are compared once more
        if self._is_due(self._pruned_at, n8n, _PRUNE_EVERY, now):
            copies.prune(n8n.name, n8n.copies, now)

    @staticmethod
    def _is_due(last: dict[str, int], n8n: N8nInstallation, every: int, now: int) -> bool:
        if now - last.get(n8n.name, 0) < every:
            return False
        last[n8n.name] = now
        return True


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Active jobs by their execution: those at risk, and all others."""

    active: Mapping[str, N8nJob]
    risks: Mapping[str, ExecutionAtRisk]
    held: frozenset[str]


class _Look:
    """A pass over one n8n installation."""

    def __init__(self, registry: ConnectionRegistry, n8n: N8nInstallation, now: int, jobs: _Jobs) -> None:
        self._n8n, self._now, self._jobs = n8n, now, jobs
        self._wire: SqlClient = as_sql_client(registry.wire(n8n.database))
        self._tables: N8nTables = schema.cached_tables(self._wire, n8n)

    def take_gone(self, known: Iterable[LostExecutionRecord], gone: Mapping[str, N8nJob]) -> None:
        """Copies executions whose job was active at the previous pass and is gone although they have not ended.

        A worker writes the end of an execution before it ends the job: a stalled check was faster than our looks. n8n
        2.41 waits half a minute before it overwrites the data. It proves nothing of the worker: Redis may have been
        flushed.
        """
        if self._tables.release is N8nRelease.TWO:
            self.take_new(known, {id: _risk(claim, None, None, self._now) for id, claim in gone.items()})

    def take_new(self, known: Iterable[LostExecutionRecord], at_risk: Mapping[str, ExecutionAtRisk]) -> None:
        """Begins the history of executions that are newly at risk, and copies their data."""
        before = {(loss.execution, loss.job) for loss in known}
        risks = [(id, risk) for id, risk in at_risk.items() if (id, risk.job) not in before]
        found = executions.fetch_by_ids(self._wire, self._tables, [id for id, _ in risks])
        going = [(risk, found[id]) for id, risk in risks if id in found and _is_going(found[id])][:NOTICED]
        titles = executions.titles(self._wire, self._tables, {execution.workflow for _, execution in going})
        for risk, execution in going:
            title = titles.get(execution.workflow, "")
            number = copies.record_loss(self._n8n.name, risk, execution, title, self._now)
            self._copy(number, execution)

    def follow(self, known: Iterable[LostExecutionRecord]) -> None:
        """Writes down what became of those noticed before."""
        listed = list(known)
        found = executions.fetch_by_ids(self._wire, self._tables, [loss.execution for loss in listed])
        for loss in listed:
            self._follow(loss, found.get(loss.execution))

    def find_retries(self, known: Iterable[LostExecutionRecord]) -> None:
        """Finds lost executions that run again: by n8n's own retry, or by a rescue whose answer was lost."""
        found = {loss.execution: loss for loss in known if loss.outcome is not LostExecutionOutcome.HELD}
        workflows = {id: loss.workflow for id, loss in found.items()}
        for id, made in executions.first_retries(self._wire, self._tables, workflows).items():
            is_late = found[id].outcome is LostExecutionOutcome.LOST
            outcome = LostExecutionOutcome.RETRIED if is_late else LostExecutionOutcome.RESCUED
            copies.record_outcome(found[id], outcome, self._now, retried_as=made)

    def _copy(self, number: int, execution: Execution) -> None:
        if trouble := self._copied(number, execution):
            copies.explain(number, trouble)

    def _copied(self, number: int, execution: Execution) -> str:
        """Copies the data of an execution; returns why that was not possible, "" if there is a copy."""
        limits = self._n8n.copies
        if not limits.is_on:
            return copies.OFF
        try:
            found = run_data.read(self._wire, self._n8n, execution.id, limits.each)
        except (AccessDenied, StatementRefused):
            return _NOT_READABLE
        if found is None:
            return _ELSEWHERE
        if not found.text:
            return _TOO_LARGE.format(size=found.size // 1024)
        if run_data_inspection.has_stack(found.text) is False:
            return _NOTHING
        return copies.save_copy(number, self._n8n.name, execution.id, found.text, limits, now=self._now)

    def _follow(self, loss: LostExecutionRecord, execution: Execution | None) -> None:
        risk = self._jobs.risks.get(loss.execution)
        if execution is None or not execution.is_there:
            self._gone(loss)
        elif loss.outcome is LostExecutionOutcome.LOST:
            if execution.status in (ExecutionStatus.SUCCESS, ExecutionStatus.WARNING):
                copies.forget([loss.number])  # its worker was only frozen
        elif _is_going(execution):
            self._still_going(loss, execution, risk)
        elif execution.status in LOST_ENDS and self._is_lost(execution):
            copies.record_outcome(loss, LostExecutionOutcome.LOST, self._now)
        else:
            copies.forget([loss.number])

    def _still_going(self, loss: LostExecutionRecord, execution: Execution, risk: ExecutionAtRisk | None) -> None:
        if not loss.has_copy and not loss.copy_trouble:
            self._copy(loss.number, execution)  # the database did not answer at the first look
        if risk is not None and risk.job == loss.job:
            copies.update(loss, risk, execution, self._now)
        elif loss.execution in self._jobs.held:
            copies.mark_worker_alive(loss)
        else:
            copies.mark_job_gone(loss, self._now)

    def _is_lost(self, execution: Execution) -> bool:
        """Returns True if a failed execution was overwritten by n8n, or if that is unknown.

        An error at one of its nodes leaves what a retry needs.
        """
        if execution.status is ExecutionStatus.CRASHED:
            return True
        return run_data.is_overwritten(self._wire, self._n8n, execution.id) is not False

    def _gone(self, loss: LostExecutionRecord) -> None:
        """Closes the history of an execution that n8n has deleted: nothing is left to restore.

        n8n does so with failed executions that its settings do not save.
        """
        if loss.outcome is LostExecutionOutcome.AT_RISK and not loss.is_proven:
            copies.forget([loss.number])
            return
        copies.record_outcome(loss, LostExecutionOutcome.LOST, self._now)
        copies.drop([loss.number], _DELETED)


def _is_going(execution: Execution) -> bool:
    return execution.is_there and execution.status.is_going


def _active(registry: ConnectionRegistry, n8n: N8nInstallation, snapshot: Snapshot | None, now: int) -> _Jobs:
    wire = registry.wire(n8n.queue.deployment)
    active, risks, held = dict[str, N8nJob](), dict[str, ExecutionAtRisk](), set[str]()
    inbox = stuck_queries.newest_inbox()
    listed = {row.job: row for row in inbox.rows if row.has_job} if inbox else {}
    for ref in queue_reader.refs(n8n, snapshot):
        found = {claim.job: claim for claim in n8n_jobs.active(wire, ref, ACTIVE_LIMIT) if claim.execution}
        verdicts = _verdicts(registry, ref, found, snapshot, now) if found else {}
        active |= {claim.execution: claim for claim in found.values()}
        for job, claim in found.items():
            verdict = verdicts.get(job.id)
            if verdict is not None and verdict.of_lock in AT_RISK:
                risks[claim.execution] = _risk(claim, verdict, listed.get(job), now)
            elif verdict is not None and claim.is_locked:
                held.add(claim.execution)
    return _Jobs(active, risks, frozenset(held))


def _verdicts(
    registry: ConnectionRegistry, ref: QueueRef, jobs: Iterable[JobRef], snapshot: Snapshot | None, now: int
) -> Mapping[str, Verdict]:
    try:
        queue = locate(ref, snapshot)
    except QueueMissing:
        return {}
    rows = queue.rows([(job.id, JobState.ACTIVE) for job in jobs])
    there = tuple(row for row in rows if row is not None and row.state is JobState.ACTIVE)
    return stuck_queries.verdicts_of_rows(queue, there, snapshot, now, config=registry.config)


def _risk(claim: N8nJob, verdict: Verdict | None, row: StuckJob | None, now: int) -> ExecutionAtRisk:
    """Returns the risk of one active job's execution. `verdict` None: the job is gone."""
    lock = claim.lock
    known = (row.server or row.holder if row else "") or claim.holder
    worker = known or (f"lock {lock.token[:_TOKEN]}" if lock else "")
    return ExecutionAtRisk(
        job=claim.job,
        verdict=verdict.of_lock if verdict else VerdictKind.LATE,
        lock_ends_at=now + lock.ttl if verdict and lock and lock.ttl is not None else None,
        worker=worker,
        cause=verdict.cause.value if verdict else "",
    )
