"""One small hash a server in the state store; it disappears by itself when its server does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from recovery import config
from recovery.connections import redispy, state
from recovery.connections.faults import guarded


class Publisher:
    def __init__(self, store: redis.Redis) -> None:
        self._store = store

    def publish(self, server: str, fields: Mapping[str, str], *, expires_ms: int) -> None:
        """The newest sample in place of the one before; raises StoreError."""
        key = state.server_metrics(server)
        values: dict[Any, Any] = dict(fields)  # the stubs want exactly their own union
        with guarded(self._store), self._store.pipeline(transaction=True) as pipeline:
            pipeline.delete(key)  # fields of an older version of this program go with it
            pipeline.hset(key, mapping=values)
            pipeline.pexpire(key, expires_ms)
            pipeline.execute()

    def close(self) -> None:
        self._store.close()


def publisher(environ: Mapping[str, str]) -> Publisher:
    """For the configured state store; raises ConfigError when there is none."""
    return Publisher(redispy.client(redispy.state_of(config.load(environ))))
