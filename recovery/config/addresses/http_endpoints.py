"""HTTP endpoints that are read: their URL, and the login that is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from recovery.config.validation import ConfigProblems, secret_file

FORM = "Write http://HOST:PORT/PATH or https://…"
_LONGEST = 2000  # characters: what is longer was pasted by mistake


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """Endpoint with its login. `ca`: the file of certificates to trust; "": those of the system."""

    url: str
    token: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""

    @property
    def target(self) -> str:
        """Address as a person may see it: what stands behind a ? may be a secret."""
        return self.url.partition("?")[0]


def read_endpoint(
    written: Mapping[str, Any], name: str, where: str, problems: ConfigProblems, *, query: bool = False
) -> HttpEndpoint | None:
    """Builds an endpoint from values read before; `name` is the key of the URL. Returns None if it cannot be used."""
    url = str(written[name]).rstrip("/")
    trouble = _trouble(url, query=query)
    if trouble:
        problems.add(f"{where}{name}", *trouble)
    secrets = {key: _secret(str(written[key]), f"{where}{key}", problems) for key in ("token_file", "password_file")}
    token, password = secrets["token_file"], secrets["password_file"]
    _check_login(written, where, problems)
    if written["tls_ca"] and url.startswith("http://"):
        problems.add(f"{where}tls_ca", "is set, but the URL does not use TLS.", "Write https:// in the URL.")
    return None if trouble else HttpEndpoint(url, token, str(written["username"]), password, str(written["tls_ca"]))


def _check_login(written: Mapping[str, Any], where: str, problems: ConfigProblems) -> None:
    if bool(written["username"]) != bool(written["password_file"]):
        missing = "password_file" if written["username"] else "username"
        problems.add(f"{where}{missing}", "is missing.", "A login needs both values.")
    if written["token_file"] and written["username"]:
        problems.add(f"{where}token_file", "is set, and username too.", "Set one of the two.")


def _secret(path: str, where: str, problems: ConfigProblems) -> str:
    return secret_file(path, where, problems) if path else ""


def _trouble(url: str, *, query: bool) -> tuple[str, str] | None:
    """Returns what is wrong with the URL, and a remedy. It is never quoted: it may hold a password."""
    if not url:
        return "is missing.", FORM
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "has a host or a port that cannot be read.", FORM
    if "@" in url.partition("?")[0] + parts.fragment:  # also behind the host: a password that was not encoded
        return "holds a login.", "Write username and password_file, or token_file."
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not _is_plain(url):
        return "is not a valid address.", FORM
    if parts.fragment or (parts.query and not query):
        return "has characters after its path.", FORM
    return None


def _is_plain(url: str) -> bool:
    return len(url) <= _LONGEST and url.isprintable() and " " not in url
