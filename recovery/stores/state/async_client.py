"""Client of the state store for the event loop of a web process: one client a loop, bounded like the others."""

from __future__ import annotations

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from recovery.config import Config
from recovery.stores.state.size_limits import AsyncBoundedParser
from recovery.stores.state.sync_client import options, state_deployment


def state_client(config: Config) -> redis.asyncio.Redis:
    """Makes a client, not connected yet, for the loop that uses it first; end it with `await client.aclose()`."""
    state = state_deployment(config)
    pool = redis.asyncio.ConnectionPool(
        connection_class=_connection_class(bool(state.nodes[0].path), bool(state.tls)),
        parser_class=AsyncBoundedParser,
        retry=Retry(NoBackoff(), 0),
        **options(state),
    )
    return redis.asyncio.Redis.from_pool(pool)


def _connection_class(is_socket: bool, is_encrypted: bool) -> type[redis.asyncio.connection.AbstractConnection]:
    if is_socket:
        return redis.asyncio.UnixDomainSocketConnection
    return redis.asyncio.SSLConnection if is_encrypted else redis.asyncio.Connection
