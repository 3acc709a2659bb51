"""Executions that stay as they are while something is done to their jobs: their rows are held for that moment.

A worker that ends one meanwhile waits for us, some milliseconds; or we for it, and then we see that it has ended. In a
database that we may only read they are read at the last moment, and nobody is held up.
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
    """By id; those that are not in the database are left out. Raises StoreError, and then nothing was held."""
    wanted = list(ids)
    if not can_hold(wire, tables):
        yield executions.of_ids(wire, tables, wanted)
        return
    with wire.session() as session, session.transaction():
        yield executions.held(session, tables, wanted)


def can_hold(wire: SqlWire, tables: Tables) -> bool:
    """To lock a row takes the right to change it."""
    return not wire.database.read_only and not tables.read_only and "status" in tables.writable
