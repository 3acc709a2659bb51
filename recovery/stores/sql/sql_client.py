"""Client of SQL databases with job tables: Django's own backends, on connections apart from Django's.

They are in none of Django's aliases, so no model, migration or test database of ours can end up there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from django.db.utils import Error, load_backend

from recovery.config import Database, Engine, JobTable
from recovery.errors import QueueMissing, StoreError, TimedOut, Unreachable, Unsupported
from recovery.stores.redis.client import StoreClient
from recovery.stores.redis.pipeline import Command, EncodedBatch
from recovery.stores.sql import connection_settings, sql_deadlines, sql_errors

Row = tuple[Any, ...]
Kept = TypeVar("Kept")

IDLE_LIMIT = 4  # connections kept open: a database has few of them for everybody
OPEN_LIMIT = 8  # at the same time
FRESH = 1.0  # seconds: one that waited longer is tried before it is used
SPARED = 1.0  # seconds in which a database that has just failed to answer is not asked again
_ASKED_IN_SQL = "This deployment is a database: it is read with SQL."


class SqlSession:
    """A connection while it is lent. Statements are bounded in time; `%s` stands for a parameter."""

    def __init__(self, wire: SqlClient, connection: Any) -> None:
        self.connection = connection  # Django's wrapper, for its operations and features
        self.engine = wire.database.engine
        self._wire = wire

    def all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self._running(statement, parameters) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Executes a statement; returns how many rows it found."""
        with self._running(statement, parameters) as cursor:
            return int(cursor.rowcount)

    def quoted(self, name: str) -> str:
        """Quotes an identifier, or SCHEMA.TABLE, as the database does."""
        if self.engine is Engine.SQLITE:
            # In double quotes, what is no column is a text to SQLite, and a row would be in the state "state".
            return ".".join(f"`{part}`" for part in name.split("."))
        return ".".join(self.connection.ops.quote_name(part) for part in name.split("."))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits all or nothing. On SQLite it takes the one lock first: nothing changes between read and write."""
        self.change(_BEGIN[self.engine])
        try:
            yield
        except BaseException:
            with suppress(StoreError):
                self.change("ROLLBACK")
            raise
        self.change("COMMIT")

    @contextmanager
    def _running(self, statement: str, parameters: Sequence[Any]) -> Iterator[Any]:
        limit = self._wire.database.timeout
        with sql_deadlines.within(self.connection, self.engine, limit) as deadline:
            try:
                with self.connection.cursor() as cursor:
                    # Without parameters a % is a %: None tells Django's cursors so.
                    cursor.execute(statement, list(parameters) if parameters else None)
                    yield cursor
            except Error as error:
                raise sql_errors.translated(
                    error, self._wire.target, limit, self.engine, is_over=deadline.is_over
                ) from error


# What is changed is looked at anew after each wait for a lock, whatever the server's default is.
_BEGIN = {
    Engine.POSTGRESQL: "BEGIN ISOLATION LEVEL READ COMMITTED",
    Engine.MYSQL: "START TRANSACTION",
    Engine.SQLITE: "BEGIN IMMEDIATE",
}


class SqlClient(StoreClient):
    """A database and its job tables. Thread-safe: each piece of work has a connection of its own while it lasts."""

    def __init__(self, database: Database, tables: Sequence[JobTable] = ()) -> None:
        self.database = database
        self._tables: Mapping[str, JobTable] = {table.name: table for table in tables}
        self._idle: list[tuple[float, Any]] = []
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(OPEN_LIMIT)
        self._failure: tuple[float, StoreError] | None = None
        self._lost_at: float | None = None
        self._is_closed = False
        self._learned: dict[Any, Any] = {}

    @property
    def target(self) -> str:
        return self.database.target

    @property
    def reached_for(self) -> float | None:
        """Seconds since it last could not be reached, as far as this process tried; None: it always could."""
        return None if self._lost_at is None else time.monotonic() - self._lost_at

    @property
    def tables(self) -> tuple[JobTable, ...]:
        return tuple(self._tables.values())

    def table(self, base: str) -> JobTable:
        """Returns a table by its shown name; raises QueueMissing."""
        found = self._tables.get(base)
        if found is None:
            raise QueueMissing(f"There is no table {base} in the database {self.database.name}.")
        return found

    def learned(self, key: Any) -> Any:
        """Returns what `learn` has stored about this database under the key; None: nothing."""
        return self._learned.get(key)

    def learn(self, key: Any, found: Kept) -> Kept:
        self._learned[key] = found
        return found

    def forget(self, key: Any) -> None:
        self._learned.pop(key, None)

    @contextmanager
    def session(self) -> Iterator[SqlSession]:
        """Lends a connection. Raises StoreError; after any failure it is closed, as its state is unknown."""
        self._spare()
        if not self._places.acquire(timeout=self.database.timeout):
            raise TimedOut(self.target, f"all {OPEN_LIMIT} connections are in use")
        try:
            session = self._taken() or self._opened()
            try:
                yield session
            except BaseException as error:
                _close(session.connection)
                if isinstance(error, (Unreachable, TimedOut)):
                    self._failed(error)
                if isinstance(error, Unreachable):  # a statement that took too long is no outage
                    self._lost_at = time.monotonic()
                raise
            if session.connection.errors_occurred:  # a caller has swallowed the error
                _close(session.connection)
            else:
                self._give(session.connection)
        finally:
            self._places.release()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            _close(connection)

    # -- methods of a Redis wire, which a database does not have

    def call(self, commands: Sequence[Command]) -> list[Any]:
        raise Unsupported(_ASKED_IN_SQL)

    def send(self, batch: EncodedBatch) -> list[Any]:
        raise Unsupported(_ASKED_IN_SQL)

    def nodes(self) -> tuple[str, ...]:
        raise Unsupported(_ASKED_IN_SQL)

    def at(self, node: str, commands: Sequence[Command]) -> list[Any]:
        raise Unsupported(_ASKED_IN_SQL)

    # -- connections

    def _spare(self) -> None:
        """Raises the last failure again for a moment, so that a page of several reads waits once, not once each."""
        failure = self._failure
        if failure is not None and time.monotonic() < failure[0]:
            raise failure[1]

    def _failed(self, error: StoreError) -> None:
        self._failure = time.monotonic() + SPARED, error
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            _close(connection)

    def _taken(self) -> SqlSession | None:
        """Returns an idle connection that works, else None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            session = SqlSession(self, connection)
            if time.monotonic() - since < FRESH:
                return session
            try:
                session.all("SELECT 1")
            except StoreError:
                _close(connection)
            else:
                return session

    def _opened(self) -> SqlSession:
        connection = open_connection(self.database)
        session = SqlSession(self, connection)
        try:
            with connection.wrap_database_errors:
                connection.connect()
            connection_settings.prepare(session.change, connection, self.database)
        except Error as error:
            _close(connection)
            found = sql_errors.on_connect(error, self.target, self.database.timeout, self.database.engine)
            self._failed(found)
            self._lost_at = time.monotonic()
            raise found from error
        except BaseException:
            _close(connection)
            raise
        return session

    def _give(self, connection: Any) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < IDLE_LIMIT:
                self._idle.append((time.monotonic(), connection))
                return
        _close(connection)


def as_sql_client(wire: object) -> SqlClient:
    """Returns the wire as that of a database; raises TypeError for the wire of a Redis."""
    if not isinstance(wire, SqlClient):
        raise TypeError(f"not a database: {wire!r}")
    return wire


def open_connection(database: Database) -> Any:
    """Returns Django's wrapper, not connected yet. It may be handed from thread to thread, one at a time."""
    written = connection_settings.django_settings(database)
    connection = load_backend(written["ENGINE"]).DatabaseWrapper(written, alias=f"unstall-{database.name}")
    connection.inc_thread_sharing()
    return connection


def _close(connection: Any) -> None:
    with suppress(Error, OSError):
        connection.close()
