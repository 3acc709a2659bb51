"""`DATABASE_URL` as Django wants it: SQLite in the data directory, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

SCHEMES = ("sqlite", "postgres", "postgresql")
BUSY_SECONDS = 5  # writers of three processes queue this long for SQLite's one lock
CONNECT_SECONDS = 3  # a dead PostgreSQL must not hold a page
STATEMENT_MS = 15_000  # no page asks the database for anything longer
# A process that is stopped or swapped out in the midst of a transaction keeps its locks, that of the audit's end among
# them, with which nobody could act. None of ours waits for anything but the database meanwhile.
IDLE_MS = 10_000
POOL = {"min_size": 0, "max_size": 8, "timeout": CONNECT_SECONDS}  # a process serves pages from few threads

# FULL: what the audit says will be done must outlive a power cut that follows it.
_SQLITE_SETUP = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"


def settings_of(url: str, *, pooled: bool = True) -> dict[str, Any]:
    """The DATABASES entry. Under ASGI a request's thread ends with it, so connections are pooled, never kept."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":  # three slashes: relative, four: absolute
        return sqlite(Path(unquote(parts.path[1:])))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,  # a connection of the pool may have died with the server that it led to
        "OPTIONS": {
            "connect_timeout": CONNECT_SECONDS,
            "options": f"-c statement_timeout={STATEMENT_MS} -c idle_in_transaction_session_timeout={IDLE_MS}",
            **dict(parse_qsl(parts.query)),
            **({"pool": POOL} if pooled else {}),
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
