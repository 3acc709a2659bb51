"""Reads the data that n8n runs an execution from (`execution_data.data`) for a copy, and writes it back from one.

n8n's retry reads nothing else of it: it takes `data` and `workflowData` of the old execution, and begins where the
stack in `data` begins. When main ends an execution for a lost job it writes `data` anew, without that stack, and leaves
`workflowData` as it is; so `data` alone is copied, and written back.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.config import N8nInstallation
from recovery.domain.n8n.executions import LOST_ENDS, Execution
from recovery.errors import AccessDenied, StatementRefused
from recovery.n8n.database import executions, run_data_inspection
from recovery.n8n.database.schema import N8nTables
from recovery.stores.sql.sql_client import SqlClient, SqlSession

_TABLE = "execution_data"
_RIGHTS = """
SELECT pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'UPDATE')
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v') AND a.attname = 'data'
"""


@dataclass(frozen=True, slots=True)
class RunData:
    """Data of one execution. `text` "": there is none, or it was left out because of its size."""

    size: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class DataRights:
    """Rights of our user on the column; neither if there is no such table."""

    may_read: bool = False
    may_write: bool = False


def rights(wire: SqlClient, n8n: N8nInstallation) -> DataRights:
    """Raises StoreError."""
    with wire.session() as session:
        found = session.all(_RIGHTS, (n8n.schema, n8n.table_prefix + _TABLE))
    return DataRights(*found[0]) if found else DataRights()


def refusal(wire: SqlClient, tables: N8nTables, n8n: N8nInstallation) -> str:
    """Returns why a copy cannot be written back here; "" when it can. Raises StoreError."""
    return refusal_by_rights(wire, tables, rights(wire, n8n))


def refusal_by_rights(wire: SqlClient, tables: N8nTables, known: DataRights) -> str:
    """Returns the same as `refusal`, from rights that were read before."""
    if wire.database.read_only:
        return "The database of n8n is configured to be read only."
    if tables.read_only:
        return tables.read_only
    if "status" not in tables.writable:
        return "Our user may not lock n8n's executions: GRANT UPDATE (status) on them (docs/n8n.md)."
    if not known.may_write:
        return "Our user may not write the data of n8n's executions: GRANT UPDATE (data) on it (docs/n8n.md)."
    return ""


def read(wire: SqlClient, n8n: N8nInstallation, id: str, most: int) -> RunData | None:
    """Returns the data; None if n8n keeps none of it in its database. Raises StoreError."""
    with wire.session() as session:
        chosen = (
            "SELECT octet_length(data), CASE WHEN octet_length(data) <= %s THEN data END"  # noqa: S608
            f' FROM {_name(session, n8n)} WHERE "executionId" = %s'
        )
        rows = session.all(chosen, (most, int(id)))
    if not rows or rows[0][0] is None:
        return None
    size, text = rows[0]
    return RunData(int(size), text or "")


def is_overwritten(wire: SqlClient, n8n: N8nInstallation, id: str) -> bool | None:
    """Returns True if nothing is left that could run; None if unknown. What n8n writes over it is some 2 KB."""
    try:
        found = read(wire, n8n, id, run_data_inspection.LIMIT)
    except (AccessDenied, StatementRefused):
        return None
    if found is None:
        return None
    if not found.text:
        return False
    has_start = run_data_inspection.has_stack(found.text)
    return None if has_start is None else not has_start


def restore(wire: SqlClient, tables: N8nTables, n8n: N8nInstallation, execution: Execution, text: str) -> str:
    """Writes a copy back; returns why it was refused, "" when it was done. Raises StoreError.

    The row is locked from the read until the write: it has to have ended as it was shown, and without anything left
    to run.
    """
    with wire.session() as session, session.transaction():
        now = executions.lock_executions(session, tables, [execution.id]).get(execution.id)
        if now is None or not now.is_there:
            return "There is no such execution (any more)."
        if now.status not in LOST_ENDS or (now.status, now.started_at) != (execution.status, execution.started_at):
            return f"It is {now.status} now."
        table = _name(session, n8n)
        chosen = f'SELECT data FROM {table} WHERE "executionId" = %s FOR UPDATE'  # noqa: S608
        rows = session.all(chosen, (int(execution.id),))
        if not rows:
            return "n8n has deleted its data."
        if len(rows[0][0]) > run_data_inspection.LIMIT or run_data_inspection.has_stack(rows[0][0]) is not False:
            return "n8n still has its data: retry it."
        session.change(f'UPDATE {table} SET data = %s WHERE "executionId" = %s', (text, int(execution.id)))  # noqa: S608
    return ""


def _name(session: SqlSession, n8n: N8nInstallation) -> str:
    return session.quoted(f"{n8n.schema}.{n8n.table_prefix}{_TABLE}")
