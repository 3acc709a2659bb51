"""Reads the reporting servers: their newest samples and their history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import redis

from recovery.domain.identifiers import decode_name, encode_name
from recovery.domain.servers.metric_history import ServerCell, ServerSeries, ServerWindow
from recovery.domain.servers.samples import Server, decode_server
from recovery.domain.time_units import DAY
from recovery.servers.sample_store import HISTORY_S
from recovery.stores.redis import redis_errors
from recovery.stores.state import server_hashes, state_keys

LIMIT = 500  # servers in one answer; the others reported longer ago
SHIPPED_KEPT = 31 * DAY  # longer than any log lines are kept
_SCANNED = 1000  # keys scanned by one command: below a millisecond
_STEPS = 10  # commands of one call; the next call goes on where this one ended
_KINDS = ((b"metrics", state_keys.SERVERS), (b"logs", state_keys.SHIPPING))


def fetch(store: redis.Redis) -> tuple[Server, ...]:
    """Fetches the newest sample of every live server, sorted by name. Raises StoreError."""
    names = list(last_seen(store))
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        server_hashes.prepare(pipeline)
        for name in names:
            server_hashes.ask(pipeline, name)
        _, *replies = pipeline.execute()
    found = (decode_server(name, server_hashes.fields_of(reply)) for name, reply in zip(names, replies, strict=True))
    return tuple(sorted((server for server in found if server), key=lambda server: server.id))


def last_seen(store: redis.Redis) -> dict[str, int]:
    """Returns when each server of the last days, also one that is gone, last reported. Raises StoreError."""
    with redis_errors.guarded(store):
        rows = cast(
            "list[tuple[bytes, float]]", store.zrange(state_keys.SERVERS, 0, LIMIT - 1, desc=True, withscores=True)
        )
    return {decode_name(name): int(at) for name, at in rows}


def history(store: redis.Redis, id: str, hours: float, now: int) -> ServerSeries:
    """Returns at most 720 closed points, oldest first; `hours` is one of meters.HOURS. Raises StoreError."""
    window = ServerWindow.of(hours, now)
    return window.series(cells(store, id, window))


def cells(store: redis.Redis, id: str, window: ServerWindow) -> list[ServerCell]:
    """Reads the recorded cells of a server in this window; gaps in the measurements have none. Raises StoreError."""
    ring, (first, last) = window.ring, window.periods
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        for start, stop in ring.spans(first, last):
            pipeline.getrange(state_keys.server_history(id, ring.name), start, stop)
        raw = b"".join(cast("list[bytes]", pipeline.execute()))
    return list(ring.read(raw, first, last).values())


def forget(store: redis.Redis, now: int) -> int:
    """Removes servers whose history or log lines have expired from the lists; returns how many. Raises StoreError."""
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        pipeline.zremrangebyscore(state_keys.SERVERS, "-inf", now - HISTORY_S * 1000)
        pipeline.zremrangebyscore(state_keys.SHIPPING, "-inf", now - SHIPPED_KEPT)
        return sum(pipeline.execute())


def list_new(store: redis.Redis, cursor: int, now: int) -> int:
    """Adds servers to the lists whose monitors may not write there; returns the cursor of the next call.

    A monitor with its own user writes only its own keys (docs/monitor.md). They are found by SCAN, at most 10,000
    keys of the state store in each call. Raises StoreError.
    """
    found: dict[bytes, dict[Any, float]] = {}
    with redis_errors.guarded(store):
        for _ in range(_STEPS):
            cursor, keys = cast("tuple[int, list[bytes]]", store.scan(cursor, state_keys.MONITORS + b"*", _SCANNED))
            for key in keys:
                for last, listed in _KINDS:
                    if (server := state_keys.server_of(key, last)) is not None:
                        found.setdefault(listed, {})[encode_name(server)] = now
            if not cursor:
                break
        for listed, names in found.items():
            store.zadd(listed, names, nx=True)
    return cursor


def touch(store: redis.Redis, sampled: Mapping[str, int]) -> None:
    """Writes when these servers last reported, for monitors that may not write it. Raises StoreError."""
    if sampled:
        with redis_errors.guarded(store):
            store.zadd(state_keys.SERVERS, {encode_name(server): at for server, at in sampled.items()})
