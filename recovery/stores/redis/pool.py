"""Connections to one server, shared by threads; a broken one is closed and never handed out again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recovery.stores.redis.connection import RedisConnection

IDLE_LIMIT = 8  # connections kept open: one thread seldom waits for another, and the server's maxclients is dear


class RedisConnectionPool:
    """Pool of connections, last in, first out: the rest stay idle and can be closed by the server without harm."""

    __slots__ = ("_closed", "_idle", "_lock", "_open")

    def __init__(self, open_line: Callable[[], RedisConnection]) -> None:
        self._open = open_line
        self._idle: list[RedisConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def line(self) -> Iterator[RedisConnection]:
        """Lends a connection for one exchange. After any exception its state is unknown: it is closed."""
        line = self._take() or self._open()
        try:
            yield line
        except BaseException:
            line.close()
            raise
        self._give(line)

    def _take(self) -> RedisConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                line = self._idle.pop()
            if line.is_usable():
                return line
            line.close()

    def _give(self, line: RedisConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < IDLE_LIMIT:
                self._idle.append(line)
                return
        line.close()

    def close(self) -> None:
        """Closes the idle connections now, the others when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()
