"""Tells whether n8n has kept anything of an execution that a retry could run.

What n8n writes when it fails an execution for a lost job has the error and an empty stack; a retry of that ends at
once without running anything, and n8n counts it as a success. So the data is checked before. This module returns
nothing of an execution's data but whether that stack is empty, and which execution started it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from recovery.config import N8nInstallation
from recovery.errors import StoreError
from recovery.n8n.database.schema import DATA, N8nTables
from recovery.stores.sql.sql_client import SqlClient

LIMIT = 256 * 1024  # bytes: overwritten data is some 2 KB, and larger data is not worth reading
_ID = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
PARENTS_LIMIT = 500  # sub-workflows of a comparison whose parent is looked up
_BEGINNING = 8 * 1024  # characters: n8n writes the parent before anything that a step has made
_STEP = 100  # beginnings a statement


def has_start(wire: SqlClient, n8n: N8nInstallation, id: str) -> bool | None:
    """Returns whether a retry could run anything; None if unknown: too large, stored elsewhere, or not readable for our
    user.
    """
    try:
        with wire.session() as session:
            table = session.quoted(f"{n8n.schema}.{n8n.table_prefix}{DATA}")
            chosen = f'SELECT CASE WHEN octet_length(data) <= %s THEN data END FROM {table} WHERE "executionId" = %s'  # noqa: S608
            rows = session.all(chosen, (LIMIT, int(id)))
    except StoreError:
        return None
    return has_stack(rows[0][0]) if rows and rows[0][0] is not None else None


def parents(wire: SqlClient, tables: N8nTables, n8n: N8nInstallation, ids: Sequence[str]) -> dict[str, str]:
    """Returns the execution that started each of these sub-workflows, as n8n 1.98 and later stores it, for at most
    PARENTS_LIMIT of them; {} when our user may not read it. Raises StoreError.
    """
    found: dict[str, str] = {}
    wanted = [int(id) for id in ids[:PARENTS_LIMIT]] if tables.reads_data else []
    with wire.session() as session:
        table = session.quoted(f"{n8n.schema}.{n8n.table_prefix}{DATA}")
        chosen = f'SELECT "executionId", substr(data, 1, {_BEGINNING}) FROM {table} WHERE "executionId" = ANY(%s)'  # noqa: S608
        for start in range(0, len(wanted), _STEP):
            for id, beginning in session.all(chosen, (wanted[start : start + _STEP],)):
                if parent := parent_of(beginning or ""):
                    found[str(id)] = parent
    return found


def parent_of(beginning: str) -> str:
    """Returns the parent's id from the beginning of flat data (as in `judged`), cut anywhere; "" if it is not in it."""
    flat = _whole_values(beginning)
    try:
        parent = str(_behind(flat, _behind(flat, flat[0], "parentExecution"), "executionId"))
    except (ValueError, TypeError, LookupError, AttributeError):
        return ""
    return parent if _ID.fullmatch(parent) else ""


def _whole_values(beginning: str) -> list[Any]:
    """Returns the values of a JSON list up to where it is cut."""
    decoder, found, at = json.JSONDecoder(), list[Any](), 1
    try:
        while at < len(beginning):
            value, at = decoder.raw_decode(beginning, at)
            found.append(value)
            at += 1  # the comma
    except (ValueError, RecursionError):
        pass
    return found


def has_stack(written: str) -> bool | None:
    """Returns whether the execution stack holds anything. `written` is flat: a list in which a string value is the
    index of another one.
    """
    try:
        flat = json.loads(written)
        run = _behind(flat, flat[0], "executionData")
        return bool(run) and any(_behind(flat, run, name) for name in ("nodeExecutionStack", "waitingExecution"))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _behind(flat: list[Any], value: dict[str, Any], name: str) -> Any:
    place = value.get(name)
    return None if place is None else flat[int(place)]
