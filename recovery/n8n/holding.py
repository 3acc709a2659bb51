"""Locks rows of executions while an action changes their jobs, so that the executions stay as they are.

A worker that ends one meanwhile waits for us, some milliseconds; or we wait for it, and then see that it has ended. In
a database that we may only read they are read at the last moment, without a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from recovery.connections.sql import SqlWire
from recovery.domain.n8n.executions import Execution
from recovery.n8n import executions
from recovery.n8n.tables import Tables


@contextmanager
def held(wire: SqlWire, tables: Tables, ids: Iterable[str]) -> Iterator[dict[str, Execution]]:
    """Yields the executions by id, without those that are not in the database. Raises StoreError, and then nothing was
    locked.
    """
    wanted = list(ids)
    if not can_hold(wire, tables):
        yield executions.of_ids(wire, tables, wanted)
        return
    with wire.session() as session, session.transaction():
        yield executions.held(session, tables, wanted)


def can_hold(wire: SqlWire, tables: Tables) -> bool:
    """Returns True if our user may lock rows, which takes the right to change them."""
    return not wire.database.read_only and not tables.read_only and "status" in tables.writable
