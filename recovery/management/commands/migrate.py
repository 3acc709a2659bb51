"""Runs Django's `migrate` under a lock: a second one waits for the first, and finds nothing to do."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.commands import migrate
from django.db import connections

LOCK = 0x756E7374  # id of a PostgreSQL advisory lock, in the database that is migrated


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        with _alone(connection):
            super().handle(*args, **options)


@contextmanager
def _alone(connection: Any) -> Iterator[None]:
    """Holds a lock of PostgreSQL's, or one of a file beside SQLite's, while it lasts."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 0")  # however long the other one takes
            cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
            cursor.execute("RESET statement_timeout")
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        return
    place = Path(str(connection.settings_dict["NAME"]))
    if connection.is_in_memory_db() or not place.parent.is_dir():  # unshared, or migrate reports the error
        yield
        return
    with place.with_name(f"{place.name}.migrating").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
