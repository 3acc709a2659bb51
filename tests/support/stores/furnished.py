"""Databases with our own tables: migrated once in a test run, and copied for whoever wants one."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Self

import psycopg
import pytest

from tests.support.processes.schedulers import DATABASE, furnish, migrate
from tests.support.stores.postgres import Postgres, programs

KINDS = ("sqlite", "postgresql")
_TEMPLATE = "ours"


class Furnished:
    """One PostgreSQL serves all; what would stop it brings its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._server: Postgres | None = None
        self._numbers = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def database(self, kind: str, directory: Path) -> str:
        """The URL of a new one. Skips, with the reason, what this machine cannot run."""
        if kind == "sqlite":
            furnish(directory)
            return f"sqlite:///{directory / DATABASE}"
        self._server = self._server or self._started()
        name = f"copy{next(self._numbers)}"
        _ask(self._server, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        return self._server.database(name)

    def _started(self) -> Postgres:
        if programs() is None:
            pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
        server = self._stack.enter_context(Postgres())
        _ask(server, f"CREATE DATABASE {_TEMPLATE}")
        migrate(self._folder, {"DATABASE_URL": server.database(_TEMPLATE)})
        return server


def _ask(server: Postgres, statement: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement.encode())
