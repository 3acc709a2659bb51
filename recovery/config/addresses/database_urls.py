"""URLs of SQL databases: postgresql://, mysql://, mariadb:// and sqlite://, with what may stand behind the ?."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from recovery.config.databases import Engine

FORMS = "Write postgresql://USER:PASSWORD@HOST:PORT/NAME, mysql://… for MySQL and MariaDB, or sqlite:////PATH."
_ESCAPE = (
    "Percent-encode special characters of user and password: "
    "/ is %2F, @ is %40, : is %3A, # is %23, ? is %3F, % is %25, [ is %5B, ] is %5D."
)
ENGINES = {
    "postgresql": Engine.POSTGRESQL,
    "postgres": Engine.POSTGRESQL,
    "mysql": Engine.MYSQL,
    "mariadb": Engine.MYSQL,
    "sqlite": Engine.SQLITE,
}
OPTIONS = {
    Engine.POSTGRESQL: ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs"),
    Engine.MYSQL: ("ssl_ca", "ssl_cert", "ssl_key"),
    Engine.SQLITE: (),
}
_PORTS = {Engine.POSTGRESQL: 5432, Engine.MYSQL: 3306}


class BadDatabaseUrl(ValueError):
    """A URL that cannot be used. Neither text ever quotes it: it may hold a password."""

    def __init__(self, problem: str, remedy: str = FORMS) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}")


def parse(url: str, folder: Path) -> dict[str, Any]:
    """Parses the URL into fields of a Database; raises BadDatabaseUrl. A relative path begins in `folder`."""
    if any(character.isspace() for character in url):
        raise BadDatabaseUrl("has white space in it.", "Remove it; in a password or a path a space is %20.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # What stands there may be a part of a password: it is not quoted.
        remedy = f"{FORMS} {_ESCAPE}" if "@" in url else FORMS
        raise BadDatabaseUrl("has a host or a port that cannot be read.", remedy) from None
    engine = ENGINES.get(parts.scheme)
    if engine is None or "://" not in url:
        raise BadDatabaseUrl("is not the URL of a database that can be used here.")
    if engine is not Engine.SQLITE and "@" in parts.path + parts.query + parts.fragment:
        raise BadDatabaseUrl("has an @ after its host.", _ESCAPE)  # the rest of a password that was not encoded
    found = {"engine": engine, "options": _options(engine, parts.query)}
    if engine is Engine.SQLITE:
        return found | {"path": _file(parts.netloc, unquote(parts.path), folder)}
    path = unquote(parts.path.strip("/"))
    if not parts.hostname or not path or "/" in path:
        raise BadDatabaseUrl("names no host, or no database.")
    login = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    return found | login | {"host": parts.hostname, "port": port or _PORTS[engine], "path": path}


def _file(place: str, path: str, folder: Path) -> str:
    """Returns the path of a SQLite file: three slashes for a relative path, four for an absolute one."""
    if place or len(path) < 2:
        raise BadDatabaseUrl("names no file.", "Write sqlite:///RELATIVE/PATH or sqlite:////ABSOLUTE/PATH.")
    return str((folder / path[1:]).absolute())


def _options(engine: Engine, query: str) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    known = OPTIONS[engine]
    if unknown := sorted(found.keys() - set(known)):
        raise BadDatabaseUrl(
            f"has the unknown option {unknown[0]!r}.", f"Known: {', '.join(known) or 'none'}; timeout is a key."
        )
    return found
