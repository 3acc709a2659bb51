"""Finds out whether the user of a database may change the rows of a job table, without changing any."""

from __future__ import annotations

from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables.queries import TableContext
from recovery.config import Engine
from recovery.domain.identifiers import QueueRef
from recovery.errors import AccessDenied, ReadOnlyStore

# Every column that an action may write, as far as the table has it.
_WRITTEN = ("state", "attempts", "last_error", "started_at", "finished_at", "lease_until", "heartbeat", "owner")
_STANDBY = "cannot execute UPDATE in a read-only transaction"


def missing_permissions(wire: object, ref: QueueRef) -> str:
    """Returns what the database says that its user may not do; "" when it may do all of it. Raises StoreError."""
    with job_tables_queries.table_context(wire, ref) as context:
        try:
            return _tried(context)
        except (AccessDenied, ReadOnlyStore) as error:
            return error.reason


def _tried(context: TableContext) -> str:
    """Explains an UPDATE: a plan is refused like the statement, and fires no trigger; SQLite has to execute it."""
    columns = [name for role in _WRITTEN if (name := context.column(role))]
    statement = f"UPDATE {context.place} SET {', '.join(f'{name} = {name}' for name in columns)} WHERE 1 = 0"
    session = context.session
    if session.engine is Engine.SQLITE:
        with session.transaction():
            session.change(statement)
        return ""
    session.all(f"EXPLAIN {statement}")
    if session.engine is Engine.POSTGRESQL and session.all("SHOW transaction_read_only") == [("on",)]:
        return _STANDBY
    return ""
