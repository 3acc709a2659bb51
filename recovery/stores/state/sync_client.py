"""Client of the state store by redis-py, whose defaults would wait ten seconds for a silent server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recovery.config import Config, Deployment
from recovery.errors import ConfigError, Problem
from recovery.stores.redis.sockets import CONNECT_LIMIT


def state_deployment(config: Config) -> Deployment:
    """Returns the deployment that is the state store; raises ConfigError when none is configured."""
    if config.state is None:
        raise ConfigError(
            (
                Problem(
                    "UNSTALL_STATE_URL",
                    "is not set.",
                    "Set it to a separate Redis or Valkey, or start all processes with `manage.py up`, which starts "
                    "one.",
                ),
            )
        )
    return config.state


def options(state: Deployment) -> dict[str, Any]:
    """Returns arguments of a redis-py connection: RESP2, no library name (an ACL may refuse it), bounded waits."""
    address, tls = state.nodes[0], state.tls
    place = {"path": address.path} if address.path else {"host": address.host, "port": address.port}
    chosen: dict[str, Any] = {
        **place,
        "db": state.database,
        "username": state.login.username or None,
        "password": state.login.password or None,
        "socket_timeout": state.timeout,
        "socket_connect_timeout": CONNECT_LIMIT,
        "protocol": 2,
        "driver_info": None,
    }
    if tls:
        chosen |= {
            "ssl_ca_certs": tls.ca or None,
            "ssl_certfile": tls.certificate or None,
            "ssl_keyfile": tls.key or None,
            "ssl_cert_reqs": "required" if tls.verify else "none",
        }
    return chosen


def open_client(state: Deployment, parser: type | None = None) -> redis.Redis:
    """Makes a thread-safe client; it connects when first used. `parser` replaces redis-py's own, to bound replies."""
    connection_class: type[redis.Connection] | type[redis.UnixDomainSocketConnection] = redis.Connection
    if state.nodes[0].path:
        connection_class = redis.UnixDomainSocketConnection
    elif state.tls:
        connection_class = redis.SSLConnection
    pool = redis.ConnectionPool(
        connection_class=connection_class,
        retry=Retry(NoBackoff(), 0),
        redis_connect_func=_greet if state.tls else None,
        **(options(state) | ({"parser_class": parser} if parser else {})),
    )
    return redis.Redis.from_pool(pool)


def _greet(connection: redis.Connection) -> None:
    """Reads one answer at once: with it come the session tickets of TLS 1.3.

    Left unread they look to the pool like data that nobody asked for, and it gives the connection up.
    """
    connection.on_connect()  # type: ignore[no-untyped-call] # redis-py's own
    connection.send_command("PING")  # type: ignore[no-untyped-call] # redis-py's own
    with suppress(redis.exceptions.NoPermissionError):
        connection.read_response()
