"""Statements that read a job table: a page of one state, rows by their ids, one whole row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recovery.backends.base import LIST_LIMIT
from recovery.backends.job_tables import introspection, rows
from recovery.backends.job_tables.introspection import TableShape, id_of
from recovery.backends.job_tables.rows import RowSnapshot
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobRowPage, JobState
from recovery.errors import StatementRefused
from recovery.stores.sql.sql_client import SqlClient, SqlSession, as_sql_client

COUNT_LIMIT = 1_000_000  # rows that are counted at most; more are not known to be so many
_NEWEST_FIRST = frozenset({JobState.COMPLETED, JobState.FAILED})
_ASCENDING, _DESCENDING = ">", "<"


@dataclass(frozen=True, slots=True)
class TableContext:
    """Table with its session and columns, while one piece of work is done with it."""

    wire: SqlClient
    session: SqlSession
    ref: QueueRef
    shape: TableShape

    @property
    def place(self) -> str:
        return self.session.quoted(self.shape.table.table)

    def column(self, role: str) -> str:
        """Returns the column's name in quotes; "" when there is none."""
        name = getattr(self.shape.table.columns, role)
        return self.session.quoted(name) if name else ""

    @property
    def selected(self) -> str:
        return f"SELECT {rows.selected(self.session, self.shape)} FROM {self.place}"

    def within(self, state: JobState) -> tuple[str, tuple[Any, ...]]:
        """Returns the condition that a row is in this state, and its parameters."""
        values = self.shape.states(self.shape.table.states.of(state))
        return f"{self.column('state')} IN ({marks(values)})", values

    def looks(self, replies: Sequence[Any]) -> list[RowSnapshot]:
        return [rows.look(self.ref, self.shape, reply) for reply in replies]


@contextmanager
def table_context(wire: object, ref: QueueRef) -> Iterator[TableContext]:
    """Opens a session on the table. Raises QueueMissing and StoreError."""
    database = as_sql_client(wire)
    try:
        with database.session() as session:
            yield TableContext(database, session, ref, introspection.shape(database, session, ref.base))
    except StatementRefused:
        introspection.forget(database, ref.base)  # it may have another shape by now
        raise


def page(context: TableContext, state: JobState, *, cursor: str, size: int, oldest_first: bool | None) -> JobRowPage:
    """Reads a page in the order of the ids: no sort, and nothing is passed over while others come and go."""
    size = max(1, min(size, LIST_LIMIT))
    values = context.shape.table.states.of(state)
    if not values:
        return JobRowPage((), 0)
    is_ascending = state not in _NEWEST_FIRST if oldest_first is None else oldest_first
    onward = _ASCENDING if is_ascending else _DESCENDING
    start = _start(context, cursor)
    is_back = start is not None and start[0] != onward
    found = _window(context, state, start[0] if start else onward, start, size + 1)
    more, found = len(found) > size, found[:size]
    if is_back:
        found.reverse()
    return JobRowPage(
        tuple(look.row for look in found),
        count(context, state),
        _cursor(onward, found[-1]) if found and (more or is_back) else "",
        _cursor(_opposite(onward), found[0]) if found and (more if is_back else bool(start)) else "",
    )


def window(context: TableContext, state: JobState, size: int, after: RowSnapshot | None = None) -> list[RowSnapshot]:
    """Reads rows in the order of the ids, from the beginning or from the row behind `after` on."""
    return _window(context, state, _ASCENDING, (_ASCENDING, after.id) if after else None, size)


def by_ids(context: TableContext, ids: Sequence[str], *, locked: str = "") -> dict[str, RowSnapshot]:
    """Returns the rows that are there. `locked` is what stands behind the statement to lock them."""
    asked = [value for value in map(context.shape.id, ids) if value is not None]
    if not asked:
        return {}
    # In one order everywhere, so that two of us never wait for each other.
    statement = (
        f"{context.selected} WHERE {context.column('id')} IN ({marks(asked)}) ORDER BY {context.column('id')}{locked}"
    )
    wanted = frozenset(ids)
    # A database may take "A" and "a" for the same; we do not.
    return {look.row.id: look for look in context.looks(context.session.all(statement, asked)) if look.row.id in wanted}


def count(context: TableContext, state: JobState, limit: int = COUNT_LIMIT) -> int | None:
    """Counts rows; None: there are more than `limit`."""
    condition, values = context.within(state)
    statement = f"SELECT COUNT(*) FROM (SELECT 1 FROM {context.place} WHERE {condition} LIMIT {limit + 1}) AS counted"
    found = int(context.session.all(statement, values)[0][0])
    return None if found > limit else found


def marks(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def _window(
    context: TableContext, state: JobState, onward: str, start: tuple[str, Any] | None, size: int
) -> list[RowSnapshot]:
    condition, values = context.within(state)
    id = context.column("id")
    if start:
        condition, values = f"{condition} AND {id} {onward} %s", (*values, start[1])
    order = "ASC" if onward == _ASCENDING else "DESC"
    replies = context.session.all(f"{context.selected} WHERE {condition} ORDER BY {id} {order} LIMIT {size}", values)
    return context.looks(replies)


def _start(context: TableContext, cursor: str) -> tuple[str, Any] | None:
    """Returns where the page starts; a cursor that no page handed out begins anew."""
    direction, id = cursor[:1], context.shape.id(cursor[1:])
    return (direction, id) if direction in (_ASCENDING, _DESCENDING) and cursor[1:] and id is not None else None


def _cursor(direction: str, look: RowSnapshot) -> str:
    return direction + id_of(look.id)


def _opposite(direction: str) -> str:
    return _DESCENDING if direction == _ASCENDING else _ASCENDING


def row_of(look: RowSnapshot | None) -> JobRow | None:
    return look.row if look else None
