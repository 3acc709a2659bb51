"""Setting up n8n as docs/n8n.md has it: SQL that runs as it stands, and a doctor who tries all that was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recovery import config
from tests.support.doctor import Doctor, doctor_in, says
from tests.support.n8n import n8n_schema
from tests.support.n8n.n8n_api import KEY, PublicApi
from tests.support.n8n.n8n_looking import documented_sql
from tests.support.n8n.n8n_yard import Yard
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Postgresql
from tests.support.stuck.watching import bullmq

pytestmark = pytest.mark.django_db(transaction=True)
ROLE = "unstall_reader"
PASSWORD = "s/e#c?r:e@t [1]%"
ENCODED = "s%2Fe%23c%3Fr%3Ae%40t%20%5B1%5D%25"


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any) -> Iterator[Doctor]:
    settings.DATA_DIR = tmp_path / "home"
    with doctor_in(monkeypatch) as run:
        yield run


@pytest.fixture
def database(postgresql: Postgresql) -> Iterator[Postgresql]:
    """n8n's, in which nobody has any right yet; roles of the document are gone afterwards."""
    postgresql.empty()
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        n8n_schema.create(connection, "2.41")
    yield postgresql
    roles = postgresql.run("SELECT rolname FROM pg_roles WHERE rolname ~ '^unstall_'")
    for (role,) in roles:
        postgresql.run(f"DROP OWNED BY {role}")
        postgresql.run(f"DROP ROLE {role}")


@pytest.fixture
def passwords(database: Postgresql) -> Iterator[None]:
    """This server asks the role for its password, and lets nobody else in but its superuser and unstall_nobody."""
    ((file,),) = database.run("SHOW hba_file")
    hba = Path(file)
    before = hba.read_text()
    lines = f"host all {ROLE} 127.0.0.1/32 scram-sha-256\nhost all unstall_nobody 127.0.0.1/32 trust\n"
    hba.write_text(lines + before.replace("all             all", "all             unstall"))
    database.run("SELECT pg_reload_conf()")
    yield
    hba.write_text(before)
    database.run("SELECT pg_reload_conf()")


def url(database: Postgresql, role: str = ROLE, password: str = "choose-a-password") -> str:
    return database.url.replace("unstall@", f"{role}:{password}@")


def pasted(database: Postgresql, *blocks: str) -> None:
    """One after the other, as whoever pastes them into psql runs them."""
    with closing(psycopg.connect(database.url, autocommit=True)) as connection:
        connection.execute("".join(blocks).encode())


def test_the_documented_grants_for_seeing_are_enough_to_see(
    doctor: Doctor, valkey: Store, database: Postgresql
) -> None:
    pasted(database, documented_sql()[0])
    _, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_N8N_DATABASE_URL=url(database))
    said = says(report, "n8n n8n", "ok")
    assert "Its tables are those of n8n 2" in said
    assert "our user may only read" in said
    assert not says(report, "n8n", "wrong")


def test_the_documented_grants_for_repairs_run_after_those_for_seeing(
    doctor: Doctor, valkey: Store, database: Postgresql
) -> None:
    pasted(database, *documented_sql())
    _, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_N8N_DATABASE_URL=url(database))
    assert "marking a row is possible" in says(report, "n8n n8n", "ok")
    with psycopg.connect(url(database)) as connection:
        connection.execute('SELECT "executionId", data FROM execution_data')


def test_each_documented_statement_is_ended() -> None:
    """Of the last one without its semicolon psql waits for the rest."""
    for block in documented_sql():
        bare = re.sub(r"\s*--.*", "", block).strip()
        assert bare.endswith(";")


@pytest.mark.usefixtures("passwords")
def test_a_password_that_is_encoded_as_documented_logs_in(doctor: Doctor, valkey: Store, database: Postgresql) -> None:
    pasted(database, documented_sql()[0])
    pasted(database, f"ALTER ROLE {ROLE} PASSWORD '{PASSWORD}'")
    _, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_N8N_DATABASE_URL=url(database, password=ENCODED))
    assert "Its tables are those of n8n 2" in says(report, "n8n n8n", "ok")


def test_a_password_that_is_not_encoded_is_refused_with_how_to(doctor: Doctor, database: Postgresql) -> None:
    status, report = doctor(UNSTALL_N8N_DATABASE_URL=url(database, password=PASSWORD.replace(" ", "")))
    said = says(report, "configuration", "wrong")
    assert status == 1
    assert "UNSTALL_N8N_DATABASE_URL" in said
    assert "/ is %2F" in said
    assert "e@t" not in said


REFUSALS = {
    "password": ("", "", "PostgreSQL refuses the login: check user and password in the URL"),
    "role": ("unstall_nobody", "", "CREATE ROLE … LOGIN PASSWORD … makes it (docs/n8n.md)."),
    "pg_hba.conf": ("unstall_elsewhere", "", "a line of PostgreSQL's pg_hba.conf"),
    "database": ("", "n8m", "Check the database's name, behind the last / of the URL."),
}


