"""Settings of Django's backends for a database with job tables, engine by engine."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from recovery.config import Database, Engine

CONNECT_SECONDS = 3  # libpq takes whole seconds, and at least two
_ENGINES = {
    Engine.POSTGRESQL: "django.db.backends.postgresql",
    Engine.MYSQL: "django.db.backends.mysql",
    Engine.SQLITE: "django.db.backends.sqlite3",
}
_ABANDONED_MS = 10_000  # a transaction of ours that says nothing for so long is ended by the server, with its locks


def django_settings(database: Database) -> dict[str, Any]:
    """Returns one complete entry as in DATABASES: outside of Django's settings no defaults are filled in."""
    return {
        "ENGINE": _ENGINES[database.engine],
        "NAME": database.path,
        "USER": database.username,
        "PASSWORD": database.password,
        "HOST": database.host,
        "PORT": str(database.port or ""),
        "ATOMIC_REQUESTS": False,
        "AUTOCOMMIT": True,
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": False,
        "TIME_ZONE": None,
        "TEST": {},
    } | _OWN[database.engine](database)


def prepare(change: Callable[[str], int], connection: Any, database: Database) -> None:
    """Sets the limits that can be set only once it is connected."""
    if database.engine is not Engine.MYSQL:
        return
    seconds = database.timeout
    if connection.mysql_is_mariadb:
        change(f"SET SESSION max_statement_time = {seconds:.3f}")
    else:
        change(f"SET SESSION max_execution_time = {seconds * 1000:.0f}")
    change(f"SET SESSION innodb_lock_wait_timeout = {math.ceil(seconds)}")
    if database.read_only:
        change("SET SESSION TRANSACTION READ ONLY")


def _postgresql(database: Database) -> dict[str, Any]:
    limit = round(database.timeout * 1000)
    settings = {
        "statement_timeout": limit,
        "lock_timeout": limit,
        "idle_in_transaction_session_timeout": _ABANDONED_MS,
    }
    if database.read_only:
        settings["default_transaction_read_only"] = 1
    written = " ".join(f"-c {name}={value}" for name, value in settings.items())
    own = {"connect_timeout": CONNECT_SECONDS, "application_name": "unstall", "options": written}
    return {"OPTIONS": {**database.options, **own}}


def _mysql(database: Database) -> dict[str, Any]:
    if importlib.util.find_spec("MySQLdb") is None:
        import pymysql  # noqa: PLC0415 -- the driver of one engine of three

        pymysql.install_as_MySQLdb()
    tls = {key.removeprefix("ssl_"): value for key, value in database.options.items()}
    # The server ends a statement at its limit. One that has gone silent is left a second later.
    silence = math.ceil(database.timeout) + 1
    return {
        "OPTIONS": {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": silence,
            "write_timeout": silence,
            "init_command": "SET time_zone = '+00:00'",
            **({"ssl": tls} if tls else {}),
        }
    }


def _sqlite(database: Database) -> dict[str, Any]:
    """Opens an existing file only; a column's values come as they are, whatever its type is called."""
    mode = "ro" if database.read_only else "rw"
    return {
        "NAME": f"file:{quote(database.path)}?mode={mode}",
        "OPTIONS": {"timeout": database.timeout, "detect_types": 0},
    }


_OWN = {Engine.POSTGRESQL: _postgresql, Engine.MYSQL: _mysql, Engine.SQLITE: _sqlite}
