"""Deadlines for SQL statements: ends from this side a statement that the server itself does not end in time."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from recovery.config import Engine

SLACK = 1.0  # seconds: first the server's own limit, which leaves the connection whole
LOOK = 0.2  # seconds between two looks at what is under way: a statement is ended that much too late
_IDLE = 5.0  # seconds without any statement after which the watching thread ends
_STEPS = 10_000  # of SQLite's machine between two looks at the clock: well below a millisecond


class StatementDeadline:
    """Deadline of one statement. `is_over`: an error that follows is reported as a timeout."""

    __slots__ = ("at", "descriptor", "is_over")

    def __init__(self, at: float = 0.0, descriptor: int = -1) -> None:
        self.at = at
        self.descriptor = descriptor
        self.is_over = False

    def cut(self) -> None:
        """Shuts the socket down; the thread that waits for it then gets an error."""
        self.is_over = True
        with suppress(OSError), socket.socket(fileno=os.dup(self.descriptor)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


@contextmanager
def within(connection: Any, engine: Engine, limit: float) -> Iterator[StatementDeadline]:
    end = time.monotonic() + limit
    if connection.connection is None or getattr(connection.connection, "closed", False):  # it says so itself
        yield StatementDeadline()
    elif engine is Engine.POSTGRESQL:
        with _watcher.watched(StatementDeadline(end + SLACK, connection.connection.fileno())) as deadline:
            yield deadline
    elif engine is Engine.SQLITE:
        with _interrupted(connection.connection, StatementDeadline(end)) as deadline:
            yield deadline
    else:
        yield StatementDeadline()  # the driver of MySQL has a limit of its own on its socket


class _Watcher:
    """Cuts late statements: libpq waits for ever for a stopped server. One thread watches all, and ends when idle."""

    def __init__(self) -> None:
        self._out: set[StatementDeadline] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watched(self, deadline: StatementDeadline) -> Iterator[StatementDeadline]:
        with self._lock:
            self._out.add(deadline)
            if self._thread is None or not self._thread.is_alive():  # none is, after a fork
                self._thread = threading.Thread(target=self._watch, name="sql-deadlines", daemon=True)
                self._thread.start()
        try:
            yield deadline
        finally:
            with self._lock:  # so that it is not cut after its descriptor is in other use
                self._out.discard(deadline)

    def _watch(self) -> None:
        idle_since = time.monotonic()
        while True:
            time.sleep(LOOK)
            now = time.monotonic()
            with self._lock:
                for deadline in [one for one in self._out if now > one.at]:
                    self._out.discard(deadline)
                    deadline.cut()
                if self._out:
                    idle_since = now
                elif now - idle_since > _IDLE:
                    self._thread = None
                    return


_watcher = _Watcher()


@contextmanager
def _interrupted(connection: Any, deadline: StatementDeadline) -> Iterator[StatementDeadline]:
    def is_over() -> bool:
        deadline.is_over = time.monotonic() > deadline.at
        return deadline.is_over

    connection.set_progress_handler(is_over, _STEPS)
    try:
        yield deadline
    finally:
        with suppress(Exception):  # closed meanwhile
            connection.set_progress_handler(None, _STEPS)
