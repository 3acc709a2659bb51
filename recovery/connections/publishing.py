"""Writes a server's newest sample and its history to the state store, for the monitor or a scanner that measures it.

One small hash a server that expires when no sample follows, its name in the list of servers, and two rings of cells.
All in one round trip, all or nothing. A monitor whose user may write its own keys alone leaves the list out: the leader
finds its keys and lists it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import redis

from recovery.connections import state
from recovery.connections.faults import guarded
from recovery.domain.backlog import Backlog
from recovery.domain.refs import raw, text
from recovery.domain.servers import Server, decode

POLLS_KEPT = 10  # a server that missed so many is gone
HISTORY_S = 8 * 86_400  # a week, and a day for the oldest point of the chart


class Receipt(NamedTuple):
    """Answer of the store: its own time in ms, and which program published this server before."""

    now: int
    before: str  # the identity of that program, "" when there was none


class Publisher:
    """Publishes samples of servers. Its methods raise StoreError."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._lists = True  # as far as we know, our user may write the list of servers

    def publish(self, server: Server, backlog: Backlog) -> Receipt:
        """Replaces the newest sample, and writes what of its history is not written yet."""
        with guarded(self._store):
            try:
                return self._publish(server, backlog)
            except redis.exceptions.NoPermissionError:
                if not self._lists:
                    raise
                self._lists = False
                return self._publish(server, backlog)

    def _publish(self, server: Server, backlog: Backlog) -> Receipt:
        key, values = state.server_metrics(server.id), cast("dict[Any, Any]", server.encode())
        with self._store.pipeline(transaction=True) as pipeline:
            pipeline.time()
            pipeline.hmget(key, ["origin", "host", "started_at"])
            pipeline.delete(key)  # fields of an older version of this program go with it
            pipeline.hset(key, mapping=values)
            pipeline.pexpire(key, server.poll * POLLS_KEPT)
            if self._lists:
                pipeline.zadd(state.SERVERS, {raw(server.id): server.sampled_at})
            for ring, offset, piece in backlog.pieces():
                pipeline.setrange(state.server_history(server.id, ring.name), offset, piece)
                pipeline.expire(state.server_history(server.id, ring.name), HISTORY_S)
            (seconds, micros), before, *_ = pipeline.execute()
        backlog.written()
        return Receipt(_ms(seconds, micros), ":".join(map(text, before)) if all(before) else "")

    @staticmethod
    def identity(server: Server) -> str:
        """Returns the identity of the program that publishes, as a receipt names the one before."""
        return ":".join((server.origin, server.host, str(server.started_at)))

    def greet(self, id: str) -> tuple[int, Server | None]:
        """Returns the store's clock in ms, the one that all servers share, and the stored sample of this server."""
        with guarded(self._store), self._store.pipeline(transaction=False) as pipeline:
            pipeline.time()
            pipeline.hgetall(state.server_metrics(id))
            (seconds, micros), hashed = pipeline.execute()
        return _ms(seconds, micros), decode(id, hashed)

    def close(self) -> None:
        self._store.close()


def _ms(seconds: int, micros: int) -> int:
    return seconds * 1000 + micros // 1000
