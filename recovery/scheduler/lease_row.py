"""Reads and writes the lease's row in the database, over a connection of its own with short timeouts.

A scheduler that waits for an answer for longer than its term has lost the lease by waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from recovery.models import Lease
from recovery.stores.sql.database_clock import CLOCK

ANSWER = 2  # seconds for the database to connect, and then to answer: several fit into a term

# The epoch is at least the second it begins in: what Redis remembers of epochs must not outrank a database that is new,
# or that was restored from a backup.
_TAKE = """
UPDATE {table} SET
  epoch = CASE WHEN holder = %s THEN epoch WHEN epoch >= {now} / 1000 THEN epoch + 1 ELSE {now} / 1000 END,
  since = CASE WHEN holder = %s THEN since ELSE {now} END,
  holder = %s,
  installation = CASE WHEN installation = '' THEN %s ELSE installation END,
  expires_at = {now} + %s
WHERE id = 1 AND (holder = %s OR expires_at <= {now} OR (epoch = %s AND expires_at = %s))
RETURNING epoch, since, installation
"""
_READ = "SELECT holder, epoch, since, expires_at, expires_at - {now}, installation FROM {table} WHERE id = 1"
_BEGIN = (
    "INSERT INTO {table} (id, holder, epoch, since, expires_at) VALUES (1, '', 0, 0, 0) ON CONFLICT (id) DO NOTHING"
)
_RELEASE = "UPDATE {table} SET expires_at = 0 WHERE id = 1 AND holder = %s"


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """Lease that was granted to us. `since`: when this epoch began. `installation`: id of this database."""

    epoch: int
    since: int
    installation: str = ""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Lease row as it was read. `left`: milliseconds until it expires, negative when it has."""

    holder: str
    epoch: int
    since: int
    expires_at: int
    left: int
    installation: str = ""  # "": there was no leader yet


def connect_with_timeouts() -> BaseDatabaseWrapper:
    """Returns a connection like the others of this process, with short timeouts. For the thread that makes it."""
    model = connections["default"]
    chosen: dict[str, Any] = deepcopy(model.settings_dict)
    options = chosen["OPTIONS"]
    if model.vendor == "sqlite":
        options["timeout"] = ANSWER
    else:
        options.pop("pool", None)
        options["options"] = f"{options.get('options', '')} -c statement_timeout={ANSWER * 1000}".strip()
        options |= {
            "connect_timeout": ANSWER,
            "tcp_user_timeout": ANSWER * 1000,  # what was sent and never received
            "keepalives_idle": ANSWER,  # a server that vanished after it had received it
            "keepalives_interval": 1,
            "keepalives_count": 2,
        }
    return type(model)(chosen, "lease")


class LeaseRow:
    """Lease row, for one thread. All methods raise django.db.Error, and the next call then connects anew."""

    def __init__(self, connect: Callable[[], BaseDatabaseWrapper] = connect_with_timeouts) -> None:
        self._connect = connect
        self._connection: BaseDatabaseWrapper | None = None

    def take(self, holder: str, term: int, seen: LeaseRecord | None = None) -> LeaseGrant | None:
        """Takes the lease for `term` ms if it is ours, expired, or still exactly as `seen`, by one atomic UPDATE."""
        known = (seen.epoch, seen.expires_at) if seen else (-1, -1)
        rows = self._ask(_TAKE, holder, holder, holder, uuid4().hex, term, holder, *known)
        return LeaseGrant(*rows[0]) if rows else None

    def read(self) -> LeaseRecord:
        rows = self._ask(_READ)
        if not rows:
            self._ask(_BEGIN)
            rows = self._ask(_READ)
        return LeaseRecord(*rows[0])

    def release(self, holder: str) -> None:
        self._ask(_RELEASE, holder)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Error):
                connection.close()

    def _ask(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            words = {"table": Lease._meta.db_table, "now": CLOCK[self._connection.vendor]}
            with self._connection.cursor() as cursor:
                cursor.execute(statement.format(**words), values)
                return list(cursor.fetchall()) if cursor.description else []
        except Error:
            self.close()
            raise
