"""The servers that tell of themselves, as they are now and as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import redis

from recovery.connections import faults, server_hashes, state
from recovery.connections.publishing import HISTORY_S
from recovery.domain.ages import DAY
from recovery.domain.meters import Cell, Series, Window
from recovery.domain.refs import raw, text
from recovery.domain.servers import Server, decode

LIMIT = 500  # servers in one answer; those beyond told of themselves longer ago
SHIPPED_KEPT = 31 * DAY  # longer than lines are kept anywhere
_SCANNED = 1000  # keys looked at by one command: below a millisecond
_STEPS = 10  # commands of one look; the next look goes on where it ended
_KINDS = ((b"metrics", state.SERVERS), (b"logs", state.SHIPPING))


def fetch(store: redis.Redis) -> tuple[Server, ...]:
    """The newest sample of every server that is alive, by their names. Raises StoreError."""
    names = list(seen(store))
    with faults.guarded(store):
        pipeline = store.pipeline(transaction=False)
        server_hashes.prepare(pipeline)
        for name in names:
            server_hashes.ask(pipeline, name)
        _, *replies = pipeline.execute()
    found = (decode(name, server_hashes.fields_of(reply)) for name, reply in zip(names, replies, strict=True))
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
    """Takes those out of the lists whose history or lines have ended too; returns how many. Raises StoreError."""
    with faults.guarded(store):
        pipeline = store.pipeline(transaction=False)
        pipeline.zremrangebyscore(state.SERVERS, "-inf", now - HISTORY_S * 1000)
        pipeline.zremrangebyscore(state.SHIPPING, "-inf", now - SHIPPED_KEPT)
        return sum(pipeline.execute())


def list_new(store: redis.Redis, cursor: int, now: int) -> int:
    """Puts servers into the lists whose monitors may not write there; returns where the next look goes on.

    A monitor that has a user of its own writes its own keys alone (docs/monitor.md). They are found by SCAN, at most
    10,000 keys of the state store at each look. Raises StoreError.
    """
    found: dict[bytes, dict[Any, float]] = {}
    with faults.guarded(store):
        for _ in range(_STEPS):
            cursor, keys = cast("tuple[int, list[bytes]]", store.scan(cursor, state.MONITORS + b"*", _SCANNED))
            for key in keys:
                for last, listed in _KINDS:
                    if (server := state.server_of(key, last)) is not None:
                        found.setdefault(listed, {})[raw(server)] = now
            if not cursor:
                break
        for listed, names in found.items():
            store.zadd(listed, names, nx=True)
    return cursor


def touch(store: redis.Redis, sampled: Mapping[str, int]) -> None:
    """Writes when these last told of themselves, for those that may not write it. Raises StoreError."""
    if sampled:
        with faults.guarded(store):
            store.zadd(state.SERVERS, {raw(server): at for server, at in sampled.items()})
