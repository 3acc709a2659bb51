"""Passes the environment of a running `manage.py up` to shell commands that use the same data directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from recovery import config
from recovery.errors import ConfigError, Problem
from recovery.processes.directory_lock import is_locked

NAME = "up.json"
LOCK = "up.lock"
OWNER_ONLY = 0o600
_URLS = ("UNSTALL_REDIS_URL", "UNSTALL_STATE_URL", "UNSTALL_N8N_DATABASE_URL")
_PATHS = ("UNSTALL_CONFIG", *(f"{name}_FILE" for name in _URLS))
_PLAIN = (*_URLS, "UNSTALL_READ_ONLY")
# Django reads it before any command begins, so it cannot be adopted, only compared.
_DATABASE = "DATABASE_URL"
_OTHER_DATABASE = Problem(
    _DATABASE,
    "differs from that of the `manage.py up` that runs in this data directory.",
    "Set it to the same value, so that all actions are recorded in one audit log.",
)


def write(directory: Path, urls: Mapping[str, str]) -> None:
    """Writes what this `up` watches: variables of its environment, and `urls` of its embedded stores.

    Only the owner can read the file.
    """
    told = {name: os.environ[name] for name in _PLAIN if os.environ.get(name)} | {_DATABASE: _database()}
    told |= {name: str(Path(os.environ[name]).resolve()) for name in _PATHS if os.environ.get(name)}
    descriptor = os.open(directory / NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({**told, **urls}, file)


def forget(directory: Path) -> None:
    (directory / NAME).unlink(missing_ok=True)


def adopt(directory: Path) -> None:
    """Adopts from a running `up` what is not configured here, so that a command sees what the pages see.

    Raises ConfigError.
    """
    told = _left(directory)
    here = config.current()
    if not told or (here.places and here.state):
        return
    if told.get(_DATABASE, "") != _database():
        raise ConfigError((_OTHER_DATABASE,))
    own = {name for name in (*_PLAIN, *_PATHS) if os.environ.get(name)}
    if here.places:
        own |= {"UNSTALL_REDIS_URL", "UNSTALL_REDIS_URL_FILE", "UNSTALL_READ_ONLY", "UNSTALL_CONFIG"}
    if here.state:
        own |= {"UNSTALL_STATE_URL", "UNSTALL_STATE_URL_FILE"}
    os.environ.update({name: value for name, value in told.items() if name in (*_PLAIN, *_PATHS) and name not in own})
    config.current.cache_clear()


def _database() -> str:
    """Returns the URL, or the path of the file that holds it; "" for the SQLite of the data directory."""
    file = os.environ.get(f"{_DATABASE}_FILE", "")
    return os.environ.get(_DATABASE, "") or (str(Path(file).resolve()) if file else "")


def _left(directory: Path) -> Mapping[str, str]:
    """Returns what a running `up` wrote; {} if none runs, because a killed one leaves its file behind."""
    try:
        written = json.loads((directory / NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) and is_locked(directory / LOCK) else {}
