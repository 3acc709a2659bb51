"""Parses and masks store URLs: redis://, unix://, redis+sentinel:// and redis+cluster://."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote

from recovery.config.types import DeploymentMode, ServerAddress, StoreLogin

FORMS = (
    "Write redis://HOST:PORT/DB, rediss:// for TLS, unix:///PATH?db=N, "
    "redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB or redis+cluster://HOST:PORT,HOST:PORT."
)
ESCAPE = "Percent-encode special characters of user and password: / is %2F, @ is %40, : is %3A, # is %23, ? is %3F."

_PARTS = re.compile(r"(?P<scheme>[a-z+]+)://(?P<place>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?", re.IGNORECASE)
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<name>[^\[\]:]*))(?::(?P<port>[^:]*))?")
_SECRET = re.compile(r"(?P<scheme>[a-z+]+://)(?P<login>[^/]*)@", re.IGNORECASE)
_ANY_SECRET = re.compile(r"(?P<scheme>[a-z+]+://)(?P<login>.*)@", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"(?P<key>[?&][^=&]*(?:password|username)=)[^&#]*", re.IGNORECASE)

_SCHEMES: dict[str, tuple[DeploymentMode, bool]] = {
    "redis": (DeploymentMode.SINGLE, False),
    "rediss": (DeploymentMode.SINGLE, True),
    "redis+sentinel": (DeploymentMode.SENTINEL, False),
    "rediss+sentinel": (DeploymentMode.SENTINEL, True),
    "redis+cluster": (DeploymentMode.CLUSTER, False),
    "rediss+cluster": (DeploymentMode.CLUSTER, True),
}
_PORTS = {DeploymentMode.SINGLE: 6379, DeploymentMode.SENTINEL: 26379, DeploymentMode.CLUSTER: 6379}
_DATABASE_LIMIT = 10_000  # far above any real `databases` setting; a bigger number is a typo


class BadRedisUrl(ValueError):
    """A URL that cannot be used. Neither text ever quotes the part that may hold a password."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}")


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """Parts of a store URL."""

    mode: DeploymentMode
    encrypted: bool
    nodes: tuple[ServerAddress, ...]
    login: StoreLogin
    database: int = 0
    master: str = ""


def hidden(url: str) -> str:
    """Masks the login in a URL. Greedy up to the last @, so that a badly encoded password is hidden too."""
    shown = _ANY_SECRET.sub(lambda found: f"{found['scheme']}{_masked(found['login'])}@", url)
    return _SECRET_OPTION.sub(r"\g<key>***", shown)


def _masked(login: str) -> str:
    user, colon, _ = login.partition(":")
    return f"{user}:***" if colon else "***"


def with_login(url: str, login: StoreLogin) -> str:
    """Returns the URL with this login instead of its own."""
    bare = _SECRET.sub(r"\g<scheme>", url)
    scheme, _, rest = bare.partition("://")
    return f"{scheme}://{quote(login.username, safe='')}:{quote(login.password, safe='')}@{rest}"


def parse(url: str) -> RedisUrl:
    """Parses a store URL; raises BadUrl."""
    if url != url.strip() or any(character.isspace() for character in url):
        raise BadRedisUrl("has white space in it.", "Remove it; in a password a space is %20.")
    found = _PARTS.fullmatch(url)
    if not found:
        raise BadRedisUrl("is not a store URL.", ESCAPE if "@" in url and "://" in url else FORMS)
    if found["scheme"].lower() == "unix":
        return _unix(found)
    return _network(found)


def _unix(found: re.Match[str]) -> RedisUrl:
    login, _, host = found["place"].rpartition("@")
    if host or not found["path"].strip("/"):
        raise BadRedisUrl("names no socket.", "A unix URL has three slashes: unix:///run/redis/redis.sock?db=0.")
    options = _options(found["query"], {"db"})
    address = ServerAddress(path=unquote(found["path"]))
    return RedisUrl(DeploymentMode.SINGLE, False, (address,), _login(login), _database(options.get("db", "0")))


