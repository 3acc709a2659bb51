"""[[databases]] and [[tables]]: what is enough, and what is refused, all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.config import Config, Deployment, Engine, JobTable, TableColumns, TableStates, load
from recovery.domain.jobs import JobState
from recovery.errors import ConfigError, DeploymentMissing, Problem

DATABASE = '[[databases]]\nname = "app"\nurl = "postgresql://u:p%40w@h/app"\n'
TABLE = '[[tables]]\ndatabase = "app"\ntable = "jobs"\n'


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Config]:
    def load_from(toml: str, **environ: str) -> Config:
        (tmp_path / "unstall.toml").write_text(toml)
        return load(environ, directory=tmp_path)

    return load_from


Read = Callable[..., Config]


def refused(read: Read, toml: str, **environ: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        read(toml, **environ)
    return caught.value.problems


def test_a_database_and_a_table_are_enough(read: Read) -> None:
    config = read(DATABASE + TABLE)
    (database,) = config.databases
    assert (database.engine, database.host, database.port, database.path) == (Engine.POSTGRESQL, "h", 5432, "app")
    assert (database.username, database.password, database.label) == ("u", "p@w", "app")
    assert config.tables == (JobTable("app", "jobs", "jobs"),)
    assert (database.read_only, database.timeout) == (False, 2.0)


def test_a_database_is_a_deployment_whose_queues_are_its_tables(read: Read) -> None:
    config = read(DATABASE + TABLE, UNSTALL_REDIS_URL="redis://queues")
    assert config.deployment("app") is config.databases[0]
    assert isinstance(config.deployment("main"), Deployment)
    assert [deployment.name for deployment in config.deployments] == ["main"]
    assert config.table("app", "jobs") == config.tables_of("app")[0]
    with pytest.raises(DeploymentMissing, match="main, app"):
        config.deployment("other")


def test_the_password_is_never_shown(read: Read) -> None:
    config = read(DATABASE)
    assert "p@w" not in repr(config)
    assert "p%40w" not in repr(config)
    assert config.databases[0].target == "postgresql://u@h:5432/app"


def test_every_key_of_a_table_arrives(read: Read) -> None:
    toml = """
