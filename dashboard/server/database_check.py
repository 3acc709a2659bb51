"""Checks that our own database answers, is migrated and takes writes, by trying: no setting of it says so.

A database that was made read-only, a standby and a full disk all answer every read. So the check writes. On SQLite that
is one page, with a number in the file's head that nobody else uses. On PostgreSQL it would leave a dead row each time,
so there the check asks to change a row that does not exist, which a read-only server refuses, and lets the server put
a megabyte aside on its disk, which a full one refuses.
"""

from __future__ import annotations

from django.db import DatabaseError, connection, connections, transaction

from dashboard.base.error_pages import is_unmigrated
from dashboard.models import User

SILENT = "does not answer"
UNMIGRATED = "is not migrated"
READ_ONLY = "cannot be written to"
_NOBODY = -1
_WRITES = {
    "sqlite": ("PRAGMA user_version = 1",),
    "postgresql": (
        "SET LOCAL work_mem = '64kB'",
        "WITH aside AS MATERIALIZED (SELECT repeat('x', 8000) FROM generate_series(1, 128)) SELECT count(*) FROM aside",
    ),
}


def find_problem() -> tuple[str, str]:
    """Returns the problem in a few words and the driver's message; "" twice: none. Blocks while it is locked."""
    try:
        return _read() or _write() or ("", "")
    finally:
        connections.close_all()


def _read() -> tuple[str, str] | None:
    try:
        User.objects.exists()  # of a real table: an empty file in the place of the database answers everything else
    except DatabaseError as error:
        return (UNMIGRATED if is_unmigrated(error) else SILENT), str(error)
    return None


def _write() -> tuple[str, str] | None:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            User.objects.filter(pk=_NOBODY).update(is_active=False)
            for statement in _WRITES[connection.vendor]:
                cursor.execute(statement)
    except DatabaseError as error:
        return READ_ONLY, str(error)
    return None
