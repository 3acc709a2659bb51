"""Clock of the database: the one clock that all processes share that write there."""

from __future__ import annotations

from django.db import connection

# In milliseconds. PostgreSQL's now() would be the start of the transaction.
CLOCK = {
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
}


def now() -> int:
    """Returns the database's time in ms. Raises django.db.Error."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + CLOCK[connection.vendor])
        (told,) = cursor.fetchone()
        return int(told)