@pytest.mark.usefixtures("passwords")
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_of_postgresql_is_explained_as_its_own(
    doctor: Doctor, valkey: Store, database: Postgresql, refusal: str
) -> None:
    role, name, said = REFUSALS[refusal]
    pasted(database, documented_sql()[0])
    written = url(database, role or ROLE, "choose-a-password" if name else "wrong")
    if name:
        written = f"{written.rpartition('/')[0]}/{name}"
    status, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_N8N_DATABASE_URL=written)
    found = says(report, "n8n n8n", "wrong")
    assert status == 1
    assert said in found
    assert "ACL" not in found
    assert "wrong" not in found


def test_a_right_that_is_missing_while_it_runs_is_no_matter_of_an_acl(
    doctor: Doctor, valkey: Store, database: Postgresql, tmp_path: Path
) -> None:
    """A job table that our user may not read."""
    pasted(database, documented_sql()[0])
    database.run("CREATE TABLE imports (id int PRIMARY KEY, state text)")
    (tmp_path / "unstall.toml").write_text(
        f'[[databases]]\nname = "app"\nurl = "{url(database)}"\n[[tables]]\ndatabase = "app"\ntable = "imports"\n'
    )
    _, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_CONFIG=str(tmp_path / "unstall.toml"))
    found = says(report, "", "wrong")
    assert "permission denied" in found
    assert "Grant it to the user in the URL" in found
    assert "ACL" not in found


# -- the key of n8n's public API


@pytest.fixture(params=["1.123", "2.41"])
def yard(request: pytest.FixtureRequest, valkey: Store, postgresql: Postgresql, libraries: Fleet) -> Yard:
    """What a real 1.123.5 and a real 2.41.1 answered."""
    return Yard(valkey, postgresql, libraries, release=request.param)


@pytest.fixture
def examined(doctor: Doctor, yard: Yard, tmp_path: Path) -> Iterator[Callable[..., tuple[int, dict[str, Any]]]]:
    """What the doctor says of an n8n whose API is there, with this key."""

    def run(address: str, key: str = KEY) -> tuple[int, dict[str, Any]]:
        bullmq(yard.store.client, "bull:jobs")
        (tmp_path / "unstall.toml").write_text(yard.toml(more=f'api = "{address}"\napi_key = "{key}"'))
        return doctor(UNSTALL_CONFIG=str(tmp_path / "unstall.toml"))

    yield run
    config.current.cache_clear()


Examined = Callable[..., tuple[int, dict[str, Any]]]


@pytest.mark.node
def test_a_key_that_n8n_accepts_is_said_with_its_scope(examined: Examined, api: PublicApi) -> None:
    _, report = examined(api.url)
    assert f"{api.url} accepts the API key for a retry (execution:retry)." in says(report, "n8n", "ok")
    assert not says(report, "n8n", "wrong")


@pytest.mark.node
def test_trying_the_key_runs_nothing(examined: Examined, api: PublicApi) -> None:
    before = api.yard.execution("error", ago=60, stopped=60)
    examined(api.url)
    assert api.made == []
    assert [asked.path for asked in api.asked] == ["/api/v1/executions/0/retry"]
    assert api.yard.status(before) == "error"


@pytest.mark.node
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("key", "n8n does not accept our API key"),
        ("scope", "n8n's API key lacks the scope execution:retry."),
        ("path", "n8n 1.112 or later"),
        (302, "redirects are not followed"),
        ("garbage", "not like n8n"),
        ("reset", "closed the connection"),
    ],
)
def test_a_key_that_cannot_retry_is_wrong(examined: Examined, api: PublicApi, fault: int | str, said: str) -> None:
    if fault == "scope":
        api.scopes = {"execution:read"}
    elif fault not in ("key", "path"):
        api.faults.append(fault)
    address = f"{api.url}/elsewhere" if fault == "path" else api.url
    status, report = examined(address, "another-key" if fault == "key" else KEY)
    found = says(report, "n8n", "wrong")
    assert status == 1
    assert said in found
    assert "no execution can be retried" in found
    assert KEY not in str(report)


@pytest.mark.node
def test_a_key_that_sees_no_workflow_is_a_warning(examined: Examined, api: PublicApi) -> None:
    """A new n8n has none. 2.41 does not say so of execution 0."""
    api.sees_workflows = False
    _, report = examined(api.url)
    assert ("sees no workflow" in says(report, "n8n", "warning")) is (api.yard.release == "1.123")
    assert not says(report, "n8n", "wrong")


@pytest.mark.node
def test_an_n8n_that_is_away_is_wrong(examined: Examined) -> None:
    status, report = examined("http://127.0.0.1:9")
    assert status == 1
    assert "n8n cannot be reached: connection refused." in says(report, "n8n", "wrong")
