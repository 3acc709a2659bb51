"""`manage.py migrate` started several times at once, as by several servers of one deployment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.processes import end, run, spawn, succeed
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.postgres import Postgres, programs

AT_ONCE = 3


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.sqlite3'}"
        return
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with Postgres() as server:
        yield server.url


def test_all_who_migrate_at_once_succeed(database: str, tmp_path: Path) -> None:
    environ = environ_of(tmp_path, {"DATABASE_URL": database})
    command = [sys.executable, "manage.py", "migrate"]
    with (tmp_path / "said").open("wb") as said:
        at_once = [spawn(command, environ=environ, directory=ROOT, stdout=said, stderr=said) for _ in range(AT_ONCE)]
    try:
        statuses = [process.wait(120) for process in at_once]
    finally:
        for process in at_once:
            end(process)
    assert statuses == [0] * AT_ONCE, (tmp_path / "said").read_text()
    again = run("manage.py", "migrate", "--check", environ=environ)
    assert again.returncode == 0, again.stdout


# An installation of before: sessions with their keys in plain, and the tables of a package that counted failures.
_FROM_BEFORE = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
import django; django.setup()
from django.core.management import call_command
from django.db import connection
call_command("migrate", "dashboard", "0002", verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE django_session (session_key varchar(40) PRIMARY KEY)")
    cursor.execute("INSERT INTO django_session VALUES ('in plain')")
    cursor.execute("CREATE TABLE axes_accessattempt (id integer PRIMARY KEY)")
    columns = "access_attempt_id integer PRIMARY KEY REFERENCES axes_accessattempt (id)"
    cursor.execute(f"CREATE TABLE axes_accessattemptexpiration ({columns})")
call_command("migrate", verbosity=0)
left = [name for name in connection.introspection.table_names() if name.startswith(("django_session", "axes_"))]
assert left == [], left
"""


def test_sessions_whose_keys_were_kept_in_plain_are_gone_after_an_update(database: str, tmp_path: Path) -> None:
    environ = environ_of(tmp_path, {"DATABASE_URL": database})
    succeed("-c", _FROM_BEFORE, environ=environ)
