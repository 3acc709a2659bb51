"""Locks rows of executions while an action changes their jobs, so that the executions stay as they are.

A worker that ends one meanwhile waits for us, some milliseconds; or we wait for it, and then see that it has ended. In
a database that we may only read they are read at the last moment, without a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from recovery.domain.n8n.executions import Execution
from recovery.n8n.database import executions
from recovery.n8n.database.schema import N8nTables
from recovery.stores.sql.sql_client import SqlClient


@contextmanager
def locked_executions(wire: SqlClient, tables: N8nTables, ids: Iterable[str]) -> Iterator[dict[str, Execution]]:
    """Yields the executions by id, without those that are not in the database. Raises StoreError, and then nothing was
    locked.
    """
    wanted = list(ids)
    if not can_hold(wire, tables):
        yield executions.fetch_by_ids(wire, tables, wanted)
        return
    with wire.session() as session, session.transaction():
        yield executions.lock_executions(session, tables, wanted)


def can_hold(wire: SqlClient, tables: N8nTables) -> bool:
    """Returns True if our user may lock rows, which takes the right to change them."""
    return not wire.database.read_only and not tables.read_only and "status" in tables.writable
