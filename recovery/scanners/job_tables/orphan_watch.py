"""Runs the orphan watch on the job tables of one database: assesses running rows, opens and closes incidents.

A row holds all that has to be known of it, so only what is slow to read is remembered between two passes. Tables that
do not answer keep what was found last, marked; none of their incidents is closed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db import Error

from recovery.backends.job_tables import running_rows
from recovery.backends.job_tables.operator import ORPHANED
from recovery.backends.job_tables.reader import TableReader
from recovery.config import Config, Database
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.queues.types import QueueSample, Snapshot
from recovery.domain.scanners.blockers import Blocker, ScannerBlock
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.job_table_rules import JobTableLimits, lost_since
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.stuck.types import StuckJob, Verdict, VerdictKind
from recovery.errors import StoreError, Unreachable
from recovery.reads.queues.job_lists import Queue
from recovery.reads.queues.payloads import data_of
from recovery.reads.scanners.forecast import ScannerForecast
from recovery.reads.stuck import incidents, payload_schemas, table_verdicts
from recovery.reads.stuck.queries import job_fingerprint
from recovery.scanners.orphan_watch.deployment_watch import DeploymentFindings
from recovery.scanners.orphan_watch.incident_store import IncidentJob, IncidentStore, OpenIncident
from recovery.scanners.orphan_watch.resolution import (
    NOBODY_KNOWN,
    REMOVED,
    STALLED_CHECK,
    WORKER,
    IncidentResolution,
    UnresolvedJob,
    find_actions,
)
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import ConnectionRegistry

# -- incident sync
# Updates the incidents of a job table after each pass: keeps those of lost rows, and resolves the others.


RESOLVED = 2_000  # incidents resolved by one pass: one statement


@dataclass(frozen=True, slots=True)
class TableAccess:
    """Job table with its connection and its reader."""

    wire: StoreClient
    ref: QueueRef
    reader: TableReader


class TableIncidentSync:
    def __init__(self, book: IncidentStore) -> None:
        self._book = book

    def has(self, ref: QueueRef) -> bool:
        return bool(self._book.cases(ref))

    def forget(self) -> None:
        self._book.forget()

    def settle(self, table: TableAccess, lines: tuple[StuckJob, ...], now: int) -> tuple[StuckJob, ...]:
        """Updates incidents; returns the rows with their numbers. Raises StoreError, and Error of the database."""
        ref, lost = table.ref, {line.job.id: line for line in lines if line.verdict.of_lock.is_lost}
        if lost:
            verdicts = {id: line.verdict for id, line in lost.items()}
            self._book.keep(ref, [_seen(line, now) for line in lost.values()], verdicts, now)
        if missing := self._book.miss(ref, lost, now):
            self._book.close(ref, _ends(table, missing, now), now)
        numbers = incidents.open_numbers(ref, list(lost)) if lost else {}
        return tuple(replace(line, incident=numbers.get(line.job.id)) for line in lines)


def _seen(line: StuckJob, now: int) -> IncidentJob:
    assert line.row is not None  # noqa: S101 -- every line of a table has its row
    return IncidentJob(line.job.id, now, line.verdict.of_lock, job_fingerprint(line.row), line.name, line.holder)


def _ends(table: TableAccess, missing: Mapping[str, OpenIncident], now: int) -> dict[str, IncidentResolution]:
    """Returns the resolutions: first by our own actions, of which one under way is waited for, then by the rows."""
    gone = [UnresolvedJob(id, case.opened_at, case.signature) for id, case in missing.items()][:RESOLVED]
    done = find_actions(table.ref, gone, now)
    rest = [one for one in gone if one.id not in done]
    return {id: end for id, end in done.items() if end is not None} | _by_themselves(table, rest)


def _by_themselves(table: TableAccess, rest: Sequence[UnresolvedJob]) -> dict[str, IncidentResolution]:
    if not rest:
        return {}
    rows = table.reader.rows(table.wire, table.ref, [(one.id, JobState.UNKNOWN) for one in rest])
    return {one.id: IncidentResolution(_by(one, row)) for one, row in zip(rest, rows, strict=True)}


def _by(lost: UnresolvedJob, row: JobRow | None) -> str:
    """Returns who resolved it by its row; a startup sweep by a worker leaves a note in the row and no other trace."""
    if row is None:
        return REMOVED
    if row.state is not JobState.ACTIVE and row.reason.startswith(ORPHANED):
        return STALLED_CHECK
    if row.state.is_finished:
        return WORKER
    started_at, _, attempts, _ = lost.signature or (row.processed_at, None, row.attempts, 0)
    is_same = row.state is JobState.ACTIVE and (row.processed_at, row.attempts) == (started_at, attempts)
    return WORKER if is_same else NOBODY_KNOWN


# -- orphan watch


LIMIT = running_rows.LIMIT
REST = 20  # times as long as a pass took, until the next one: as for the snapshot
LONGEST = 60_000  # ms
SHAPES = 200  # jobs of one pass whose data is checked against a schema


@dataclass(frozen=True, slots=True)
class _Part:
    """Result of the last pass over one table."""

    rows: tuple[StuckJob, ...]
    tally: StuckTally
    due_at: int = 0


class TableOrphanWatch:
    def __init__(self, registry: ConnectionRegistry, database: Database, incident_store: IncidentStore | None) -> None:
        self.name = database.name
        self._registry = registry
        self._cases = TableIncidentSync(incident_store) if incident_store else None
        self._reader = TableReader()
        self._parts: dict[QueueRef, _Part] = {}
        self._faults: list[str] = []

    def look(self, snapshot: Snapshot, now: int) -> DeploymentFindings:
        deployment = snapshot.deployment(self.name)
        error = deployment.error if deployment else "it is not in the snapshot"
        self._faults = []
        if error:
            return self._blind(error)
        samples = [sample for sample in snapshot.queues if sample.ref.deployment == self.name]
        self._parts = {ref: part for ref, part in self._parts.items() if any(one.ref == ref for one in samples)}
        lookout = ScannerForecast(self._registry, now, snapshot)
        try:
            for sample in samples:
                self._table(sample, lookout, now)
        except Unreachable as caught:
            return self._blind(caught.reason)
        return self._found()

    def _found(self) -> DeploymentFindings:
        parts = self._parts.values()
        tallies = tuple(part.tally for part in parts if part.tally.looked or part.tally.error)
        return DeploymentFindings(
            tuple(row for part in parts for row in part.rows), tallies, tuple(dict.fromkeys(self._faults))
        )

    def _blind(self, error: str) -> DeploymentFindings:
        found = self._found()
        fault = f"{self.name} cannot be read: {error}. The last known state is kept."
        silent = ScannerBlock(Blocker.SILENT, self.name, error).clause
        last = StuckInbox(0, found.rows, found.tallies).unpromised(silent)
        marked = tuple(replace(tally, error=error) for tally in last.queues)
        return replace(found, rows=last.rows, tallies=marked, faults=(*found.faults, fault))

    def _table(self, sample: QueueSample, lookout: ScannerForecast, now: int) -> None:
        ref, before = sample.ref, self._parts.get(sample.ref)
        if before and now < before.due_at <= now + LONGEST:
            return
        if sample.error:
            self._keep(ref, sample.error)
            return
        if not sample.counts.active and not (before and before.tally.looked) and not self._has_cases(ref):
            self._parts[ref] = _Part((), StuckTally(ref, checked_at=now))
            return
        began = time.perf_counter()
        try:
            part = self._looked(sample, table_verdicts.terms(self._registry.config, ref, now, lookout.sweep(ref)))
        except Unreachable:
            raise
        except StoreError as error:  # of this table alone
            self._keep(ref, error.reason)
            return
        took = (time.perf_counter() - began) * 1000
        self._parts[ref] = replace(part, due_at=now + min(LONGEST, round(REST * took)))

    def _has_cases(self, ref: QueueRef) -> bool:
        return bool(self._cases and self._cases.has(ref))

    def _keep(self, ref: QueueRef, error: str) -> None:
        """Keeps the last result, marked with the error."""
        before = self._parts.get(ref, _Part((), StuckTally(ref)))
        self._parts[ref] = _Part(before.rows, replace(before.tally, error=error))

    def _looked(self, sample: QueueSample, terms: JobTableLimits) -> _Part:
        ref, wire, config = sample.ref, self._registry.wire(self.name), self._registry.config
        rows = running_rows.read_running(wire, ref)
        lost = table_verdicts.lost_rows(rows)
        terms = replace(terms, lost=len(lost))
        said = table_verdicts.verdicts_of_rows(
            rows,
            terms,
            orphaned=table_verdicts.orphaned(ref, lost, terms.now),
            breaks=self._breaks(config, sample, lost),
        )
        lines = tuple(_line(row, said[row.id], terms) for row in rows if said[row.id].urgency)
        lines = self._settle(TableAccess(wire, ref, self._reader), lines, terms.now)
        return _Part(lines, _tally(ref, rows, said, sample, terms))

    def _settle(self, table: TableAccess, lines: tuple[StuckJob, ...], now: int) -> tuple[StuckJob, ...]:
        """Opens and closes incidents; returns the rows with their numbers. A failed write is reported as a fault."""
        if self._cases is None:
            return lines
        try:
            return self._cases.settle(table, lines, now)
        except Error as error:
            self._cases.forget()
            self._faults.append(f"Incidents cannot be written: {type(error).__name__}.")
            return lines

    def _breaks(self, config: Config, sample: QueueSample, lost: Sequence[JobRow]) -> Mapping[str, str]:
        schema = config.schema_of(sample.ref.deployment, sample.ref.base)
        if schema is None or not lost:
            return {}
        data = data_of(Queue(sample.ref, sample.flavour, sample), [row.id for row in lost[:SHAPES]])
        return {id: said for id, one in data.items() if (said := payload_schemas.describe_violation(schema, one))}


def _line(row: JobRow, verdict: Verdict, terms: JobTableLimits) -> StuckJob:
    started = row.processed_at or terms.now
    over = lost_since(row, terms)
    if over is None:
        over = started + (terms.overdue_after or 0) if verdict.kind is VerdictKind.OVERDUE else started
    return StuckJob(row.ref, row.name, verdict, min(over, terms.now), row.worker, row)


def _tally(
    ref: QueueRef, rows: Sequence[JobRow], said: Mapping[str, Verdict], sample: QueueSample, terms: JobTableLimits
) -> StuckTally:
    looked, active = len(rows), sample.counts.active
    beyond = 0 if looked < LIMIT or active is None else max(0, active - looked)
    return StuckTally(
        queue=ref,
        kinds=dict(Counter(verdict.kind for verdict in said.values())),
        people=sum(verdict.needs_a_person for verdict in said.values()),
        looked=looked,
        left_out=beyond,
        checked_at=terms.now,
        watchdog=_sweep(rows, terms),
        outlook=_outlook(said.values(), terms),
    )


def _outlook(said: Iterable[Verdict], terms: JobTableLimits) -> QueueOutlook:
    rescued = [verdict.until for verdict in said if verdict.rescuer and verdict.until is not None]
    if not rescued:
        return QueueOutlook(is_for_now=terms.sweep is not None and terms.sweep.ends is not None)
    return QueueOutlook(promised=len(rescued), until=max(rescued), by=PolicyScanner.STARTUP_SWEEP)


def _sweep(rows: Sequence[JobRow], terms: JobTableLimits) -> StalledCheckState:
    """Describes the startup sweep, which stands in for a library's stalled check, by the leases in the rows."""
    within = terms.swept_within
    if within is None:
        return StalledCheckState(is_dead=True)
    signs = [row.lock.ttl for row in rows if row.lock and row.lock.ttl]
    last = max(signs, default=terms.age_limit)
    return StalledCheckState(interval=within, recovers_within=None if last is None else last + within)
