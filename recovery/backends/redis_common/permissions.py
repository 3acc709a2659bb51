"""Finds out, without changing anything, whether a connection's user may do to a queue what a scanner does.

ACL DRYRUN would tell, but a user who may only read may not call it. Who may call no script at all leaves one entry in
the ACL log each time it is asked.
"""

from __future__ import annotations

from pathlib import Path

import redis

from recovery.backends.base import CommandClient
from recovery.backends.redis_common.fencing import key_of
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef
from recovery.stores.redis.scripts import script

_CHECK = Path(__file__).parent / "lua" / "read" / "check-rights.lua"


def missing_permissions(wire: CommandClient, ref: QueueRef) -> str | None:
    """Returns what the store says that its user may not do; "": nothing of what was asked; None: it does not tell.

    Raises StoreError, and redis.ResponseError for whatever else stands against a script.
    """
    try:
        refused = script(_CHECK).run(wire, [Keys(ref.base).wait, key_of(ref.base)], ())
    except redis.exceptions.NoPermissionError as error:
        return str(error)
    if refused is None:
        return None
    return f"no permissions to run {', '.join(name.decode().lower() for name in refused)}" if refused else ""
