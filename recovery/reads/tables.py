"""Treats job tables as queues: their flavour from the configuration, the terms of verdicts, and verdicts on rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recovery.config import Config, Engine, Table
from recovery.connections.sql import SqlWire
from recovery.domain import row_verdicts
from recovery.domain.counts import Flavour, Library
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import QueueRef
from recovery.domain.rescuers import Armed
from recovery.domain.row_verdicts import Terms
from recovery.domain.verdicts import Verdict
from recovery.reads import incidents

ENGINES = {Engine.POSTGRESQL: "PostgreSQL", Engine.MYSQL: "MySQL or MariaDB", Engine.SQLITE: "SQLite"}
_READ_ONLY = "The database is configured to be read only."


def is_table(config: Config, ref: QueueRef) -> bool:
    return config.table(ref.deployment, ref.base) is not None


def flavour(wire: SqlWire, table: Table) -> Flavour:
    """Returns the flavour of a job table, from the configuration alone."""
    columns = table.columns
    evidence = [f"From [[tables]] of the configuration: {table.table} in {wire.target}."]
    evidence.append(f"The state of a row is in its column {columns.state}.")
    evidence.append(_sign(table))
    return Flavour(Library.TABLE, evidence=tuple(evidence), read_only=_READ_ONLY if wire.database.read_only else "")


def _sign(table: Table) -> str:
    columns = table.columns
    signs = [f"its lease in {columns.lease_until}"] if columns.lease_until else []
    signs += [f"its heartbeat in {columns.heartbeat}"] if columns.heartbeat else []
    signs += [f"its age since {columns.started_at}"] if table.age_limit is not None else []
    if not signs:
        return "A row does not show whether a worker runs it."
    return f"Signs that a worker runs a row: {', else '.join(signs)}."


def terms(config: Config, ref: QueueRef, now: int, sweep: Armed | None, *, lost: int = 0) -> Terms:
    """Returns the terms of verdicts. `sweep`: the startup sweep if it acts here; `lost`: the number of lost rows."""
    table = config.table(ref.deployment, ref.base)
    overdue_after = config.thresholds_of(ref.deployment, ref.base).overdue_after
    if table is None:
        return Terms(now, overdue_after=overdue_after)
    return Terms(
        now=now,
        lease_grace=table.lease_grace,
        heartbeat_limit=table.heartbeat_limit,
        age_limit=table.age_limit,
        overdue_after=overdue_after,
        sweep=sweep,
        lost=lost,
        counts_attempts=bool(table.columns.attempts),
    )


def of_rows(
    rows: Sequence[JobRow], terms: Terms, *, orphaned: Mapping[str, int], breaks: Mapping[str, str]
) -> dict[str, Verdict]:
    """Returns a verdict for every running row, by id. Evidence from all rows of one owner counts for each of them."""
    running = [row for row in rows if row.state is State.ACTIVE]
    owned: dict[str, list[JobRow]] = {}
    for row in running:
        owned.setdefault(row.worker, []).append(row)
    return {
        row.id: row_verdicts.verdict(
            row,
            terms,
            owned=owned[row.worker],
            orphaned=orphaned.get(row.id, 0),
            breaks=breaks.get(row.id, ""),
        )
        for row in running
    }


def lost(rows: Iterable[JobRow]) -> list[JobRow]:
    """Returns the running rows that no worker holds any more."""
    return [row for row in rows if row.state is State.ACTIVE and row.lock is None and row.lock_known]


def orphaned(ref: QueueRef, rows: Iterable[JobRow], now: int, *, insists: bool = False) -> Mapping[str, int]:
    """Counts how often the lost rows were orphaned before."""
    return incidents.suffered_before(ref, [row.id for row in lost(rows)], now, insists=insists)
