"""[[n8n]] in the configuration: what it may say, what stands for what is left out, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.config import Config, load
from recovery.config.n8n import DATABASE
from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.lost_executions import CopyLimits
from recovery.domain.time_units import DAY
from recovery.errors import ConfigError
from tests.support.toml import Read, reading, refused

ONE = '[[deployments]]\nname = "shop"\nurl = "redis://localhost/0"\n'
TWO = f'{ONE}[[deployments]]\nname = "flows"\nurl = "redis://localhost/1"\n'
SQL = '[[databases]]\nname = "n8n"\nurl = "postgresql://reader:secret@db/n8n"\n'


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return reading(tmp_path)


def by_variable(tmp_path: Path, toml: str = "", **environ: str) -> Config:
    (tmp_path / "unstall.toml").write_text(toml)
    return load(environ, directory=tmp_path)


def test_what_is_left_out_is_bull_jobs_of_the_only_deployment(read: Read) -> None:
    (n8n,) = read(f'{ONE}{SQL}[[n8n]]\ndatabase = "n8n"').n8n
    assert (n8n.name, n8n.queue, n8n.schema, n8n.table_prefix) == ("n8n", QueueRef("shop", "bull:jobs"), "public", "")


def test_everything_can_be_said(read: Read) -> None:
    (n8n,) = read(
        f'{TWO}{SQL}[[n8n]]\nname = "flows"\nqueue = "flows/acme:jobs"\ndatabase = "n8n"\nschema = "flows"\n'
        'table_prefix = "p_"\neditor = "https://n8n.example.com/"\napi_key_file = "secret"\n'
    ).n8n
    assert (n8n.queue, n8n.schema, n8n.table_prefix) == (QueueRef("flows", "acme:jobs"), "flows", "p_")
    assert (n8n.editor, n8n.api, n8n.api_key) == (
        "https://n8n.example.com",
        "https://n8n.example.com",
        "open sesame",
    )
    assert "open sesame" not in repr(n8n)


def test_its_pools_belong_to_it_and_nothing_else_does(read: Read) -> None:
    config = read(f"{TWO}[[n8n]]\nqueue = 'shop/bull:jobs'")
    (n8n,) = config.n8n
    assert n8n.owns(QueueRef("shop", "bull:jobs"))
    assert n8n.owns(QueueRef("shop", "bull:jobs-heavy"))
    assert not n8n.owns(QueueRef("flows", "bull:jobs"))
    assert not n8n.owns(QueueRef("shop", "bull:jobsite"))
    assert config.n8n_of(QueueRef("shop", "bull:jobs-heavy")) is n8n
    assert config.n8n_of(QueueRef("shop", "bull:mail")) is None


def test_one_variable_is_enough_and_nothing_is_written_by_it(tmp_path: Path) -> None:
    config = by_variable(tmp_path, UNSTALL_REDIS_URL="redis://r/0", UNSTALL_N8N_DATABASE_URL="postgresql://u:p@db/n8n")
    (n8n,) = config.n8n
    (database,) = config.databases
    assert (n8n.queue, n8n.database) == (QueueRef("main", "bull:jobs"), DATABASE)
    assert (database.name, database.read_only, database.host) == (DATABASE, True, "db")


def test_the_variable_completes_the_one_that_names_no_database(tmp_path: Path) -> None:
    toml = f'{ONE}[[n8n]]\neditor = "https://n8n.example.com"'
    (n8n,) = by_variable(tmp_path, toml, UNSTALL_N8N_DATABASE_URL="postgresql://u:p@db/n8n").n8n
    assert (n8n.database, n8n.editor) == (DATABASE, "https://n8n.example.com")


@pytest.mark.parametrize(
    ("toml", "environ", "said"),
    [
        (f'{ONE}{SQL}[[n8n]]\ndatabase = "n8n"', "postgresql://u:p@db/other", "also names a database"),
        (TWO, "postgresql://u:p@db/n8n", "names no deployment"),
        (
            ONE,
            "mysql://u:hidden@db/n8n",
            "DATABASE_URL: is the URL of a MySQL or MariaDB database. Executions are read in",
        ),
        (
            ONE,
            "sqlite:////n8n.sqlite",
            "DATABASE_URL: is the URL of a SQLite file. .* queue mode does not support SQLite",
        ),
        (ONE, "postgresql://u:hidden word@db/n8n", "in a password or a path a space is %20"),
        (ONE, "http://u:hidden@db/n8n", "is not the URL of a database"),
    ],
    ids=["two databases", "two deployments", "mysql", "sqlite", "a space", "no database"],
)
def test_a_variable_that_cannot_be_meant_is_refused(tmp_path: Path, toml: str, environ: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        by_variable(tmp_path, toml, UNSTALL_N8N_DATABASE_URL=environ)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('name = "N 8 N"', "n8n[1].name"),
        ('queue = "nowhere/bull:jobs"', "n8n[1].queue"),
        ('queue = "shop/"', "n8n[1].queue"),
        ('database = "none"', "n8n[1].database"),
        ('database = "file"', "n8n[1].database"),
        ("schema = 'a\"; DROP'", "n8n[1].schema"),
        ("table_prefix = 'a.b'", "n8n[1].table_prefix"),
        ('editor = "javascript:alert(1)"', "n8n[1].editor"),
        ('editor = "https://u:p@n8n"', "n8n[1].editor"),
        ('editor = "https://n8n/?a=b"', "n8n[1].editor"),
        ('api = "n8n.example.com"', "n8n[1].api"),
        ('api_key = "a"', "n8n[1].api_key"),
        ('editor = "https://n8n"\napi_key = "a\\nb"', "n8n[1].api_key"),
        ('editor = "https://n8n"\napi_key = "a"\napi_key_file = "secret"', "n8n[1].api_key_file"),
        ("unknown = 1", "n8n[1].unknown"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_told_with_its_key(read: Read, written: str, key: str) -> None:
    rest = '[[databases]]\nname = "file"\nurl = "sqlite:////tmp/x"\n'
    assert refused(read, f"{ONE}{rest}[[n8n]]\n{written}") == {key}


def test_a_database_that_n8n_is_not_read_in_is_named_with_the_one_that_is(read: Read) -> None:
    rest = '[[databases]]\nname = "n8n"\nurl = "mysql://u:p@db/n8n"\n'
    with pytest.raises(ConfigError, match=r"is 'n8n', a MySQL or MariaDB database\. Executions are read in PostgreSQL"):
        read(f'{ONE}{rest}[[n8n]]\ndatabase = "n8n"')


def test_a_base_alone_is_refused_where_there_are_several_deployments(read: Read) -> None:
    assert refused(read, f"{TWO}[[n8n]]\n") == {"n8n[1].queue"}


def test_two_of_one_name_or_of_one_queue_are_refused(read: Read) -> None:
    assert refused(read, f"{ONE}[[n8n]]\n[[n8n]]\n") == {"n8n"}


def test_copies_are_kept_within_limits_unless_they_are_turned_off(read: Read) -> None:
    (n8n,) = read(f'{ONE}{SQL}[[n8n]]\ndatabase = "n8n"').n8n
    assert n8n.copies == CopyLimits(is_on=True, each=4 << 20, total=256 << 20, count=1000, keep=7 * DAY)
    (n8n,) = read(f"{ONE}[[n8n]]\n[n8n.copies]\nkeep = false\nmegabytes_each = 0.5\ndays = 1").n8n
    assert (n8n.copies.is_on, n8n.copies.each, n8n.copies.keep) == (False, 512 << 10, DAY)


def test_a_workflow_is_named_with_why_its_steps_may_run_twice(read: Read) -> None:
    rescue = '[[n8n.rescue]]\nworkflow = "wf1"\nidempotent = "each step\\n asks once"\n'
    (n8n,) = read(f"{ONE}[[n8n]]\n{rescue}").n8n
    assert (n8n.idempotent, n8n.automatic) == ({"wf1": "each step asks once"}, frozenset())
    (n8n,) = read(f"{ONE}[[n8n]]\n{rescue}automatic = true").n8n
    assert n8n.automatic == {"wf1"}


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('workflow = "wf1"', "n8n[1].rescue[1].idempotent"),
        ('idempotent = "it is"', "n8n[1].rescue[1].workflow"),
        (f'workflow = "wf1"\nidempotent = "{"x" * 301}"', "n8n[1].rescue[1].idempotent"),
        (
            'workflow = "wf1"\nidempotent = "a"\n[[n8n.rescue]]\nworkflow = "wf1"\nidempotent = "b"',
            "n8n[1].rescue[2].workflow",
        ),
    ],
    ids=["no note", "no workflow", "a long note", "twice"],
)
def test_half_of_a_permission_is_refused(read: Read, written: str, key: str) -> None:
    assert key in refused(read, f"{ONE}[[n8n]]\n[[n8n.rescue]]\n{written}")
