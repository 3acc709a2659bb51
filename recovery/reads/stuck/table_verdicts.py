"""Treats job tables as queues: their flavour from the configuration, the terms of verdicts, and verdicts on rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recovery.config import Config, Engine, JobTable
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.policies.enabled_scanners import EnabledScanner
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck import job_table_rules
from recovery.domain.stuck.job_table_rules import JobTableLimits
from recovery.domain.stuck.types import Verdict
from recovery.reads.stuck import incidents
from recovery.stores.sql.sql_client import SqlClient

ENGINES = {Engine.POSTGRESQL: "PostgreSQL", Engine.MYSQL: "MySQL or MariaDB", Engine.SQLITE: "SQLite"}
_READ_ONLY = "The database is configured to be read only."


def is_table(config: Config, ref: QueueRef) -> bool:
    return config.table(ref.deployment, ref.base) is not None


def flavour(wire: SqlClient, table: JobTable) -> LibraryVersion:
    """Returns the flavour of a job table, from the configuration alone."""
    columns = table.columns
    evidence = [f"From [[tables]] of the configuration: {table.table} in {wire.target}."]
    evidence.append(f"The state of a row is in its column {columns.state}.")
    evidence.append(_sign(table))
    return LibraryVersion(
        QueueLibrary.TABLE, evidence=tuple(evidence), read_only=_READ_ONLY if wire.database.read_only else ""
    )


def _sign(table: JobTable) -> str:
    columns = table.columns
    signs = [f"its lease in {columns.lease_until}"] if columns.lease_until else []
    signs += [f"its heartbeat in {columns.heartbeat}"] if columns.heartbeat else []
    signs += [f"its age since {columns.started_at}"] if table.age_limit is not None else []
    if not signs:
        return "A row does not show whether a worker runs it."
    return f"Signs that a worker runs a row: {', else '.join(signs)}."


def terms(config: Config, ref: QueueRef, now: int, sweep: EnabledScanner | None, *, lost: int = 0) -> JobTableLimits:
    """Returns the terms of verdicts. `sweep`: the startup sweep if it acts here; `lost`: the number of lost rows."""
    table = config.table(ref.deployment, ref.base)
    overdue_after = config.thresholds_of(ref.deployment, ref.base).overdue_after
    if table is None:
        return JobTableLimits(now, overdue_after=overdue_after)
    return JobTableLimits(
        now=now,
        lease_grace=table.lease_grace,
        heartbeat_limit=table.heartbeat_limit,
        age_limit=table.age_limit,
        overdue_after=overdue_after,
        sweep=sweep,
        lost=lost,
        counts_attempts=bool(table.columns.attempts),
    )


def verdicts_of_rows(
    rows: Sequence[JobRow], terms: JobTableLimits, *, orphaned: Mapping[str, int], breaks: Mapping[str, str]
) -> dict[str, Verdict]:
    """Returns a verdict for every running row, by id. Evidence from all rows of one owner counts for each of them."""
    running = [row for row in rows if row.state is JobState.ACTIVE]
    owned: dict[str, list[JobRow]] = {}
    for row in running:
        owned.setdefault(row.worker, []).append(row)
    return {
        row.id: job_table_rules.verdict_for_row(
            row,
            terms,
            owned=owned[row.worker],
            orphaned=orphaned.get(row.id, 0),
            breaks=breaks.get(row.id, ""),
        )
        for row in running
    }


def lost_rows(rows: Iterable[JobRow]) -> list[JobRow]:
    """Returns the running rows that no worker holds any more."""
    return [row for row in rows if row.state is JobState.ACTIVE and row.lock is None and row.lock_known]


def orphaned(ref: QueueRef, rows: Iterable[JobRow], now: int, *, insists: bool = False) -> Mapping[str, int]:
    """Counts how often the lost rows were orphaned before."""
    return incidents.known_orphan_counts(ref, [row.id for row in lost_rows(rows)], now, insists=insists)
