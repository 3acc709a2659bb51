"""Updates the incidents of a job table after each pass: keeps those of lost rows, and resolves the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recovery.backends.job_tables.operator import ORPHANED
from recovery.backends.job_tables.reader import TableReader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.stuck.types import StuckJob
from recovery.reads.stuck import incidents
from recovery.reads.stuck.queries import job_fingerprint
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
