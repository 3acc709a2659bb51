"""The stores of an `up` that runs in this data directory, for the commands of the shell beside it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from recovery import config

NAME = "up.json"
OWNER_ONLY = 0o600
ANSWERS_WITHIN = 1.0  # seconds, for the socket of a process on this machine
_SETTINGS = frozenset({"UNSTALL_STATE_URL", "UNSTALL_REDIS_URL"})


def leave(directory: Path, urls: Mapping[str, str]) -> None:
    """Says where they are. Nobody but the owner can read it, or reach the socket."""
    descriptor = os.open(directory / NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(dict(urls), file)


def forget(directory: Path) -> None:
    (directory / NAME).unlink(missing_ok=True)


def join(directory: Path) -> None:
    """Takes from it what is not configured here, so that a command sees what the pages see."""
    urls = {name: url for name, url in _left(directory).items() if name in _SETTINGS and _answers(url)}
    here = config.current()
    if here.places:
        urls.pop("UNSTALL_REDIS_URL", None)
    if here.state:
        urls.pop("UNSTALL_STATE_URL", None)
    if urls:
        os.environ.update(urls)
        config.current.cache_clear()


def _left(directory: Path) -> Mapping[str, str]:
    try:
        written = json.loads((directory / NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}


def _answers(url: str) -> bool:
    """One that was killed left its file behind, and nobody at the socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(ANSWERS_WITHIN)
        return line.connect_ex(unquote(urlsplit(url).path)) == 0
