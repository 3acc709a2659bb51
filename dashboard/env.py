"""Reads typed values from the environment, and collects every problem, so that all are reported at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from recovery.config.addresses.redis_urls import hidden
from recovery.errors import Problem

T = TypeVar("T")
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})
_UNIX = "unix"
_HOST = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\]")  # .example.com: it and all below it
# Shorter prefixes hold more than one organisation: fc00::/7 and 10.0.0.0/8 are the widest private networks.
_WIDEST = {4: 8, 6: 7}


class Environment:
    """Reads names like `UNSTALL_DEBUG`. A bad value becomes an entry of `problems`, and the default is used meanwhile.

    Every name may also come from a file: `NAME_FILE=/run/secrets/name`, as container platforms hand out secrets.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[Problem] = []

    def text(self, name: str, default: str = "") -> str:
        written = self._written(name)
        return default if written is None else written

    def flag(self, name: str, default: bool) -> bool:
        return self._read(name, default, _truth, "Write true or false.")

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**31) -> int:
        def bounded(written: str) -> int:
            value = int(written)
            if not least <= value <= most:
                raise ValueError
            return value

        return self._read(name, default, bounded, f"Write a whole number from {least} to {most}.")

    def choice(self, name: str, default: str, known: tuple[str, ...]) -> str:
        def one_of(written: str) -> str:
            if written.lower() not in known:
                raise ValueError
            return written.lower()

        return self._read(name, default, one_of, f"Write one of {', '.join(known)}.")

    def names(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        written = self._written(name)
        if written is None:
            return default
        return tuple(part for part in (part.strip() for part in written.split(",")) if part)

    def origins(self, name: str) -> tuple[str, ...]:
        """Reads a list of `https://host[:port]`, without a path."""
        found = self.names(name)
        for origin in found:
            if not _is_origin(origin):
                self.refuse(
                    name, f"{hidden(origin)!r} is not an origin.", "Write scheme and host: https://unstall.example.com"
                )
        return tuple(origin.rstrip("/") for origin in found if _is_origin(origin))

    def hosts(self, name: str) -> tuple[str, ...]:
        """Reads a list of host names as `ALLOWED_HOSTS` takes them; a pattern that matches any name is refused."""
        found = self.names(name)
        for host in found:
            if "*" in host:
                problem = f"{host!r} lets other sites direct browsers here under their own host names."
                self.refuse(
                    name, problem, "Write the host names that users type; .example.com includes all subdomains."
                )
            elif not _HOST.fullmatch(host):
                self.refuse(name, f"{host!r} is no host name.", "Write unstall.example.com: no scheme, port or path.")
        return tuple(host for host in found if _HOST.fullmatch(host))

    def proxies(self, name: str) -> tuple[str, ...]:
        """Reads a list of addresses, networks, or `unix`; a network that every client belongs to is refused."""
        found = self.names(name)
        return tuple(proxy for proxy in found if proxy == _UNIX or self._is_proxy(name, proxy))

    def _is_proxy(self, name: str, written: str) -> bool:
        remedy = f"Write the address or the network of the proxy alone: 10.0.0.7, 10.1.0.0/24 or {_UNIX}."
        network = _network(written)
        if network is None and written != "*":
            self.refuse(name, f"{written!r} is no address and no network.", remedy)
            return False
        if network is None or network.prefixlen < _WIDEST[network.version]:
            problem = f"{written!r} lets clients choose the IP address that lockouts, limits and the audit log use."
            self.refuse(name, problem, remedy)
            return False
        return True

    def url(self, name: str, default: str, *, schemes: tuple[str, ...]) -> str:
        """Reads a URL with one of `schemes`. The value is never repeated in the problem: it may hold a password."""
        written = self.text(name, default)
        if written.partition("://")[0] not in schemes or "://" not in written:
            self.refuse(name, "is not a supported URL.", f"Use a URL that starts with {' or '.join(schemes)}, then ://")
            return default
        if _is_legible(written):
            return written
        remedy = "Percent-encode special characters in its password: / is %2F, ? is %3F, # is %23, @ is %40."
        self.refuse(name, "is a URL whose host and port cannot be read.", remedy)
        return default

    def refuse(self, name: str, problem: str, remedy: str) -> None:
        self.problems.append(Problem(name, problem, remedy))

    def _read(self, name: str, default: T, reader: Callable[[str], T], remedy: str) -> T:
        written = self._written(name)
        if written is None:
            return default
        try:
            return reader(written)
        except ValueError:
            self.refuse(name, f"{written!r} cannot be read.", remedy)
            return default

    def _written(self, name: str) -> str | None:
        """Returns the value; "" counts as unset: an empty line in a compose file means nothing."""
        direct = self._values.get(name, "").strip()
        path = self._values.get(f"{name}_FILE", "").strip()
        if direct and path:
            self.refuse(name, f"{name} and {name}_FILE are both set.", "Keep one of them.")
        if direct or not path:
            return direct or None
        return self._from_file(name, Path(path))

    def _from_file(self, name: str, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            self.refuse(f"{name}_FILE", f"{path} cannot be read: {reason}.", "Check the path and who may read it.")
            return None


def _truth(written: str) -> bool:
    if written.lower() in _YES:
        return True
    if written.lower() in _NO:
        return False
    raise ValueError(written)


def _is_legible(url: str) -> bool:
    """Returns False for a password that was not encoded: it ends up in the port, or behind the host."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.hostname is None or "@" not in parts.path + parts.query + parts.fragment


def _network(written: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(written)
    except ValueError:
        return None


def _is_origin(written: str) -> bool:
    """Refuses wildcards: Django takes `https://*` for every site, and `https://*.example.com` for other people's."""
    try:
        parts = urlsplit(written)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    is_plain = parts.path in ("", "/") and not parts.query and not parts.fragment and "@" not in parts.netloc
    return parts.scheme in ("http", "https") and is_plain and _HOST.fullmatch(_bracketed(host)) is not None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
