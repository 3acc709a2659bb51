"""An application's database with a job table that is filled by hand, and a process that is configured to watch it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recovery.actions import runner
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot
from recovery.domain.stuck.inbox import StuckInbox
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.stores import registry
from recovery.stores.state import state_keys
from recovery.stores.state.shared_read import windows
from tests.support.acting import ADMIN
from tests.support.stores.postgres import Postgres
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms


class Place:
    """One database; `?` stands for a parameter everywhere."""

    url = ""

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def empty(self) -> None:
        raise NotImplementedError


class Sqlite(Place):
    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()

    @contextmanager
    def away(self) -> Iterator[None]:
        elsewhere = self._path.rename(self._path.with_suffix(".away"))
        try:
            yield
        finally:
            elsewhere.rename(self._path)

    def empty(self) -> None:
        self._path.unlink(missing_ok=True)
        self.run("VACUUM")


class Postgresql(Place):
    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.url = server.url

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement.replace("?", "%s"), parameters)
            return found.fetchall() if found.description else []

    def empty(self) -> None:
        self.run("DROP SCHEMA public CASCADE")
        self.run("CREATE SCHEMA public")


@contextmanager
def configured(
    directory: Path,
    patch: pytest.MonkeyPatch,
    state: Store,
    places: dict[str, Place],
    rest: str = "",
    *,
    redis: str = "",
    timeout: float = 10,
) -> Iterator[None]:
    """`places` are databases by name; `rest` is whatever else stands in the file."""
    lines = [f'[state]\nurl = "{state.url}"']
    lines += [f'[[deployments]]\nname = "main"\nurl = "{redis}"'] if redis else []
    lines += [
        f'[[databases]]\nname = "{name}"\nurl = "{place.url}"\ntimeout = {timeout}' for name, place in places.items()
    ]
    (directory / "unstall.toml").write_text("\n".join([*lines, rest]))
    patch.setenv("UNSTALL_CONFIG", str(directory / "unstall.toml"))
    registry.reset()
    windows.forget()
    yield
    registry.reset()


JOBS = """
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, state VARCHAR(20) NOT NULL, kind VARCHAR(60), attempts INTEGER NOT NULL DEFAULT 0,
  last_error VARCHAR(500), queued_at BIGINT, started_at BIGINT, finished_at BIGINT,
  lease_until BIGINT, owner VARCHAR(60), payload VARCHAR(2000)
)
"""
TABLE = """
[[tables]]
database = "app"
table = "jobs"
name_column = "kind"
attempts = "attempts"
last_error = "last_error"
queued_at = "queued_at"
started_at = "started_at"
finished_at = "finished_at"
lease_until = "lease_until"
owner = "owner"
data = "payload"
"""
REF = QueueRef("app", "jobs")
_DEFAULTS: dict[str, Any] = {"kind": "import", "payload": '{"file": "a.csv"}', "attempts": 0}


class TableBench:
    """The table `jobs` of the database `app`; times are ms since 1970."""

    def __init__(self, place: Place, state: Store | None = None) -> None:
        self.place, self.state = place, state
        self.is_led = True

    def add(self, *ids: int, state: str = "queued", **columns: Any) -> None:
        for id in ids:
            row = {"id": id, "state": state, "queued_at": now_ms() - 120_000, **_DEFAULTS, **columns}
            marks = ", ".join("?" * len(row))
            self.place.run(f"INSERT INTO jobs ({', '.join(row)}) VALUES ({marks})", *row.values())

    def held(self, *ids: int, owner: str = "w1", **columns: Any) -> None:
        started = now_ms() - 60_000
        told = {"started_at": started, "lease_until": now_ms() + 600_000, "owner": owner, **columns}
        self.add(*ids, state="running", **told)

    def orphan(self, *ids: int, owner: str = "w1", **columns: Any) -> None:
        """Running, with a lease that ended a minute ago."""
        self.held(*ids, owner=owner, **{"lease_until": now_ms() - 60_000, **columns})

    def states(self) -> dict[int, str]:
        return {int(id): str(state) for id, state in self.place.run("SELECT id, state FROM jobs ORDER BY id")}

    def one(self, id: int, column: str) -> Any:
        return self.place.run(f"SELECT {column} FROM jobs WHERE id = ?", id)[0][0]

    def collect(self) -> Snapshot:
        """What the scheduler would publish now."""
        roster = KnownQueues()
        collector = Collector(registry.registry(), roster)
        try:
            snapshot = collector.look(now_ms())
        finally:
            collector.close()
        if self.state:
            snapshot_store.publish(self.state.client, snapshot)
            sign = SchedulerStatus("here", 1, 7, now_ms(), now_ms(), "me")
            self.state.client.set(state_keys.SCHEDULER, sign.encode() if self.is_led else b"")
        self.forget()
        return snapshot

    def watch(self) -> StuckInbox:
        """And what the orphan-watch would, in a process of its own."""
        inbox = OrphanWatch(registry.registry(), self.collect).run(now_ms())
        self.forget()
        return inbox

    def forget(self) -> None:
        windows.forget()

    def order(self, act: Action, *ids: int, reason: str = "it hangs", **options: Any) -> ActionCommand:
        """The rows as they are now."""
        self.forget()
        seen = runner.current_jobs(REF, tuple(map(str, ids)))
        return ActionCommand(act, REF, ADMIN, reason, seen, ActionOptions(**options))
