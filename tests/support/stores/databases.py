"""Databases of applications for tests: a file, a PostgreSQL and a MariaDB, one of each for a whole session."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from tests.support.stores import mariadb, postgres
from tests.support.stores.table_bench import Place, Postgresql, Sqlite
from tests.support.stores.tables import Mariadb


class Databases:
    """Servers start when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._places: dict[str, Place] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def place(self, kind: str) -> Place:
        """Empty. Skips, with the reason, what this machine cannot run."""
        if kind not in self._places:
            self._places[kind] = self._started(kind)
        self._places[kind].empty()
        return self._places[kind]

    def _started(self, kind: str) -> Place:
        if kind == "sqlite":
            return Sqlite(self._folder / "app.sqlite3")
        if kind == "postgresql":
            if postgres.programs() is None:
                pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
            return Postgresql(self._stack.enter_context(postgres.Postgres()))
        if mariadb.programs() is None:
            pytest.skip("MariaDB is not installed (Debian: apt install mariadb-server)")
        return Mariadb(self._stack.enter_context(mariadb.MariaDb()))
