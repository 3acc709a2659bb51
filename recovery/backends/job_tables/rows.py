"""Selects and reads rows of a job table, and tells until when a worker holds a running one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recovery.backends.base import LINE_LIMIT
from recovery.backends.job_tables import timestamps
from recovery.backends.job_tables.introspection import ColumnKind, TableShape, id_of
from recovery.backends.redis_common import decode
from recovery.config import Engine, JobTable
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.stores.sql.sql_client import SqlSession

TIMES = ("queued_at", "started_at", "finished_at", "lease_until", "heartbeat")
_TEXTS = ("name", "owner")
_PROSE = ("last_error",)
_NUMBERS = ("attempts", "max_attempts")
ROLES = ("state", *_NUMBERS, *TIMES, *_TEXTS, *_PROSE)  # everything of a row but its id and its data
_NAME_LIMIT = 500  # characters


@dataclass(frozen=True, slots=True)
class RowSnapshot:
    """Row at one moment of the database's clock: as a job, and as it really stands there."""

    row: JobRow
    id: Any
    raw: dict[str, Any]  # by role; only those that have a column
    now: int


def selected(session: SqlSession, shape: TableShape) -> str:
    """Returns what stands between SELECT and FROM: the clock, the id, then a column a role."""
    table = shape.table
    columns = (_expression(session, shape, role) for role in ROLES)
    return ", ".join((timestamps.clock(session.engine), session.quoted(table.columns.id), *columns))


def look(ref: QueueRef, shape: TableShape, reply: Sequence[Any]) -> RowSnapshot:
    now, id, values = int(reply[0]), reply[1], dict(zip(ROLES, reply[2:], strict=True))
    raw = {role: value for role, value in values.items() if getattr(shape.table.columns, role)}
    return RowSnapshot(_row(ref, shape, id, values, now), id, raw, now)


def held_until(table: JobTable, row: JobRow) -> tuple[int | None, str]:
    """Returns until when a worker holds a running row, and what says so: its lease, else heartbeat, else age.

    (None, "") when nothing says it: then only a worker that starts knows that no worker has the row.
    """
    if row.lease_until is not None:
        return row.lease_until + table.lease_grace, "lease"
    if row.heartbeat_at is not None:
        return row.heartbeat_at + table.heartbeat_limit, "heartbeat"
    if table.age_limit is not None and row.processed_at is not None:
        return row.processed_at + table.age_limit, "age"
    return None, ""


def cut(session: SqlSession, shape: TableShape, name: str, limit: int) -> str:
    """Returns a column's text as SQL, at most so many characters of it."""
    column = session.quoted(name)
    if session.engine is Engine.POSTGRESQL:
        return f"substring({column} FROM 1 FOR {limit})" if _is_bytes(shape, name) else f"left({column}::text, {limit})"
    return f"substr({column}, 1, {limit})" if session.engine is Engine.SQLITE else f"LEFT({column}, {limit})"


def size(session: SqlSession, shape: TableShape, name: str) -> str:
    """Returns as SQL how many bytes a column's text has."""
    column = session.quoted(name)
    if session.engine is Engine.SQLITE:
        return f"length(CAST({column} AS BLOB))"
    is_text = session.engine is Engine.POSTGRESQL and not _is_bytes(shape, name)
    return f"octet_length({column}{'::text' if is_text else ''})"


def prose(value: Any) -> str:
    """Returns a column's value as a text for people."""
    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def _expression(session: SqlSession, shape: TableShape, role: str) -> str:
    name = getattr(shape.table.columns, role)
    if not name:
        return "NULL"
    if role in TIMES:
        return timestamps.select_time(session.engine, session.quoted(name), shape.kind(name))
    if role in _PROSE:
        return cut(session, shape, name, LINE_LIMIT * 4)
    return session.quoted(name)


def _row(ref: QueueRef, shape: TableShape, id: Any, values: dict[str, Any], now: int) -> JobRow:
    table = shape.table
    read = {role: _time(shape, role, values[role]) for role in TIMES}
    state = table.states.named(values["state"])
    limit = _count(values["max_attempts"])
    row = JobRow(
        ref=ref.job(id_of(id)),
        state=state,
        name=prose(values["name"])[:_NAME_LIMIT],
        added_at=read["queued_at"],
        processed_at=read["started_at"],
        finished_at=read["finished_at"],
        attempts=_count(values["attempts"]) or 0,
        attempts_limit=table.attempts_limit if limit is None else limit,
        worker=prose(values["owner"])[:_NAME_LIMIT],
        reason=decode.first_line(prose(values["last_error"])),
        lease_until=read["lease_until"],
        heartbeat_at=read["heartbeat"],
    )
    return _held(table, row, now) if state is JobState.ACTIVE else row


def _held(table: JobTable, row: JobRow, now: int) -> JobRow:
    """Returns the row with a lock where it is held. Its age alone only tells when no worker can be holding it."""
    until, by = held_until(table, row)
    if until is not None and until > now and by != "age":
        return _with(row, lock=JobLock(row.worker or by, until - now))
    return _with(row, lock_known=until is not None and until <= now)


def _with(row: JobRow, **changes: Any) -> JobRow:
    return JobRow(**{name: getattr(row, name) for name in JobRow.__slots__} | changes)


def _time(shape: TableShape, role: str, value: Any) -> int | None:
    name = getattr(shape.table.columns, role)
    return timestamps.read(value, shape.kind(name), shape.table.timezone) if name else None


def _count(value: Any) -> int | None:
    try:
        return None if value is None else max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _is_bytes(shape: TableShape, name: str) -> bool:
    return shape.kind(name) is ColumnKind.BYTES
