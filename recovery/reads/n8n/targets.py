"""Makes executions of n8n targets of actions: an execution may have no job, and is addressed all the same.

It is written as a job of a queue that does not exist, `main/n8n.executions#4711`, so that previews, actions and the
audit treat it like any job.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.config import N8n
from recovery.connections.registry import Registry
from recovery.connections.sql import SqlWire, of
from recovery.domain.counts import Flavour, Library
from recovery.domain.jobs import JobRow
from recovery.domain.n8n.standing import row_of
from recovery.domain.refs import QueueRef
from recovery.errors import QueueMissing, Unsupported
from recovery.n8n import executions, tables
from recovery.n8n.tables import Tables

FLAVOUR = Flavour(Library.N8N)
_LAST = 2**31 - 1


def installation(registry: Registry, ref: QueueRef) -> N8n:
    """Raises QueueMissing."""
    found = registry.config.n8n_with(ref)
    if found is None:
        raise QueueMissing(f"No configured n8n has the executions {ref.label}.")
    return found


def database(registry: Registry, n8n: N8n) -> tuple[SqlWire, Tables]:
    """Raises Unsupported when there is none, or it is not as any n8n makes it; StoreError."""
    if not n8n.database:
        raise Unsupported("[[n8n]] has no database, so its executions are unknown.")
    wire = of(registry.wire(n8n.database))
    return wire, tables.learned(wire, n8n)


def rows(registry: Registry, ref: QueueRef, ids: Sequence[str]) -> tuple[JobRow | None, ...]:
    """Raises QueueMissing, Unsupported, StoreError."""
    wire, known = database(registry, installation(registry, ref))
    found = executions.of_ids(wire, known, [id for id in ids if is_id(id)])
    return tuple(row_of(ref, found[id]) if id in found and found[id].is_there else None for id in ids)


def is_id(written: str) -> bool:
    """Returns True for a number as n8n writes the ids of executions."""
    is_plain = written.isascii() and written.isdigit() and len(written) <= len(str(_LAST))
    return is_plain and not written.startswith("0") and int(written) <= _LAST