def _network(found: re.Match[str]) -> RedisUrl:
    scheme = found["scheme"].lower()
    if scheme not in _SCHEMES:
        raise BadRedisUrl(f"begins with {scheme}://, which is not a supported store.", FORMS)
    if "@" in found["path"] + (found["query"] or ""):
        raise BadRedisUrl("has an @ after its host.", ESCAPE)
    mode, encrypted = _SCHEMES[scheme]
    login, _, hosts = found["place"].rpartition("@")
    nodes = _nodes(hosts, mode)
    master, database = _path(found["path"], mode)
    options = _options(found["query"], {"db"} if mode is not DeploymentMode.CLUSTER else set())
    database = _database(options["db"]) if "db" in options else database
    return RedisUrl(mode, encrypted, nodes, _login(login), database, master)


def _nodes(hosts: str, mode: DeploymentMode) -> tuple[ServerAddress, ...]:
    nodes = tuple(_address(host, _PORTS[mode]) for host in hosts.split(","))
    if mode is DeploymentMode.SINGLE and len(nodes) > 1:
        raise BadRedisUrl(
            "names several servers.", "Write redis+sentinel://…/MASTER or redis+cluster://… or one server only."
        )
    if len(set(nodes)) < len(nodes):
        raise BadRedisUrl("names one server twice.", "Name each server once.")
    return nodes


def _address(host: str, default_port: int) -> ServerAddress:
    found = _HOST.fullmatch(host)
    if not found:
        raise BadRedisUrl("has a part that is not HOST:PORT.", f"{ESCAPE} Write an IPv6 address in [brackets].")
    name = found["v6"] or unquote(found["name"] or "")
    if not name:
        raise BadRedisUrl("names no host.", FORMS)
    return ServerAddress(name, _port(found["port"], default_port))


def _port(written: str | None, default: int) -> int:
    if written is None:
        return default
    if written.isascii() and written.isdigit() and 0 < int(written) < 65536:
        return int(written)
    # What stands here may be the tail of a password with a bare / or #: it is not quoted.
    raise BadRedisUrl("has a port that is not a number from 1 to 65535.", f"Write HOST:PORT. {ESCAPE}")


def _path(path: str, mode: DeploymentMode) -> tuple[str, int]:
    parts = [unquote(part) for part in path.strip("/").split("/")] if path.strip("/") else []
    if mode is DeploymentMode.SENTINEL:
        if not parts or len(parts) > 2:
            raise BadRedisUrl("does not name the master.", "Write redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB.")
        return parts[0], _database(parts[1] if len(parts) == 2 else "0")
    if len(parts) > 1:
        raise BadRedisUrl("has more than a database number after the host.", FORMS)
    database = _database(parts[0] if parts else "0")
    if mode is DeploymentMode.CLUSTER and database:
        raise BadRedisUrl("names a database, but a cluster only has database 0.", "Remove the number.")
    return "", database


def _database(written: str) -> int:
    if written.isascii() and written.isdigit() and int(written) < _DATABASE_LIMIT:
        return int(written)
    raise BadRedisUrl(
        f"has the database {written!r}, which is not a number.", "Write the number, as in redis://HOST:6379/0."
    )


def _options(query: str | None, known: set[str]) -> dict[str, str]:
    options = {key: values[-1] for key, values in parse_qs(query or "", keep_blank_values=True).items()}
    unknown = sorted(options.keys() - known)
    if unknown:
        allowed = f"Only {', '.join(sorted(known))} is supported" if known else "No option is supported"
        raise BadRedisUrl(
            f"has the unknown option {unknown[0]!r}.", f"{allowed}; set timeouts and TLS in [[deployments]]."
        )
    return options


def _login(written: str) -> StoreLogin:
    username, colon, password = written.partition(":")
    if username and not colon:
        raise BadRedisUrl("has a user but no password.", "Write redis://USER:PASSWORD@HOST or redis://:PASSWORD@HOST.")
    return StoreLogin(unquote(username), unquote(password))
