"""Reads a table's columns from the database's own catalogue, and holds the configuration to them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recovery.config import Engine, JobTable
from recovery.config.databases import Value
from recovery.domain.identifiers import decode_name, encode_name
from recovery.errors import StatementRefused
from recovery.stores.sql.sql_client import SqlClient, SqlSession

LIFE = 60.0  # seconds: an application that is deployed over may change its table


class ColumnKind(StrEnum):
    """Kind of a column's values, as far as it matters how they are written."""

    NUMBER = "number"
    FRACTION = "fraction"
    INSTANT = "instant"  # a time with its zone
    MOMENT = "moment"  # a time without one
    BYTES = "bytes"
    UUID = "uuid"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class TableColumn:
    kind: ColumnKind
    may_be_null: bool


@dataclass(frozen=True, slots=True)
class TableShape:
    """Table and the columns of it that are used, by name."""

    table: JobTable
    columns: Mapping[str, TableColumn]
    beyond: int = 2**63  # no whole number is as big

    def kind(self, name: str) -> ColumnKind:
        return self.columns[name].kind

    def id(self, written: str) -> Any:
        """Returns an id as the database has to be asked for it; None for one that no row can have."""
        return _id(self.kind(self.table.columns.id), written, self.beyond)

    def states(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Returns values of the state column in its own type; a number where numbers are kept."""
        if self.kind(self.table.columns.state) is ColumnKind.NUMBER:
            return tuple(int(value) for value in values)
        return tuple(str(value) for value in values)


_CATALOGUE = {
    Engine.POSTGRESQL: (
        "SELECT attname, format_type(atttypid, NULL), NOT attnotnull FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    ),
    Engine.MYSQL: (
        "SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns"
        " WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s"
    ),
    Engine.SQLITE: 'SELECT name, type, NOT "notnull" FROM pragma_table_info(%s)',
}


def shape(wire: SqlClient, session: SqlSession, base: str) -> TableShape:
    """Reads the columns once a minute. Raises QueueMissing, and StoreError if the table does not fit what is
    configured.
    """
    table = wire.table(base)
    key = ("shape", base)
    learned = wire.learned(key)
    if learned and time.monotonic() < learned[0]:
        return _known(learned)
    columns = _columns(wire, session, table)
    found = TableShape(table, columns, 2**64) if session.engine is Engine.MYSQL else TableShape(table, columns)
    wire.learn(key, (time.monotonic() + LIFE, found))
    return found


def forget(wire: SqlClient, base: str) -> None:
    wire.forget(("shape", base))


def _known(learned: tuple[float, TableShape]) -> TableShape:
    return learned[1]


def _columns(wire: SqlClient, session: SqlSession, table: JobTable) -> dict[str, TableColumn]:
    schema, _, name = table.table.rpartition(".")
    parameters: Mapping[Engine, tuple[Any, ...]] = {
        Engine.POSTGRESQL: (session.quoted(table.table),),
        Engine.MYSQL: (schema or None, name),
        Engine.SQLITE: (name,),
    }
    rows = session.all(_CATALOGUE[session.engine], parameters[session.engine])
    if not rows:
        raise StatementRefused(wire.target, f"it has no table {table.table}, or our user may not read it")
    there = {str(name): TableColumn(_kind(session.engine, str(type_)), bool(null)) for name, type_, null in rows}
    missing = [name for name in table.columns.used if name not in there]
    if missing:
        raise StatementRefused(wire.target, f"its table {table.table} has no column {', '.join(missing)}")
    found = {name: there[name] for name in table.columns.used}
    _check_states(wire, table, found[table.columns.state])
    return found


def _check_states(wire: SqlClient, table: JobTable, column: TableColumn) -> None:
    states = table.states
    values = (*states.queued, *states.running, *states.done, *states.failed)
    if column.kind is ColumnKind.NUMBER and not all(str(value).lstrip("-").isdecimal() for value in values):
        reason = f"its column {table.columns.state} of {table.table} holds numbers, but [[tables]] names strings"
        raise StatementRefused(wire.target, reason)


def _kind(engine: Engine, type_: str) -> ColumnKind:
    said = type_.lower()
    if said == "uuid":
        return ColumnKind.UUID
    if ("int" in said and "interval" not in said and "point" not in said) or "serial" in said:
        return ColumnKind.NUMBER
    if any(word in said for word in ("numeric", "decimal", "double", "real", "float")):
        return ColumnKind.FRACTION
    if engine is not Engine.SQLITE:  # there a column holds whatever was put into it
        if said == "timestamp with time zone" or (engine is Engine.MYSQL and said == "timestamp"):
            return ColumnKind.INSTANT
        if said.startswith("timestamp") or said == "datetime":
            return ColumnKind.MOMENT
    return ColumnKind.BYTES if any(word in said for word in ("bytea", "blob", "binary")) else ColumnKind.TEXT


def _id(kind: ColumnKind, written: str, beyond: int) -> Any:
    if kind is ColumnKind.BYTES:
        return encode_name(written)
    if "\x00" in written or any("\ud800" <= character <= "\udfff" for character in written):
        return None
    if kind is ColumnKind.NUMBER:
        number = written.removeprefix("-")
        is_plain = number.isascii() and number.isdigit() and len(number) <= len(str(beyond))
        return int(written) if is_plain and str(int(written)) == written and abs(int(written)) < beyond else None
    if kind is ColumnKind.UUID:
        try:
            return written if str(uuid.UUID(written)) == written else None
        except ValueError:
            return None
    return written


def id_of(value: Any) -> str:
    """Returns a row's id as it stands in addresses."""
    return decode_name(bytes(value)) if isinstance(value, (bytes, bytearray, memoryview)) else str(value)
