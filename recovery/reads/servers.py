"""The servers that tell of themselves, as they are now and as they were."""

from __future__ import annotations

from typing import cast

import redis

from recovery.connections import faults, state
from recovery.connections.publishing import HISTORY_S
from recovery.domain.meters import Cell, Series, Window
from recovery.domain.refs import text
from recovery.domain.servers import Server, decode

LIMIT = 500  # servers in one answer; those beyond told of themselves longer ago


def fetch(store: redis.Redis) -> tuple[Server, ...]:
    """The newest sample of every server that is alive, by their names. Raises StoreError."""
    names = list(seen(store))
    with faults.guarded(store):
        pipeline = store.pipeline(transaction=False)
        for name in names:
            pipeline.hgetall(state.server_metrics(name))
        hashes = cast("list[dict[bytes, bytes]]", pipeline.execute())
    found = (decode(*one) for one in zip(names, hashes, strict=True))
    return tuple(sorted((server for server in found if server), key=lambda server: server.id))


def seen(store: redis.Redis) -> dict[str, int]:
    """Every server of the last days, also those that are gone: when it last told of itself. Raises StoreError."""
    with faults.guarded(store):
        rows = cast("list[tuple[bytes, float]]", store.zrange(state.SERVERS, 0, LIMIT - 1, desc=True, withscores=True))
    return {text(name): int(at) for name, at in rows}


def history(store: redis.Redis, id: str, hours: float, now: int) -> Series:
    """At most 720 closed points, oldest first; `hours` is one of meters.HOURS. Raises StoreError."""
    window = Window.of(hours, now)
    return window.series(cells(store, id, window))


def cells(store: redis.Redis, id: str, window: Window) -> list[Cell]:
    """What is recorded of a server in this window; nothing where nobody measured. Raises StoreError."""
    ring, (first, last) = window.ring, window.periods
    with faults.guarded(store):
        pipeline = store.pipeline(transaction=False)
        for start, stop in ring.spans(first, last):
            pipeline.getrange(state.server_history(id, ring.name), start, stop)
        raw = b"".join(cast("list[bytes]", pipeline.execute()))
    return list(ring.read(raw, first, last).values())


def forget(store: redis.Redis, now: int) -> int:
    """Takes those out of the list whose history has ended too; returns how many. Raises StoreError."""
    with faults.guarded(store):
        return store.zremrangebyscore(state.SERVERS, "-inf", now - HISTORY_S * 1000)
