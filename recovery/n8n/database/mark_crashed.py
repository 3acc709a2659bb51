"""Marks an execution as crashed if it is still as it was shown: one of the two statements that change n8n's rows.

Written as n8n's own recovery writes it (`markAsCrashed`): the status, when it stopped, and nothing to wait for.
"""

from __future__ import annotations

from recovery.domain.n8n.executions import GOING, Execution, ExecutionStatus
from recovery.n8n.database import executions
from recovery.n8n.database.schema import N8nTables
from recovery.stores.sql.sql_client import SqlClient

_WRITTEN = ("status", "stoppedAt", "waitTill")


def refusal(wire: SqlClient, tables: N8nTables) -> str:
    """Returns why it cannot be done here; "" when it can."""
    if wire.database.read_only:
        return "The database of n8n is configured to be read only."
    if tables.read_only:
        return tables.read_only
    missing = [name for name in _WRITTEN if name not in tables.writable]
    if missing:
        return f"Our user may not change {missing[0]} in n8n's executions: GRANT UPDATE on it (docs/n8n.md)."
    return ""


def mark(wire: SqlClient, tables: N8nTables, execution: Execution) -> Execution | None:
    """Marks the execution as crashed; returns None on success, else the row as it is now. Raises StoreError,
    JobMissing.

    A worker that has just written how it ended has the last word: then no row is found.
    """
    words = ", ".join(f"'{one.value}'" for one in GOING)
    statement = (
        f"UPDATE {tables.executions} SET status = '{ExecutionStatus.CRASHED.value}',"  # noqa: S608
        ' "stoppedAt" = CURRENT_TIMESTAMP(3), "waitTill" = NULL'
        f" WHERE id = %s AND status = %s AND status IN ({words}) AND finished IS NOT TRUE"
        f" AND {executions.ms('startedAt')} IS NOT DISTINCT FROM %s"
    )
    seen = (int(execution.id), execution.status.value, execution.started_at)
    with wire.session() as session, session.transaction():
        session.change("SET LOCAL TIME ZONE 'UTC'")  # before n8n 1.5 its times have no zone
        changed = session.change(statement, seen)
    return (
        None if changed else executions.fetch_by_ids(wire, tables, [execution.id]).get(execution.id, _gone(execution))
    )


def _gone(execution: Execution) -> Execution:
    return Execution(execution.id, execution.workflow, execution.mode, execution.status, is_deleted=True)
