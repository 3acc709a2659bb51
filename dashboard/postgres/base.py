"""Defines the database backend that Django loads: it takes each connection from the pool and returns it there."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base
from django.utils.asyncio import async_unsafe
from psycopg import IsolationLevel

from dashboard.postgres.pool import PostgresPool

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