[[tables]]
database = "app"
table = "work.jobs"
name = "imports"
id = "job_id"
state = "stage"
queued = "pending"
running = ["importing", "parsing"]
done = 2
failed = ["failed", -1]
name_column = "kind"
attempts = "tries"
max_attempts = "most"
attempts_limit = 5
last_error = "error"
queued_at = "q"
started_at = "s"
finished_at = "f"
lease_until = "l"
lease_grace = 1.5
heartbeat = "b"
heartbeat_limit = 30
age_limit = 3600
owner = "who"
data = "payload"
timezone = "Europe/Berlin"
"""
    (table,) = read(DATABASE + toml).tables
    columns = TableColumns(
        "job_id", "stage", "kind", "tries", "most", "error", "q", "s", "f", "l", "b", "who", "payload"
    )
    states = TableStates(("pending",), ("importing", "parsing"), (2,), ("failed", -1))
    assert table == JobTable(
        "app", "imports", "work.jobs", columns, states, 5, 1500, 30_000, 3_600_000, "Europe/Berlin"
    )
    assert table.states.named("parsing") is JobState.ACTIVE
    assert (table.states.named(2), table.states.named("2")) == (JobState.COMPLETED, JobState.COMPLETED)
    assert table.states.named("anything") is JobState.UNKNOWN


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("postgres://h:6000/db", "postgresql://h:6000/db"),
        ("mysql://u:p@h/db", "mysql://u@h:3306/db"),
        ("mariadb://h/db", "mysql://h:3306/db"),
        ("postgresql://[::1]/db?sslmode=require", "postgresql://[::1]:5432/db"),
        ("sqlite:////var/lib/app.db", "sqlite:////var/lib/app.db"),
    ],
)
def test_the_forms_of_a_url(read: Read, url: str, target: str) -> None:
    assert read(DATABASE.replace("postgresql://u:p%40w@h/app", url)).databases[0].target == target


def test_a_relative_file_is_beside_the_configuration(read: Read, tmp_path: Path) -> None:
    database = read(DATABASE.replace("postgresql://u:p%40w@h/app", "sqlite:///data/app.db")).databases[0]
    assert database.path == str(tmp_path / "data" / "app.db")


@pytest.mark.parametrize(
    "url", ["redis://h", "oracle://h/x", "postgresql://h", "postgresql:///x", "sqlite://", "sqlite://h/x", "nonsense",
            "mysql://h/a/b", "postgresql://h:port/x", "postgresql://h/x?connect_timeout=1", "postgresql://h /x"],
)  # fmt: skip
def test_a_url_that_is_of_no_use_is_refused_without_its_password(read: Read, url: str) -> None:
    (problem,) = refused(read, DATABASE.replace("postgresql://u:p%40w@h/app", url))
    assert problem.key == "databases[1].url"
    secret = url.replace("//h", "//u:secret@h")
    assert "secret" not in str(refused(read, DATABASE.replace("postgresql://u:p%40w@h/app", secret))[0])


def test_the_url_may_come_from_a_file(read: Read, tmp_path: Path) -> None:
    (tmp_path / "app-url").write_text("mysql://u:p@h/db\n")
    toml = '[[databases]]\nname = "app"\nurl_file = "app-url"\n'
    assert read(toml).databases[0].password == "p"
    (problem,) = refused(read, toml + 'url = "mysql://h/x"\n')
    assert problem.key == "databases[1].url_file"
    (problem,) = refused(read, '[[databases]]\nname = "app"\n')
    assert "Write url or url_file" in str(problem)


@pytest.mark.parametrize(
    ("wrong", "key", "said"),
    [
        ('database = "other"', "tables[1].database", "which no [[databases]] names"),
        ('table = ""', "tables[1].table", "is missing"),
        ("table = 'jo\"bs'", "tables[1].table", "not a table name"),
        ('table = "a.b.c"\nname = "x"', "tables[1].table", "not a table name"),
        ('table = "jobs; DROP TABLE x"\nname = "x"', "tables[1].table", "not a table name"),
        ('name = "my jobs"', "tables[1].name", "cannot be used in a URL"),
        ('name = "a/b"', "tables[1].name", "cannot be used in a URL"),
        ("owner = 'a\"b'", "tables[1].owner", "not a column name"),
        ('owner = "50%"', "tables[1].owner", "not a column name"),
        ('id = ""', "tables[1].id", "is empty"),
        ('state = ""', "tables[1].state", "is empty"),
        ("running = []", "tables[1].running", "is empty"),
        ("running = [1.5]", "tables[1].running", "Write a string, an integer"),
        ("running = true", "tables[1].running", "Write a string, an integer"),
        ('done = "failed"', "tables[1].failed", "which is also in done"),
        ('running = ["1", 1]', "tables[1].running", "which is also in running"),
        ("age_limit = 60", "tables[1].age_limit", "set without started_at"),
        ('timezone = "Mars/Base"', "tables[1].timezone", "is 'Mars/Base'"),
        ('heartbeat_limit = "1 min"', "tables[1].heartbeat_limit", "Write a number"),
        ("max_attempts = 5", "tables[1].max_attempts", "Write a string in quotes"),
        ('colour = "red"', "tables[1].colour", "is not a setting"),
    ],
)
def test_what_a_table_cannot_be_is_refused(read: Read, wrong: str, key: str, said: str) -> None:
    table = dict(line.split(" = ", 1) for line in (TABLE + wrong).splitlines() if " = " in line)
    toml = "[[tables]]\n" + "\n".join(f"{name} = {value}" for name, value in table.items())
    problems = refused(read, f"{DATABASE}{toml}\n")
    assert [problem.key for problem in problems] == [key]
    assert said in str(problems[0])


def test_two_tables_do_not_share_a_name_nor_a_database_that_of_a_deployment(read: Read) -> None:
    (problem,) = refused(read, DATABASE + TABLE + TABLE)
    assert "has 'app/jobs' twice" in str(problem)
    (problem,) = refused(read, DATABASE.replace('"app"', '"main"', 1), UNSTALL_REDIS_URL="redis://x")
    assert "has 2 named 'main'" in str(problem)


def test_the_tables_of_our_own_database_are_no_job_tables(read: Read, tmp_path: Path) -> None:
    own = "postgresql://other:login@h/app"
    toml = DATABASE + TABLE.replace('"jobs"', '"recovery_auditentry"')
    (problem,) = refused(read, toml, DATABASE_URL=own)
    assert "a table of Unstall" in str(problem)
    assert read(toml, DATABASE_URL="postgresql://elsewhere/app").tables
    assert read(DATABASE + TABLE, DATABASE_URL=own).tables


def test_thresholds_and_policies_may_name_a_table(read: Read) -> None:
    config = read(DATABASE + TABLE + '[[queues]]\nname = "app/jobs"\noverdue_after = 60\n')
    assert config.thresholds_of("app", "jobs").overdue_after == 60_000
