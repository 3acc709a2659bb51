"""Which deployments are held by their brake, as the orphan-watch tells the open pages; the database knows why."""

from __future__ import annotations

import json
from collections.abc import Iterable

import redis

from recovery.connections import faults, state

KEEP_S = 60  # several looks: whoever tells it may have ended


def publish(store: redis.Redis, deployments: Iterable[str]) -> None:
    """Raises StoreError."""
    names = sorted(deployments)
    with faults.guarded(store):
        if names:
            store.set(state.HELD, json.dumps(names), ex=KEEP_S)
        else:
            store.delete(state.HELD)


def decode(packed: object) -> tuple[str, ...]:
    """Empty for nothing, and for what another version wrote."""
    try:
        names = json.loads(packed) if isinstance(packed, bytes) else []
    except (ValueError, RecursionError):
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
