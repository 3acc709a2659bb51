"""Determines the stable id of this server: as configured, else made from the machine id, else its host name.

A container's own names end with it, and its successor would appear as another server: they are refused.
"""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from recovery.errors import ConfigError, Problem

VARIABLES = ("UNSTALL_SERVER_ID", "SERVER_ID")  # the first one that is set
LENGTH = 12  # hexadecimal digits: enough to tell a company's servers apart
LIMIT = 100  # characters: it stands in addresses of pages and in labels of metrics
_ROOT = Path("/")
_RANDOM = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}")  # what Docker and Podman call a container that nobody named
_SIGNS = (".dockerenv", "run/.containerenv")
_ENGINES = re.compile(r"docker|kubepods|libpod|containerd")
_MACHINE_ID = "etc/machine-id"
_REMEDY = "Give the server a name that does not change with its containers: UNSTALL_SERVER_ID=worker-1."


def server_id(environ: Mapping[str, str], *, root: Path = _ROOT, host: str = "") -> str:
    """Returns the id. Raises ConfigError where none would be the same after the next start."""
    host = host or socket.gethostname()
    for variable in VARIABLES:
        if configured := environ.get(variable, "").strip():
            return _checked(variable, configured, host, is_container=_is_container(environ, root))
    own = _text(root / _MACHINE_ID).strip()
    if _is_container(environ, root) and not _is_mounted(root) and (not own or _is_random(host, environ)):
        raise _refused("is not set, and this container has no stable name.")
    if own:
        # The machine's id is not for other eyes (machine-id(5)); what we derive from it is.
        return hashlib.sha256(f"unstall:{own}".encode()).hexdigest()[:LENGTH]
    if _RANDOM.fullmatch(host):
        raise _refused(f"is not set, and the host name {host} looks like that of a container.")
    return host


def _checked(variable: str, name: str, host: str, *, is_container: bool) -> str:
    if len(name) > LIMIT or not name.isprintable():
        raise ConfigError(
            (Problem(variable, "is not a name.", f"Write at most {LIMIT} printable characters, like worker-1."),)
        )
    if is_container and name == host and _RANDOM.fullmatch(name):
        raise ConfigError(
            (Problem(variable, "is the id of this container: the next container has another one.", _REMEDY),)
        )
    return name


def _refused(problem: str) -> ConfigError:
    return ConfigError((Problem(VARIABLES[0], problem, _REMEDY),))


def _is_random(host: str, environ: Mapping[str, str]) -> bool:
    return bool(_RANDOM.fullmatch(host)) or "KUBERNETES_SERVICE_HOST" in environ


def _is_container(environ: Mapping[str, str], root: Path) -> bool:
    return (
        "KUBERNETES_SERVICE_HOST" in environ
        or any((root / sign).exists() for sign in _SIGNS)
        or bool(_ENGINES.search(_text(root / "proc/self/cgroup")))
    )


def _is_mounted(root: Path) -> bool:
    """Returns True if the host's own machine-id is mounted into the container."""
    return any(line.split()[4:5] == [f"/{_MACHINE_ID}"] for line in _text(root / "proc/self/mountinfo").splitlines())


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
