"""Records the health of each alert channel: its last delivery, and failures since. One hash of the state store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import redis

from recovery.connections import faults, state, state_limits
from recovery.domain.refs import text as name_of
from recovery.domain.stored import count, text, whole_or_none


@dataclass(frozen=True, slots=True)
class Outlet:
    """Health of a channel. `trouble`: why the last attempt failed, or what was odd. `tries`: failures in a row."""

    told_at: int | None = None
    failed_at: int | None = None
    trouble: str = ""
    tries: int = 0
    due_at: int | None = None  # the earliest next attempt

    @property
    def is_failing(self) -> bool:
        return self.tries > 0

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def write(store: redis.Redis, channel: str, outlet: Outlet) -> None:
    """Stores the health of a channel. Raises StoreError."""
    with faults.guarded(store):
        store.hset(state.OUTLETS, channel, outlet.encode())


def read(store: redis.Redis) -> dict[str, Outlet]:
    """Reads the health of every channel that was ever tried. Raises StoreError."""
    with faults.guarded(store):
        found = state_limits.hash_of(state_limits.ask_hash(store, state.OUTLETS))
    decoded = ((name_of(name), _decoded(packed)) for name, packed in found.items())
    return {name: outlet for name, outlet in decoded if outlet}


def _decoded(packed: bytes) -> Outlet | None:
    """Decodes the health of a channel; None for what another version wrote."""
    try:
        said: dict[str, Any] = json.loads(packed)
        return Outlet(
            whole_or_none(said["told_at"]),
            whole_or_none(said["failed_at"]),
            text(said["trouble"]),
            count(said["tries"]),
            whole_or_none(said["due_at"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
