"""Translates errors of a SQL database into the tree of errors.py."""

from __future__ import annotations

import re
from typing import Any

from django.db.utils import DataError, Error, IntegrityError, InterfaceError, OperationalError

from recovery.config import Engine
from recovery.errors import (
    AccessDenied,
    ReadOnlyStore,
    StatementRefused,
    StoreError,
    TimedOut,
    TlsMismatch,
    Unreachable,
)

SAID = 300  # characters of a database's own words

# By SQLSTATE of PostgreSQL, and by number of MySQL and MariaDB.
_TIMED_OUT = frozenset({"57014", "55P03", 1205, 1317, 1969, 3024})
_DENIED = frozenset({"28000", "28P01", "42501", 1044, 1045, 1142, 1143, 1227, 1698})
_READ_ONLY = frozenset({"25006", 1290, 1792, 1836})
_GONE = frozenset({"57P01", "57P02", "57P03", "08000", "08003", "08006", 2003, 2006, 2013, 1053})
_SILENT = frozenset({None, 2006, 2013})  # whose words say why
_DENIED_WORDS = re.compile(
    r"authentication failed|pg_hba\.conf|access denied|role .* does not exist|no password|not permitted to log in"
    r"|permission denied for database",
    re.IGNORECASE,
)
_TIMEOUT_WORDS = re.compile(
    r"timed? ?out|interrupted|database (table )?is locked|lost connection .*read timeout", re.IGNORECASE
)
_NOT_THERE_WORDS = re.compile(r"no such (table|column)", re.IGNORECASE)
_READ_ONLY_WORDS = re.compile(r"readonly database|read-only", re.IGNORECASE)
_TLS_WORDS = re.compile(r"\bSSL\b|certificate", re.IGNORECASE)

_NAMES = {Engine.POSTGRESQL: "PostgreSQL", Engine.MYSQL: "MySQL", Engine.SQLITE: "SQLite"}
_LOGIN = "{} refuses the login: check user and password in the URL, where special characters are percent-encoded."
_RIGHTS = "Grant it to the user in the URL: docs/n8n.md and docs/job-tables.md list what is needed."
_LATE = "Another session may hold a lock, or the database is overloaded. The limit is timeout in [[databases]]."
_REPLICA = "This is a replica, or its user may only read: point the URL at the primary."
_TLS = {
    Engine.POSTGRESQL: "Set sslmode, and sslrootcert for its certificate authority, behind the ? of the URL.",
    Engine.MYSQL: "Set ssl_ca to its certificate authority, behind the ? of the URL.",
}
# Errors of PostgreSQL and MySQL on connecting, and what to look at.
_ON_CONNECT = (
    (r"pg_hba\.conf", "Let this user in from this address to this database: a line of PostgreSQL's pg_hba.conf."),
    (r"role .* does not exist|not permitted to log in", "CREATE ROLE … LOGIN PASSWORD … makes it (docs/n8n.md)."),
    (r"permission denied for database", "GRANT CONNECT ON DATABASE … to the user in the URL."),
    (r"database .* does not exist|unknown database", "Check the database's name, behind the last / of the URL."),
    (r"too many (clients|connections)|connection slots", "Raise max_connections, or put a pooler in front of it."),
    (r"database system is", "It usually recovers by itself."),
)


def translated(error: Error, target: str, limit: float, engine: Engine, *, is_over: bool = False) -> StoreError:
    """Translates an error of a statement."""
    code, said = _code(error), words(error)
    if isinstance(error, (DataError, IntegrityError)):
        return StatementRefused(target, said)
    if is_over or code in _TIMED_OUT or (code in _SILENT and _TIMEOUT_WORDS.search(said)):
        return TimedOut(target, f"no answer within {limit:g} s", advice=_LATE)
    if code in _DENIED:
        return AccessDenied(target, said, advice=_RIGHTS)
    if code in _READ_ONLY or (code is None and _READ_ONLY_WORDS.search(said)):
        return ReadOnlyStore(target, said, advice=_REPLICA)
    if code in _GONE or isinstance(error, InterfaceError) or (code is None and _is_cut(error)):
        return Unreachable(target, "it closed the connection")
    is_refused = code is not None or _NOT_THERE_WORDS.search(said)
    return StatementRefused(target, said) if is_refused else StoreError(target, said)


def on_connect(error: Error, target: str, limit: float, engine: Engine) -> StoreError:
    """Translates an error of connecting."""
    code, said = _code(error), words(error)
    advice = next((advice for pattern, advice in _ON_CONNECT if re.search(pattern, said, re.IGNORECASE)), "")
    if code in _DENIED or _DENIED_WORDS.search(said):
        return AccessDenied(target, said, advice=advice or _LOGIN.format(_NAMES[engine]))
    if _TIMEOUT_WORDS.search(said):
        return TimedOut(target, f"no answer within {limit:g} s", advice=_LATE)
    if _TLS_WORDS.search(said) and engine in _TLS:
        return TlsMismatch(target, said, advice=_TLS[engine])
    return Unreachable(target, said, advice=advice)


def words(error: Error) -> str:
    """Returns the first line of the error's text: what follows may quote a row."""
    cause = error.__cause__ or error
    said = cause.args[1] if len(cause.args) > 1 and isinstance(cause.args[0], int) else str(cause)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    first = lines[0] if lines else type(cause).__name__
    return first if len(first) <= SAID else f"{first[: SAID - 1]}…"


def _code(error: Error) -> Any:
    """Returns the error's number or SQLSTATE. The number first: PyMySQL has a SQLSTATE too, and it is a coarse one."""
    cause = error.__cause__ or error
    number = cause.args[0] if cause.args else None
    if isinstance(number, int) and not isinstance(number, bool):
        return number or None
    return getattr(cause, "sqlstate", None)


def _is_cut(error: Error) -> bool:
    """Returns True if the connection ended: libpq has no code for that."""
    return isinstance(error, OperationalError) and hasattr(error.__cause__, "sqlstate")
