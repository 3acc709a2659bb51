"""Defines the database backend that Django loads: it takes each connection from the pool and returns it there."""

from __future__ import annotations

import atexit
import logging
import select
import threading
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from django.utils.asyncio import async_unsafe
from psycopg import IsolationLevel, pq

# -- pool
# Pools connections to PostgreSQL for all requests, and fails at once while the server is down. Under ASGI the thread
# of a request ends with it, so Django's persistent connections would never be used twice. psycopg's own pool makes
# every request wait for its whole timeout while the server refuses connections, and pauses ever longer between two
# attempts: twenty seconds and more after a minute. Here one thread tries again while the server is down, soon at
# first, because a restart takes a moment, and then once a second; no request waits for it.


log = logging.getLogger(__name__)

SIZE = 8  # a process serves pages from few threads
WAIT = 3.0  # seconds for one of them to come free
ANSWER = 2.0  # seconds for a connection that was idle to say that it still works
FIRST_RETRY = 0.1  # seconds until a server that is down is tried again; twice as long each time
RETRY = 1.0  # seconds between two attempts at most
LIFETIME = 3600.0  # seconds: a session of the server gathers memory, which is freed once an hour

Connection = psycopg.Connection[Any]


class PostgresPool:
    """Pool of one process. Any thread may call `take` and `give`."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = dict(params)
        self._places = threading.Semaphore(SIZE)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._made: dict[Connection, float] = {}
        self._trouble = ""  # why the server cannot be reached
        atexit.register(self._drop_idle)

    def take(self) -> Connection:
        """Returns a connection. Raises psycopg.Error, at once while the server is known to be down."""
        if not self._places.acquire(timeout=WAIT):
            raise psycopg.OperationalError(f"all {SIZE} connections are in use")
        try:
            return self._kept() or self._new()
        except BaseException:
            self._places.release()
            raise

    def give(self, connection: Connection) -> None:
        """Takes a connection back; closes it if it is broken, old, or in the middle of a transaction."""
        idle = connection.info.transaction_status == pq.TransactionStatus.IDLE
        if idle and time.monotonic() - self._made.get(connection, 0.0) < LIFETIME:
            with self._lock:
                self._idle.append(connection)
        else:
            self._drop(connection)
        self._places.release()

    def _kept(self) -> Connection | None:
        """Returns the connection used last if it still works; if not, the server was down: closes all idle ones."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or _answers(connection):
            return connection
        self._drop(connection)
        self._drop_idle()
        return None

    def _new(self) -> Connection:
        if self._trouble:
            raise psycopg.OperationalError(self._trouble)
        try:
            return self._connect()
        except psycopg.OperationalError as error:
            self._fail(str(error))
            raise

    def _connect(self) -> Connection:
        connection: Connection = psycopg.connect(**self._params)
        self._made[connection] = time.monotonic()
        return connection

    def _fail(self, trouble: str) -> None:
        with self._lock:
            if self._trouble:
                return
            self._trouble = trouble
        log.warning("the database cannot be reached: %s", trouble)
        threading.Thread(target=self._reach, name="database", daemon=True).start()

    def _reach(self) -> None:
        """Tries to connect until the server answers again."""
        pause = FIRST_RETRY
        while True:
            time.sleep(pause)
            pause = min(2 * pause, RETRY)
            try:
                connection = self._connect()
            except psycopg.Error as error:
                self._trouble = str(error)
                continue
            with self._lock:
                self._idle.append(connection)
                self._trouble = ""
            log.warning("the database can be reached again")
            return

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._made.pop(connection, None)
        connection.close()


def _answers(connection: Connection) -> bool:
    """Returns True if the server answers an empty query on this connection within ANSWER."""
    server = connection.pgconn
    try:
        server.send_query(b"")
        waiting = select.poll()
        waiting.register(server.socket, select.POLLIN)
        if not waiting.poll(ANSWER * 1000):
            return False
        server.consume_input()
        found = []
        while (result := server.get_result()) is not None:
            found.append(result.status)
    except psycopg.Error:
        return False
    return found == [pq.ExecStatus.EMPTY_QUERY]


# -- base


_pools: dict[str, PostgresPool] = {}


class DatabaseWrapper(base.DatabaseWrapper):
    @async_unsafe
    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        self.isolation_level = IsolationLevel.READ_COMMITTED
        pool = _pools.get(self.alias) or _pools.setdefault(self.alias, PostgresPool(conn_params))
        return pool.take()

    def _close(self) -> None:
        if self.connection is not None:
            _pools[self.alias].give(self.connection)
            self.connection = None  # another request may have it by now
