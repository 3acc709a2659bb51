"""What commands that change something are called with: who calls, and which queue is meant."""

from __future__ import annotations

import getpass
import os

from recovery.config import Config
from recovery.domain.acting import Actor
from recovery.domain.refs import QueueRef
from recovery.errors import BadOrder

REFUSED, WRONG_CALL, UNREACHABLE = 3, 2, 4  # exit statuses


def queue(written: str, config: Config) -> QueueRef:
    """A slash may belong to the name; it parts a deployment only where there is one of that name. Raises BadOrder."""
    names = {place.name for place in config.places}
    head, slash, _ = written.partition("/")
    if slash and head in names:
        return QueueRef.parse(written)
    if len(names) != 1:
        raise BadOrder(f"Write --queue DEPLOYMENT/BASE. Configured: {', '.join(sorted(names)) or 'none'}.")
    return QueueRef(next(iter(names)), written)


def table(written: str, config: Config) -> QueueRef:
    """A job table: its name, with its database where the name alone is not clear. Raises BadOrder."""
    found = [
        QueueRef(one.database, one.name) for one in config.tables if written in (one.name, f"{one.database}/{one.name}")
    ]
    if len(found) != 1:
        known = ", ".join(f"{one.database}/{one.name}" for one in config.tables) or "none"
        raise BadOrder(f"Write --table DATABASE/NAME. Configured: {known}.")
    return found[0]


def actor() -> Actor:
    """Who may run a command may read the configuration, and so holds the keys of the stores anyway."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        name = f"uid {os.getuid()}"
    return Actor("shell", name, "admin", may_act=True, may_bulk=True)
