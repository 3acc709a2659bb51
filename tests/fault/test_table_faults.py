"""A database of an application that is away, silent, slow, locked or strict: told in time, and nothing is half done."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from recovery.backends.job_tables import server_uptime
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.jobs import JobState
from recovery.errors import AccessDenied, ReadOnlyStore, StatementRefused, StoreError, TimedOut, Unreachable
from recovery.stores.sql.sql_client import SqlClient
from tests.support.stores.tables import REF, Jobs, act, seen, table_reader
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
READER = table_reader()
SERVERS = pytest.mark.parametrize("place", ["postgresql", "mariadb"], indirect=True)
SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
    "postgresql": "SELECT pg_sleep(60)",
    "mariadb": "SELECT COUNT(*) FROM seq_1_to_1000000 a, seq_1_to_1000000 b WHERE a.seq + b.seq > 1",
}


def works(wire: SqlClient) -> bool:
    try:
        return READER.look(wire, REF).counts.waiting is not None
    except StoreError:
        return False


def test_a_statement_that_takes_too_long_is_ended(jobs: Jobs) -> None:
    wire = jobs.wire(timeout=0.3)
    started = time.monotonic()
    with pytest.raises(TimedOut, match=r"no answer within 0\.3 s"), wire.session() as session:
        session.all(SLOW[jobs.kind])
    assert time.monotonic() - started < 30
    until(lambda: works(wire), 30, "it is asked again")


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_backend_that_is_stopped_does_not_hold_us(jobs: Jobs) -> None:
    wire = jobs.wire(timeout=0.3)
    with wire.session() as session:
        ((pid,),) = session.all("SELECT pg_backend_pid()")
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimedOut):
                session.all("SELECT 1")
        finally:
            os.kill(pid, signal.SIGCONT)
    assert works(wire)


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_a_server_that_is_stopped_does_not_hold_us(jobs: Jobs) -> None:
    wire = jobs.wire(timeout=0.3)
    assert works(wire)
    pid = jobs.place.server.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimedOut):
            READER.look(wire, REF)
        with pytest.raises(TimedOut):
            READER.look(wire, REF)
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: works(wire), 30, "it is asked again")


@SERVERS
def test_a_server_that_is_away_is_told_and_comes_back_by_itself(jobs: Jobs) -> None:
    wire, server = jobs.wire(timeout=1), jobs.place.server
    assert works(wire)
    server.stop()
    try:
        with pytest.raises(StoreError):
            READER.look(wire, REF)
        found = until(lambda: unreachable(wire), 30, "no connection is left")
        assert "@" not in found.reason
    finally:
        server.start()
    until(lambda: works(wire), 30, "it is back")


def unreachable(wire: SqlClient) -> Unreachable | None:
    try:
        READER.look(wire, REF)
    except Unreachable as error:
        return error
    except StoreError:
        return None
    return None


def test_a_database_that_failed_is_not_asked_again_at_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = jobs.wire()
    asked: list[int] = []

    def fails(self: SqlClient) -> None:
        asked.append(1)
        error = Unreachable(self.target, "connection refused")
        self._failed(error)
        raise error

    monkeypatch.setattr(SqlClient, "_opened", fails)
    for _ in range(20):
        with pytest.raises(Unreachable):
            READER.look(wire, REF)
    assert len(asked) < 20


@SERVERS
def test_a_wrong_password_is_told_and_not_shown(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = urlsplit(jobs.place.url)
    user = "nobody" if jobs.kind == "postgresql" else "unstall"
    address = f"{parts.hostname}:{parts.port}{parts.path}"
    monkeypatch.setattr(jobs.place, "url", f"{parts.scheme}://{user}:s3cret@{address}")
    with pytest.raises(AccessDenied) as caught:
        READER.look(jobs.wire(), REF)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_there_is_not_made(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "not here.sqlite3"
    monkeypatch.setattr(jobs.place, "url", f"sqlite:///{quote(str(path))}")
    with pytest.raises(Unreachable):
        READER.look(jobs.wire(), REF)
    assert not path.exists()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_file_that_somebody_has_locked_is_told_in_time(jobs: Jobs) -> None:
    id, wire = jobs.add("running"), jobs.wire(timeout=0.3)
    shown = seen(wire, id)
    with closing(sqlite3.connect(wire.database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimedOut):
            act(Action.REQUEUE, wire, shown, force=True)
        other.execute("ROLLBACK")
    assert jobs.status(id) == ["running"]
    until(lambda: works(wire), 30, "it is asked again")
    assert act(Action.REQUEUE, wire, shown, force=True)[0].outcome is Outcome.DONE


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_a_database_that_is_configured_read_only_takes_no_write(jobs: Jobs) -> None:
    with pytest.raises(ReadOnlyStore), jobs.wire(read_only=True).session() as session:
        session.change("DELETE FROM jobs")


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_a_mariadb_that_is_configured_read_only_takes_no_write(jobs: Jobs) -> None:
    with jobs.wire(read_only=True).session() as session, pytest.raises(ReadOnlyStore), session.transaction():
        session.change("DELETE FROM jobs")


@SERVERS
def test_the_least_rights_that_are_documented_are_enough(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    id = jobs.add("running", lease_until=-600, tries=0)
    user = grant(jobs, "SELECT, UPDATE")
    monkeypatch.setattr(jobs.place, "url", user)
    wire = jobs.wire()
    assert READER.look(wire, REF).counts.active == 1
    assert READER.job(wire, REF, id).row.state is JobState.ACTIVE
    assert act(Action.REQUEUE, wire, seen(wire, id))[0].outcome is Outcome.DONE
    assert server_uptime.uptime(wire) is not None
    with pytest.raises(StoreError), wire.session() as session:
        session.change("DELETE FROM jobs")


@SERVERS
def test_who_may_only_read_changes_nothing_and_is_told(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    id = jobs.add("running", lease_until=-600)
    user = grant(jobs, "SELECT")
    monkeypatch.setattr(jobs.place, "url", user)
    wire = jobs.wire()
    with pytest.raises(AccessDenied):
        act(Action.REQUEUE, wire, seen(wire, id))
    assert READER.row(wire, REF, id).state is JobState.ACTIVE


def grant(jobs: Jobs, rights: str) -> str:
    """A user of its own with these rights on the table; the URL that it uses."""
    parts = urlsplit(jobs.place.url)
    place: Any = jobs.place
    if jobs.kind == "postgresql":
        place.run("DO $$ BEGIN CREATE ROLE watcher LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        place.run("GRANT USAGE ON SCHEMA public TO watcher")
        place.run(f"GRANT {rights} ON jobs TO watcher")
        return f"postgresql://watcher@{parts.hostname}:{parts.port}{parts.path}"
    place.run_as_root("CREATE USER IF NOT EXISTS 'watcher'@'127.0.0.1' IDENTIFIED BY 'w'")
    place.run_as_root("REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'watcher'@'127.0.0.1'")
    place.run_as_root(f"GRANT {rights} ON app.jobs TO 'watcher'@'127.0.0.1'")
    return f"mysql://watcher:w@{parts.hostname}:{parts.port}{parts.path}"


def test_many_threads_share_a_few_connections(jobs: Jobs) -> None:
    jobs.add("pending")
    wire = jobs.wire(timeout=20)
    with ThreadPoolExecutor(24) as pool:
        counted = list(pool.map(lambda _: READER.look(wire, REF).counts.waiting, range(120)))
    assert counted == [1] * 120
    assert len(wire._idle) <= 4


def test_a_table_that_changes_its_columns_is_looked_at_anew(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = jobs.wire()
    assert works(wire)
    jobs.place.run("ALTER TABLE jobs RENAME COLUMN worker TO agent")
    with pytest.raises(StoreError):
        READER.look(wire, REF)
    with pytest.raises(StatementRefused, match="has no column worker"):
        READER.look(wire, REF)
    jobs.place.run("ALTER TABLE jobs RENAME COLUMN agent TO worker")
    assert works(wire)
