"""Reads common arguments of commands that change something: the actor, the queue, the job table; and exit statuses."""

from __future__ import annotations

import getpass
import os

from recovery.config import Config
from recovery.domain.actions.types import Actor
from recovery.domain.identifiers import QueueRef
from recovery.errors import BadOrder

REFUSED, WRONG_CALL, UNREACHABLE = 3, 2, 4  # exit statuses


def queue(written: str, config: Config) -> QueueRef:
    """Parses the queue. A slash may belong to the name; it separates a deployment only if one has that name. Raises
    BadOrder.
    """
    names = {place.name for place in config.places}
    head, slash, _ = written.partition("/")
    if slash and head in names:
        return QueueRef.parse(written)
    if len(names) != 1:
        raise BadOrder(f"Write --queue DEPLOYMENT/BASE. Configured: {', '.join(sorted(names)) or 'none'}.")
    return QueueRef(next(iter(names)), written)


def job_table(written: str, config: Config) -> QueueRef:
    """Parses a job table: its name, with its database where the name alone is ambiguous. Raises BadOrder."""
    found = [
        QueueRef(one.database, one.name) for one in config.tables if written in (one.name, f"{one.database}/{one.name}")
    ]
    if len(found) != 1:
        known = ", ".join(f"{one.database}/{one.name}" for one in config.tables) or "none"
        raise BadOrder(f"Write --table DATABASE/NAME. Configured: {known}.")
    return found[0]


def actor() -> Actor:
    """Returns the actor of a command, with all rights: who may run it can read the stores' passwords anyway."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        name = f"uid {os.getuid()}"
    return Actor("shell", name, "admin", may_act=True, may_bulk=True)
