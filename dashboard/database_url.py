"""Turns `DATABASE_URL` into Django's settings: SQLite in the data directory, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

SCHEMES = ("sqlite", "postgres", "postgresql")
BUSY_SECONDS = 5  # writers of three processes queue this long for SQLite's one lock
CONNECT_SECONDS = 3  # a dead PostgreSQL must not hold a page
STATEMENT_MS = 15_000  # no page asks the database for anything longer
# A process that is stopped or swapped out in the midst of a transaction keeps its locks, also that of the audit's
# end, without which no action is possible. Our own transactions wait for nothing but the database meanwhile.
IDLE_MS = 10_000
# A server that vanished from the network is noticed within some ten seconds. TCP by itself takes a quarter of an hour.
_CUT = {"tcp_user_timeout": 6_000, "keepalives_idle": 4, "keepalives_interval": 2, "keepalives_count": 3}

# FULL: what the audit says will be done must outlive a power cut that follows it.
_SQLITE_SETUP = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"


def database_settings(url: str, *, pooled: bool = True) -> dict[str, Any]:
    """Returns the DATABASES entry. Under ASGI a request's thread ends with it: connections are pooled, never kept."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":  # three slashes: relative, four: absolute
        return sqlite(Path(unquote(parts.path[1:])))
    return {
        "ENGINE": "dashboard.postgres" if pooled else "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "connect_timeout": CONNECT_SECONDS,
            "options": f"-c statement_timeout={STATEMENT_MS} -c idle_in_transaction_session_timeout={IDLE_MS}",
            **_CUT,
            **dict(parse_qsl(parts.query)),
        },
    }


def sqlite(path: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "timeout": BUSY_SECONDS,
            # A transaction that reads first and writes later cannot wait for the lock; one that begins with it can.
            "transaction_mode": "IMMEDIATE",
            "init_command": _SQLITE_SETUP,
        },
    }
