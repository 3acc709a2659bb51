"""`manage.py migrate` started several times at once, as by several servers of one deployment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Postgres, programs
from tests.processes import end, spawn
from tests.web_process import ROOT, environ_of

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
    again = subprocess.run([*command, "--check"], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout
