"""A job table as an application keeps it, in each kind of database, and the wire that leads to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from recovery.backends.base import Target
from recovery.backends.job_tables.operator import TableOperator
from recovery.backends.job_tables.reader import TableReader
from recovery.backends.registry import operator, reader
from recovery.config import load
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, ScriptOutcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient, as_sql_client
from tests.support.stores.mariadb import MariaDb
from tests.support.stores.table_bench import Place

FLAVOUR = LibraryVersion(QueueLibrary.TABLE)
REF = QueueRef("app", "jobs")
TABLE: Mapping[str, Any] = {
    "table": "jobs",
    "state": "status",
    "queued": "pending",
    "name_column": "kind",
    "attempts": "tries",
    "max_attempts": "most_tries",
    "last_error": "error",
    "queued_at": "created_at",
    "started_at": "started_at",
    "finished_at": "finished_at",
    "lease_until": "lease_until",
    "heartbeat": "beat_at",
    "owner": "worker",
    "data": "payload",
}
_DDL = {
    "sqlite": (
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, kind TEXT, status TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0,"
        " most_tries INTEGER, error TEXT, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, started_at TIMESTAMP,"
        " finished_at TIMESTAMP, lease_until TIMESTAMP, beat_at TIMESTAMP, worker TEXT, payload TEXT)"
    ),
    "postgresql": (
        "CREATE TABLE jobs (id bigserial PRIMARY KEY, kind text, status text NOT NULL, tries int NOT NULL DEFAULT 0,"
        " most_tries int, error text, created_at timestamptz DEFAULT now(), started_at timestamptz,"
        " finished_at timestamptz, lease_until timestamptz, beat_at timestamp, worker text, payload jsonb)"
    ),
    "mariadb": (
        "CREATE TABLE jobs (id bigint AUTO_INCREMENT PRIMARY KEY, kind varchar(80), status varchar(20) NOT NULL,"
        " tries int NOT NULL DEFAULT 0, most_tries int, error text, created_at datetime(3) DEFAULT UTC_TIMESTAMP(3),"
        " started_at datetime(3), finished_at timestamp(3) NULL, lease_until datetime(3), beat_at datetime(3),"
        " worker varchar(80), payload json)"
    ),
}
# So many seconds from now, as each database writes it.
_MOMENT = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', '{seconds:+.3f} seconds')",
    "postgresql": "(clock_timestamp() + interval '{seconds:.3f} seconds')",
    "mariadb": "(UTC_TIMESTAMP(3) + INTERVAL {micros} MICROSECOND)",
}
_TIMES = ("created_at", "started_at", "finished_at", "lease_until", "beat_at")


class Mariadb(Place):
    kind = "mariadb"

    def __init__(self, server: MariaDb) -> None:
        self.server = server
        self.url = server.url

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        parts = urlsplit(self.url)
        login = {"user": parts.username, "password": unquote(parts.password or "")}
        return self._run({**login, "host": parts.hostname, "port": parts.port}, statement, parameters)

    def run_as_root(self, statement: str) -> None:
        self._run({"user": "root", "unix_socket": self.server.socket}, statement, ())

    def _run(self, where: dict[str, Any], statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        options = {"database": "app", "autocommit": True, "init_command": "SET time_zone = '+00:00'"}
        # Without TLS: for each connection pymysql would read all authorities of the machine, which takes 20 ms.
        with (
            closing(pymysql.connect(**where, **options, ssl_disabled=True)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.replace("?", "%s"), parameters or None)
            return list(cursor.fetchall())

    def empty(self) -> None:
        for (name,) in self.run("SHOW TABLES"):
            self.run(f"DROP TABLE `{name}`")


def kind_of(place: Place) -> str:
    return {"sqlite": "sqlite", "postgres": "postgresql", "mysql": "mariadb"}[urlsplit(place.url).scheme]


class Jobs:
    """The table `jobs` of one database. Times are told in seconds from now."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.kind = kind_of(place)
        self._folder = folder
        self._registries: list[ConnectionRegistry] = []

    def create(self, ddl: str = "") -> None:
        self.place.run(ddl or _DDL[self.kind])

    def add(self, status: str, **columns: Any) -> str:
        """A row; its id. A number in a column of times is seconds from now."""
        values: dict[str, Any] = {"status": status, "kind": "mail", **columns}
        written, parameters = [], []
        for name, value in values.items():
            is_time = name in _TIMES and isinstance(value, (int, float))
            written.append(self.moment(value) if is_time else "?")
            parameters += [] if is_time else [value]
        before = self.place.run("SELECT COALESCE(MAX(id), 0) FROM jobs")[0][0]
        statement = f"INSERT INTO jobs ({', '.join(values)}) VALUES ({', '.join(written)})"
        if self.kind == "mariadb":
            statement = statement.replace("%", "%%")
        self.place.run(statement, *parameters)
        return str(self.place.run("SELECT MAX(id) FROM jobs WHERE id > ?", before)[0][0])

    def moment(self, seconds: float) -> str:
        return _MOMENT[self.kind].format(seconds=seconds, micros=round(seconds * 1_000_000))

    def one(self, id: str, *columns: str) -> Any:
        """The row's columns; of one column its value."""
        (row,) = self.place.run(f"SELECT {', '.join(columns)} FROM jobs WHERE id = ?", int(id))
        return row[0] if len(columns) == 1 else tuple(row)

    def status(self, *ids: str) -> list[str]:
        return [self.one(id, "status") for id in ids]

    def wire(self, timeout: float = 5, read_only: bool = False, **described: Any) -> SqlClient:
        """Configured with this table, `described` over the usual words."""
        written = {**TABLE, **described}
        lines = ["[[databases]]", 'name = "app"', f'url = "{self.place.url}"', f"timeout = {timeout}"]
        lines += [f"read_only = {str(read_only).lower()}", "[[tables]]", 'database = "app"']
        lines += [f"{key} = {_toml(value)}" for key, value in written.items() if value is not None]
        (self._folder / "unstall.toml").write_text("\n".join(lines))
        registry = ConnectionRegistry(load({}, directory=self._folder))
        self._registries.append(registry)
        return as_sql_client(registry.wire("app"))

    def close(self) -> None:
        for registry in self._registries:
            registry.close()


@contextmanager
def jobs_in(place: Place, folder: Path) -> Iterator[Jobs]:
    jobs = Jobs(place, folder)
    yield jobs
    jobs.close()


def table_reader() -> TableReader:
    found = reader(FLAVOUR)
    assert isinstance(found, TableReader)
    return found


def table_operator() -> TableOperator:
    found = operator(FLAVOUR)
    assert isinstance(found, TableOperator)
    return found


def seen(wire: SqlClient, *ids: str) -> tuple[ExpectedJob, ...]:
    rows = table_reader().rows(wire, REF, [(id, JobState.UNKNOWN) for id in ids])
    return tuple(
        ExpectedJob.of(row) if row else ExpectedJob(id, JobState.UNKNOWN) for id, row in zip(ids, rows, strict=True)
    )


def act(act: Action, wire: SqlClient, jobs: tuple[ExpectedJob, ...], **options: Any) -> tuple[ScriptOutcome, ...]:
    return table_operator().on_jobs(act, Target(wire, REF, FLAVOUR), jobs, ActionOptions(**options), 0)


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
