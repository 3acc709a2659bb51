"""A database whose user may not change a job table: the store is asked, and no scanner is promised to sweep there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from recovery.backends.job_tables import permissions as sql_rights
from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.types import VerdictKind
from recovery.reads.scanners import rights_refusals
from recovery.scanners.runtime.store_rights import StoreRightsCheck
from recovery.stores import registry
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, REF, TABLE, Place, Postgresql, TableBench, configured
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)
OTHER = QueueRef("app", "other")


class Reader(Place):
    """The same PostgreSQL, as a user who may read."""

    def __init__(self, server: Postgresql) -> None:
        self.run = server.run  # type: ignore[method-assign] # the application goes on writing
        self.url = server.url.replace("unstall@", "reader@")


@pytest.fixture
def reader(postgresql: Postgresql) -> Iterator[Reader]:
    postgresql.run(JOBS)
    postgresql.run(JOBS.replace("TABLE jobs", "TABLE other"))
    postgresql.run("CREATE ROLE reader LOGIN")
    postgresql.run("GRANT USAGE ON SCHEMA public TO reader")
    postgresql.run("GRANT SELECT ON jobs, other TO reader")
    yield Reader(postgresql)
    registry.reset()
    postgresql.run("DROP OWNED BY reader")
    postgresql.run("DROP ROLE reader")


@pytest.fixture
def serve(
    state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Place], TableBench]]:
    opened = []

    def serve(place: Place) -> TableBench:
        both = TABLE + TABLE.replace('table = "jobs"', 'table = "other"')
        one = configured(tmp_path, monkeypatch, state_store, {"app": place}, both)
        one.__enter__()
        opened.append(one)
        return TableBench(place, state_store)

    yield serve
    for one in opened:
        one.__exit__(None, None, None)


def asked(bench: TableBench) -> TableBench:
    snapshot = bench.collect()
    StoreRightsCheck(registry.registry(), lambda: snapshot).run(now_ms())
    bench.forget()
    return bench


def test_a_user_who_may_write_lacks_nothing(place: Place, serve: Callable[[Place], TableBench]) -> None:
    place.run(JOBS)
    bench = serve(place)
    bench.held(1)
    assert sql_rights.missing_permissions(registry.registry().wire("app"), REF) == ""
    assert bench.states() == {1: "running"}


def test_the_sweep_of_a_table_that_may_only_be_read_is_not_promised(
    reader: Reader, serve: Callable[[Place], TableBench]
) -> None:
    bench = serve(reader)
    bench.orphan(1)
    inbox = asked(bench).watch()
    assert [line.verdict.kind for line in inbox.rows] == [VerdictKind.ABANDONED]
    assert inbox.rows[0].verdict.fate.endswith("Startup-sweep is enabled, but the user of app lacks write permission.")
    assert inbox.people == 1
    assert "permission denied for table jobs" in rights_refusals.words(REF, rights_refusals.newest()["app/jobs"])


def test_one_table_that_may_be_changed_is_swept_beside_one_that_may_not(
    reader: Reader, serve: Callable[[Place], TableBench]
) -> None:
    reader.run("GRANT UPDATE ON other TO reader")
    asked(serve(reader))
    found = rights_refusals.newest()
    assert rights_refusals.refusal_of_queue(REF, found)
    assert rights_refusals.refusal_of_queue(OTHER, found) is None


def test_a_right_to_some_columns_is_not_enough(reader: Reader, serve: Callable[[Place], TableBench]) -> None:
    reader.run("GRANT UPDATE (state, attempts) ON jobs TO reader")
    serve(reader)
    assert "permission denied" in sql_rights.missing_permissions(registry.registry().wire("app"), REF)


def test_a_server_that_takes_no_writes_is_like_a_user_without_rights(
    reader: Reader, serve: Callable[[Place], TableBench]
) -> None:
    reader.run("GRANT UPDATE ON jobs TO reader")
    reader.run("ALTER ROLE reader SET default_transaction_read_only = on")
    serve(reader)
    assert "read-only transaction" in sql_rights.missing_permissions(registry.registry().wire("app"), REF)


def test_triggers_of_the_table_are_not_fired(postgresql: Postgresql, serve: Callable[[Place], TableBench]) -> None:
    postgresql.run(JOBS)
    postgresql.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fired'; END $$"
    )
    postgresql.run("CREATE TRIGGER all_updates BEFORE UPDATE ON jobs FOR EACH STATEMENT EXECUTE FUNCTION refuse()")
    serve(postgresql)
    assert sql_rights.missing_permissions(registry.registry().wire("app"), REF) == ""
    with psycopg.connect(postgresql.url) as connection, pytest.raises(psycopg.errors.RaiseException):
        connection.execute("UPDATE jobs SET state = state WHERE 1 = 0")


def test_what_is_granted_later_is_promised_again(reader: Reader, serve: Callable[[Place], TableBench]) -> None:
    bench = asked(serve(reader))
    assert {"app/jobs", "app/other"} <= rights_refusals.newest().keys()
    reader.run("GRANT UPDATE ON jobs TO reader")
    asked(bench)
    assert rights_refusals.newest().keys() == {"app/other"}
