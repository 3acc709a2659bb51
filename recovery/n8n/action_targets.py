"""Makes executions of n8n targets of actions: an execution may have no job, and is addressed all the same.

It is written as a job of a queue that does not exist, `main/n8n.executions#4711`, so that previews, actions and the
audit treat it like any job.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.config import N8nInstallation
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow
from recovery.domain.n8n.action_context import row_of
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import QueueMissing, Unsupported
from recovery.n8n.database import executions, schema
from recovery.n8n.database.schema import N8nTables
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

FLAVOUR = LibraryVersion(QueueLibrary.N8N)
_LAST = 2**31 - 1


def installation(registry: ConnectionRegistry, ref: QueueRef) -> N8nInstallation:
    """Raises QueueMissing."""
    found = registry.config.n8n_with(ref)
    if found is None:
        raise QueueMissing(f"No configured n8n has the executions {ref.label}.")
    return found


def database(registry: ConnectionRegistry, n8n: N8nInstallation) -> tuple[SqlClient, N8nTables]:
    """Raises Unsupported when there is none, or it is not as any n8n makes it; StoreError."""
    if not n8n.database:
        raise Unsupported("[[n8n]] has no database, so its executions are unknown.")
    wire = as_sql_client(registry.wire(n8n.database))
    return wire, schema.cached_tables(wire, n8n)


def rows(registry: ConnectionRegistry, ref: QueueRef, ids: Sequence[str]) -> tuple[JobRow | None, ...]:
    """Raises QueueMissing, Unsupported, StoreError."""
    wire, known = database(registry, installation(registry, ref))
    found = executions.fetch_by_ids(wire, known, [id for id in ids if is_id(id)])
    return tuple(row_of(ref, found[id]) if id in found and found[id].is_there else None for id in ids)


def is_id(written: str) -> bool:
    """Returns True for a number as n8n writes the ids of executions."""
    is_plain = written.isascii() and written.isdigit() and len(written) <= len(str(_LAST))
    return is_plain and not written.startswith("0") and int(written) <= _LAST
