"""n8n in queue mode with its parts: the real `bull` 4.16.4 as its main and its worker use it, and rows in a real
PostgreSQL as it writes them. Everything stands where a real n8n of that release would put it.

    yard = Yard(valkey, postgresql, libraries, release="2.41")     # "1.0", "1.123"; schema=, prefix=
    workflow = yard.workflow("Invoices")
    run = yard.begin(workflow)                  # main: a row `new`, and its job in bull:jobs; run.execution, run.job
    worker = yard.work()                        # a worker of its own process: takes the job and holds it
    yard.started(run)                           # what the worker does first: the row is `running`
    yard.ended(run, "success")                  # what the worker does last …
    worker.release()                            # … before the job is done, and gone
    worker.kill()                               # SIGKILL: the lock ends after LOCK_MS, nothing else happens

    yard.execution("running", ago=90)           # a row alone; ago and stopped in seconds
    yard.enqueue(execution, pool="heavy")       # a job alone, in bull:jobs-heavy
    with yard.main(run) as main: …              # main waits for the job, as it does in a process of its own, and writes
                                                # `error` when it hears of the stall: main.wait() (seconds)

`yard.toml()` is what stands in unstall.toml for it, `yard.status(execution)` how its row stands now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from tests.support.n8n import n8n_schema
from tests.support.n8n.n8n_schema import BLOBS, EXECUTIONS, WORKFLOWS
from tests.support.processes.driver import DriverDied, LibraryError
from tests.support.processes.fleet import OF_N8N, Fleet, Queue, Where, Worker
from tests.support.stores.table_bench import Postgresql

LOCK_MS = 600  # as short as a busy machine bears; n8n's own is a minute
PRIORITY = 100  # n8n's of all that nobody waits for at a page
_STALLED = "job stalled more than maxStalledCount"
_SECRET = '[{"resultData":"1"},{"runData":"2"},"a blob that nobody reads"]'


@dataclass(frozen=True, slots=True)
class Run:
    """One execution with its job."""

    execution: str
    job: str
    pool: str = ""


class Yard:
    def __init__(
        self,
        store: Where,
        place: Postgresql,
        libraries: Fleet,
        *,
        release: str = "2.41",
        schema: str = "public",
        prefix: str = "",
    ) -> None:
        self.store = store
        self.place = place
        self.release = release
        self._library = libraries[OF_N8N]
        self._schema, self._prefix = schema, prefix
        with self._connected() as connection:
            n8n_schema.create(connection, release, schema=schema, prefix=prefix)

    def queue(self, pool: str = "") -> Queue:
        return self._library.queue(self.store, f"jobs-{pool}" if pool else "jobs")

    def toml(self, *, url: str = "", more: str = "") -> str:
        """A deployment `main`, a database `n8n` and the installation; `more` is added to the last."""
        lines = [
            f'[[deployments]]\nname = "main"\nurl = "{self.store.url}"',
            f'[[databases]]\nname = "n8n"\nurl = "{url or self.place.url}"\ntimeout = 10',
            '[[n8n]]\ndatabase = "n8n"',
        ]
        lines += [f'schema = "{self._schema}"'] if self._schema != "public" else []
        lines += [f'table_prefix = "{self._prefix}"'] if self._prefix else []
        return "\n".join([*lines, more, ""])

    # -- main

    def workflow(self, name: str = "Invoices", id: str = "wfInvoices000001") -> str:
        row = {"id": id, "name": name, "active": True, "nodes": "[]", "connections": "{}"}
        self._insert(WORKFLOWS, row | {"versionId": "0" * 36})
        return id

    def execution(
        self,
        status: str | None = "new",
        *,
        workflow: str = "wfInvoices000001",
        mode: str = "webhook",
        ago: float = 0,
        stopped: float | None = None,
        wait: float | None = None,
        deleted: float | None = None,
    ) -> str:
        """A row, made `ago` seconds before now; the other times are so many seconds ago too. Its id."""
        row: dict[str, Any] = {"mode": mode, "status": status, "workflowId": workflow, "finished": status == "success"}
        row |= {"startedAt": self._time(ago), "stoppedAt": self._time(stopped), "waitTill": self._time(wait)}
        if self.release != "1.0":
            row |= {"createdAt": self._time(ago), "deletedAt": self._time(deleted)}
            row |= {"startedAt": None} if status == "new" else {}
        id = self._insert(EXECUTIONS, row, returning="id")
        self._insert(BLOBS, {"executionId": id, "workflowData": "{}", "data": _SECRET})
        return str(id)

    def enqueue(self, execution: str, *, workflow: str = "wfInvoices000001", pool: str = "", **data: Any) -> str:
        """As main hands an execution over; the id of the job."""
        name = "__default__" if self.release == "1.0" else "job"
        payload = {"workflowId": workflow, "executionId": execution, "loadStaticData": False, **data}
        return self.queue(pool).add(name, payload, priority=PRIORITY, removeOnComplete=True, removeOnFail=True)

    def begin(self, workflow: str = "wfInvoices000001", *, ago: float = 0, pool: str = "", **row: Any) -> Run:
        """An execution and its job, at once."""
        execution = self.execution("new", workflow=workflow, ago=ago, **row)
        return Run(execution, self.enqueue(execution, workflow=workflow, pool=pool), pool)

    @contextmanager
    def main(self, run: Run) -> Iterator[Main]:
        """Main in a process of its own that waits for this job."""
        waiting = Main(self, run)
        try:
            yield waiting
        finally:
            waiting.end()

    # -- worker

    def work(self, pool: str = "", *, processor: str = "hang", **settings: Any) -> Worker:
        """A worker with n8n's settings in a process of its own."""
        own: dict[str, Any] = {"lockDuration": LOCK_MS, "lockRenewTime": LOCK_MS // 3, "maxStalledCount": 0}
        return self.queue(pool).work(processor, apart=True, **(own | {"stalledInterval": LOCK_MS} | settings))

    def keeps(self, execution: str, data: str) -> None:
        """What n8n has kept of what it did."""
        statement = sql.SQL('UPDATE {} SET data = %s WHERE "executionId" = %s').format(self._table(BLOBS))
        with self._connected() as connection:
            connection.execute(statement, [data, int(execution)])

    def started(self, run: Run, ago: float = 0) -> None:
        self.update(run.execution, status="running", startedAt=self._time(ago))

    def ended(self, run: Run, status: str = "success", *, ago: float = 0) -> None:
        self.update(run.execution, status=status, stoppedAt=self._time(ago), finished=status == "success")

    # -- the database

    def status(self, execution: str) -> str:
        found = self._rows("SELECT status FROM {} WHERE id = %s", int(execution))
        return str(found[0][0]) if found else ""

    def keep(self, execution: str, data: str) -> None:
        """n8n keeps this of it to run it from."""
        statement = sql.SQL('UPDATE {} SET data = %s WHERE "executionId" = %s').format(self._table(BLOBS))
        with self._connected() as connection:
            connection.execute(statement, [data, int(execution)])

    def data(self, execution: str) -> str:
        """What n8n keeps of it to run it from."""
        statement = sql.SQL('SELECT data FROM {} WHERE "executionId" = %s').format(self._table(BLOBS))
        with self._connected() as connection:
            found = connection.execute(statement, [int(execution)]).fetchone()
        return str(found[0]) if found else ""

    def update(self, execution: str, **columns: Any) -> None:
        chosen = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in columns)
        statement = sql.SQL("UPDATE {} SET {} WHERE id = %s").format(self._table(EXECUTIONS), chosen)
        with self._connected() as connection:
            connection.execute(statement, [*columns.values(), int(execution)])

    def delete(self, execution: str) -> None:
        with self._connected() as connection:
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE id = %s").format(self._table(EXECUTIONS)), [int(execution)]
            )

    def run(self, statement: str, *parameters: Any) -> None:
        """A statement of the test's own; `{}` stands for the table of executions."""
        with self._connected() as connection:
            connection.execute(sql.SQL(statement).format(self._table(EXECUTIONS)), parameters)  # type: ignore[arg-type]

    def waits_for_lock(self) -> bool:
        """Whether somebody waits for a row that somebody else has locked."""
        with self._connected() as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            ).fetchone()
        return bool(found and found[0])

    def _rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            said = sql.SQL(statement).format(self._table(EXECUTIONS))  # type: ignore[arg-type]
            return connection.execute(said, parameters).fetchall()

    def _insert(self, table: str, row: dict[str, Any], *, returning: str = "") -> Any:
        names, values = sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join([sql.Placeholder()] * len(row))
        said = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(self._table(table), names, values)
        if returning:
            said += sql.SQL(" RETURNING {}").format(sql.Identifier(returning))
        with self._connected() as connection:
            found = connection.execute(said, list(row.values()))
            return found.fetchone()[0] if returning else None  # type: ignore[index]

    def _table(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._schema, self._prefix + name)

    def _time(self, ago: float | None) -> Any:
        """As n8n's driver writes it: with a zone, and in UTC where the column has none."""
        if ago is None:
            return None
        return psycopg.TimestampFromTicks(time.time() - ago)

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.place.url, autocommit=True, options="-c timezone=UTC")


class Main:
    """Waits for one job with bull's own `job.finished()`, and ends its execution as n8n's main does."""

    def __init__(self, yard: Yard, run: Run) -> None:
        self._yard, self._run = yard, run
        self._driver = yard._library.spawn()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def wait(self, seconds: float = 10.0) -> str:
        """Until it heard of the job's end; how the execution stands then."""
        self._thread.join(seconds)
        return "" if self._thread.is_alive() else self._yard.status(self._run.execution)

    def end(self) -> None:
        self._driver.kill()
        self._thread.join(5.0)

    def _wait(self) -> None:
        queue = self._yard.queue(self._run.pool)
        where = {"url": queue.url, "prefix": queue.prefix, "name": queue.name}
        try:
            self._driver.ask("callJob", queue=where, job=self._run.job, method="finished", args=[])
        except DriverDied:
            return
        except LibraryError as error:
            if _STALLED in str(error) and self._yard.status(self._run.execution) not in ("success", "waiting"):
                self._yard.ended(self._run, "error")
