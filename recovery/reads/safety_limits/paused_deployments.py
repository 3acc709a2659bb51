"""Publishes which deployments auto-recovery is paused on, for the open pages; the reasons are in the database."""

from __future__ import annotations

import json
from collections.abc import Iterable

import redis

from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

KEEP_S = 60  # several passes: the scheduler that publishes it may have ended


def publish(store: redis.Redis, deployments: Iterable[str]) -> None:
    """Replaces the list of paused deployments in the state store. Raises StoreError."""
    names = sorted(deployments)
    with redis_errors.guarded(store):
        if names:
            store.set(state_keys.SCANNER_HOLDS, json.dumps(names), ex=KEEP_S)
        else:
            store.delete(state_keys.SCANNER_HOLDS)


def decode(packed: object) -> tuple[str, ...]:
    """Decodes the list; empty for nothing, and for what another version wrote."""
    try:
        names = json.loads(packed) if isinstance(packed, bytes) else []
    except (ValueError, RecursionError):
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
