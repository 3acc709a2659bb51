"""Records the health of each alert channel: its last delivery, and failures since. One hash of the state store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import redis

from recovery.domain.identifiers import decode_name as name_of
from recovery.domain.json_fields import count, text, whole_or_none
from recovery.stores.redis import redis_errors
from recovery.stores.state import size_limits, state_keys


@dataclass(frozen=True, slots=True)
class ChannelHealth:
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


def write(store: redis.Redis, channel: str, outlet: ChannelHealth) -> None:
    """Stores the health of a channel. Raises StoreError."""
    with redis_errors.guarded(store):
        store.hset(state_keys.OUTLETS, channel, outlet.encode())


def read(store: redis.Redis) -> dict[str, ChannelHealth]:
    """Reads the health of every channel that was ever tried. Raises StoreError."""
    with redis_errors.guarded(store):
        found = size_limits.hash_of(size_limits.ask_hash(store, state_keys.OUTLETS))
    decoded = ((name_of(name), _decoded(packed)) for name, packed in found.items())
    return {name: outlet for name, outlet in decoded if outlet}


def _decoded(packed: bytes) -> ChannelHealth | None:
    """Decodes the health of a channel; None for what another version wrote."""
    try:
        said: dict[str, Any] = json.loads(packed)
        return ChannelHealth(
            whole_or_none(said["told_at"]),
            whole_or_none(said["failed_at"]),
            text(said["trouble"]),
            count(said["tries"]),
            whole_or_none(said["due_at"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
