"""What cannot be read of n8n is said, with what is missing, and costs nobody anything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from recovery.domain.n8n.mismatches import MismatchKind
from recovery.n8n.database import executions, schema
from recovery.stores.sql.sql_client import as_sql_client
from tests.support.n8n.n8n_looking import Looks, documented_sql
from tests.support.n8n.n8n_yard import Yard
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Postgresql
from tests.support.waiting import until

pytestmark = pytest.mark.django_db

MINUTES = 240.0
READER = "postgres://reader@127.0.0.1"
Looking = Callable[[str], Looks]


@pytest.fixture
def looking(tmp_path: Path) -> Iterator[Looking]:
    made: list[Looks] = []

    def start(toml: str) -> Looks:
        made.append(Looks(tmp_path, toml))
        return made[-1]

    yield start
    for looks in made:
        looks.close()


@pytest.fixture
def reader(postgresql: Postgresql) -> Iterator[str]:
    """The URL of a user without any right; gone afterwards."""
    postgresql.run("CREATE ROLE reader LOGIN")
    postgresql.run("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    yield postgresql.url.replace("unstall@", "reader@")
    postgresql.run("DROP OWNED BY reader")
    postgresql.run("DROP ROLE reader")


def test_a_database_that_is_away_is_said_and_comes_back(yard: Yard, looking: Looking) -> None:
    looks = looking(yard.toml())
    lost = yard.execution("running", ago=MINUTES)
    assert looks.settled().counts == {MismatchKind.NO_JOB: 1}

    yard.place.server.stop()
    away = looks.look()
    assert away.fault
    assert (away.mismatches, away.pairs) == (0, ())

    yard.place.server.start()
    assert looks.sees(MismatchKind.NO_JOB).id == lost


def test_a_store_that_is_away_is_said_too(serve: Callable[..., Store], yard: Yard, looking: Looking) -> None:
    yard.store = serve()
    looks = looking(yard.toml())
    snapshot = looks.snapshot()
    yard.store.stop()  # type: ignore[attr-defined]
    assert "127.0.0.1" in looks.look(snapshot=snapshot).fault


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DROP TABLE execution_entity CASCADE", "There is no table public.execution_entity."),
        ("DROP TABLE workflow_entity CASCADE", "There is no table public.workflow_entity."),
        ('ALTER TABLE execution_entity DROP COLUMN "waitTill"', "has no column waitTill"),
        ("ALTER TABLE execution_entity ALTER COLUMN id TYPE text", "are of the type text"),
        ('ALTER TABLE execution_entity ALTER COLUMN "startedAt" TYPE text', "is of the type text, not a time"),
    ],
    ids=["no table", "no workflows", "no column", "other ids", "no times"],
)
def test_tables_of_no_known_n8n_are_not_read(yard: Yard, looking: Looking, change: str, said: str) -> None:
    yard.place.run(change)
    truth = looking(yard.toml()).look()
    assert said in truth.fault
    assert truth.pairs == ()


def test_a_schema_that_is_not_there_is_named(yard: Yard, looking: Looking) -> None:
    truth = looking(yard.toml(more='schema = "nowhere"')).look()
    assert truth.fault == "There is no schema nowhere. Write schema as in DB_POSTGRESDB_SCHEMA."


def test_a_column_of_a_newer_n8n_is_read_past_and_keeps_us_from_writing(yard: Yard, looking: Looking) -> None:
    yard.place.run("ALTER TABLE execution_entity ADD COLUMN mood text")
    yard.execution("running", ago=MINUTES)
    looks = looking(yard.toml())
    truth = looks.settled()
    assert truth.counts == {MismatchKind.NO_JOB: 1}
    assert truth.notes == (
        "n8n's executions have the column mood, which no version up to 2.41 has: nothing is written to them.",
    )
    assert schema.cached_tables(as_sql_client(looks.registry.wire("n8n")), looks.n8n).read_only == truth.notes[0]


def test_a_status_that_nobody_knows_is_no_mismatch(yard: Yard, looking: Looking) -> None:
    run = yard.begin(ago=MINUTES)
    yard.update(run.execution, status="napping")
    truth = looking(yard.toml()).settled()
    assert (truth.fault, truth.mismatches) == ("", 0)


def test_it_is_enough_to_read_some_columns_and_the_data_is_never_asked_for(
    yard: Yard, looking: Looking, reader: str
) -> None:
    """The rights that docs/n8n.md hands out, and no more: without any on execution_data."""
    for statement in granted():
        yard.place.run(statement)
    lost = yard.execution("running", ago=MINUTES)
    looks = looking(yard.toml(url=reader))
    truth = looks.settled()
    assert (truth.fault, [pair.id for pair in truth.pairs]) == ("", [lost])
    assert truth.pairs[0].title == "Invoices"
    assert schema.cached_tables(as_sql_client(looks.registry.wire("n8n")), looks.n8n).writable == frozenset()


def granted() -> list[str]:
    """The rights for seeing, as the document has them."""
    sql = documented_sql()[0].replace("unstall_reader", "reader")
    return [one.strip() for one in sql.split(";") if one.strip() and not one.strip().startswith("CREATE ROLE")]


@pytest.mark.parametrize(
    ("grants", "said"),
    [
        ((), "may not use the schema public"),
        (("GRANT USAGE ON SCHEMA public TO reader",), "may not read public.execution_entity, column"),
    ],
    ids=["no schema", "no table"],
)
def test_a_right_that_is_missing_is_named(
    yard: Yard, looking: Looking, reader: str, grants: tuple[str, ...], said: str
) -> None:
    for statement in grants:
        yard.place.run(statement)
    assert said in looking(yard.toml(url=reader)).look().fault


def test_every_read_is_in_a_transaction_that_cannot_write(yard: Yard, looking: Looking) -> None:
    """Even of a user who may do everything: a view in the place of the table tries, and is refused."""
    yard.execution("running", ago=MINUTES)
    yard.place.run("ALTER TABLE execution_entity RENAME TO kept")
    yard.place.run("CREATE TABLE touched (n int)")
    yard.place.run(
        "CREATE FUNCTION touch() RETURNS boolean LANGUAGE sql AS 'INSERT INTO touched VALUES (1) RETURNING true'"
    )
    yard.place.run("CREATE VIEW execution_entity AS SELECT * FROM kept WHERE touch()")
    assert "read-only" in looking(yard.toml()).look().fault
    assert yard.place.run("SELECT count(*) FROM touched") == [(0,)]


def test_a_statement_that_waits_is_given_up_and_said(yard: Yard, looking: Looking) -> None:
    looks = looking(yard.toml().replace("timeout = 10", "timeout = 0.3"))
    looks.look()
    with closing(psycopg.connect(yard.place.url)) as holding:
        holding.execute("LOCK TABLE execution_entity IN ACCESS EXCLUSIVE MODE")
        assert "no answer within 0.3 s" in looks.look().fault
        holding.rollback()
    until(lambda: not looks.look().fault, what="it is asked again")


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[]",
        '{"executionId": "1 OR 1=1", "workflowId": "x"}',
        '{"executionId": "99999999999999999999", "workflowId": "x"}',
        '{"executionId": {"a": 1}, "workflowId": []}',
        json.dumps({"executionId": "1", "padding": "x" * 20_000}),
        "\x00\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
    ids=["nothing", "a list", "sql", "a huge number", "nested", "too long", "bytes"],
)
def test_a_job_that_names_no_execution_is_counted_and_left_out(
    yard: Yard, valkey: Store, looking: Looking, data: str
) -> None:
    job = yard.queue().add("job", {})
    valkey.client.hset(f"bull:jobs:{job}", "data", data.encode("latin-1", "replace"))
    truth = looking(yard.toml()).settled()
    assert (truth.fault, truth.unnamed, truth.mismatches) == ("", 1, 0)


def test_the_largest_id_that_a_job_may_name_is_looked_up(yard: Yard, looking: Looking) -> None:
    yard.enqueue("2147483648")
    yard.enqueue("9999999999")
    truth = looking(yard.toml()).settled()
    assert truth.counts == {MismatchKind.DELETED: 2}


def test_many_are_read_in_steps(yard: Yard, looking: Looking) -> None:
    yard.place.run(
        'INSERT INTO execution_entity (finished, mode, status, "workflowId", "startedAt") '
        "SELECT false, 'webhook', 'running', 'wf', now() - interval '1 hour' FROM generate_series(1, ?)",
        executions.STEP * 2 + 1,
    )
    truth = looking(yard.toml()).settled()
    assert truth.counts == {MismatchKind.NO_JOB: executions.STEP * 2 + 1}
    assert len(truth.pairs) == 1000
