"""Whether n8n has kept anything of an execution that a retry could run.

What n8n writes when it fails an execution for a lost job holds the error and an empty stack; a retry of that ends at
once and has run nothing, and n8n calls it a good one. So it is looked at before. Of an execution's data nothing but
whether that stack is empty leaves this room.
"""

from __future__ import annotations

import json
from typing import Any

from recovery.config import N8n
from recovery.connections.sql import SqlWire
from recovery.errors import StoreError

LIMIT = 256 * 1024  # bytes: what was written over is some 2 KB, and a larger one is not worth its reading
_TABLE = "execution_data"


def has_start(wire: SqlWire, n8n: N8n, id: str) -> bool | None:
    """None when it cannot be told: too large, kept elsewhere, or not for our eyes."""
    try:
        with wire.session() as session:
            table = session.quoted(f"{n8n.schema}.{n8n.table_prefix}{_TABLE}")
            chosen = f'SELECT CASE WHEN octet_length(data) <= %s THEN data END FROM {table} WHERE "executionId" = %s'  # noqa: S608
            rows = session.all(chosen, (LIMIT, int(id)))
    except StoreError:
        return None
    return judged(rows[0][0]) if rows and rows[0][0] is not None else None


def judged(written: str) -> bool | None:
    """`written` is flat: a list, in which a value that is a text is the number of another one."""
    try:
        flat = json.loads(written)
        run = _behind(flat, flat[0], "executionData")
        return bool(run) and any(_behind(flat, run, name) for name in ("nodeExecutionStack", "waitingExecution"))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _behind(flat: list[Any], value: dict[str, Any], name: str) -> Any:
    place = value.get(name)
    return None if place is None else flat[int(place)]
