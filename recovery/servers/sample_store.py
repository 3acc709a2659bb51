"""Writes a server's newest sample and its history to the state store, for the monitor or a scanner that measures it.

One small hash a server that expires when no sample follows, its name in the list of servers, and two rings of cells.
All in one round trip, all or nothing. A monitor whose user may write its own keys alone leaves the list out: the leader
finds its keys and lists it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import redis

from recovery.domain.identifiers import decode_name, encode_name
from recovery.domain.servers.samples import Server, decode_server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.stores.redis.redis_errors import guarded
from recovery.stores.state import state_keys

POLLS_KEPT = 10  # a server that missed so many is gone
HISTORY_S = 8 * 86_400  # a week, and a day for the oldest point of the chart


class PublishReceipt(NamedTuple):
    """Answer of the store: its own time in ms, and which program published this server before."""

    now: int
    before: str  # the identity of that program, "" when there was none


class SampleStore:
    """Publishes samples of servers. Its methods raise StoreError."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._lists = True  # as far as we know, our user may write the list of servers

    def publish(self, server: Server, backlog: UnsentSamples) -> PublishReceipt:
        """Replaces the newest sample, and writes what of its history is not written yet."""
        with guarded(self._store):
            try:
                return self._publish(server, backlog)
            except redis.exceptions.NoPermissionError:
                if not self._lists:
                    raise
                self._lists = False
                return self._publish(server, backlog)

    def _publish(self, server: Server, backlog: UnsentSamples) -> PublishReceipt:
        key, values = state_keys.server_metrics(server.id), cast("dict[Any, Any]", server.encode())
        with self._store.pipeline(transaction=True) as pipeline:
            pipeline.time()
            pipeline.hmget(key, ["origin", "host", "started_at"])
            pipeline.delete(key)  # fields of an older version of this program go with it
            pipeline.hset(key, mapping=values)
            pipeline.pexpire(key, server.poll * POLLS_KEPT)
            if self._lists:
                pipeline.zadd(state_keys.SERVERS, {encode_name(server.id): server.sampled_at})
            for ring, offset, piece in backlog.pieces():
                pipeline.setrange(state_keys.server_history(server.id, ring.name), offset, piece)
                pipeline.expire(state_keys.server_history(server.id, ring.name), HISTORY_S)
            (seconds, micros), before, *_ = pipeline.execute()
        backlog.written()
        return PublishReceipt(_ms(seconds, micros), ":".join(map(decode_name, before)) if all(before) else "")

    @staticmethod
    def identity(server: Server) -> str:
        """Returns the identity of the program that publishes, as a receipt names the one before."""
        return ":".join((server.origin, server.host, str(server.started_at)))

    def greet(self, id: str) -> tuple[int, Server | None]:
        """Returns the store's clock in ms, the one that all servers share, and the stored sample of this server."""
        with guarded(self._store), self._store.pipeline(transaction=False) as pipeline:
            pipeline.time()
            pipeline.hgetall(state_keys.server_metrics(id))
            (seconds, micros), hashed = pipeline.execute()
        return _ms(seconds, micros), decode_server(id, hashed)

    def close(self) -> None:
        self._store.close()


def _ms(seconds: int, micros: int) -> int:
    return seconds * 1000 + micros // 1000
