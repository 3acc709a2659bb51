"""Who feeds the pages: the scheduler that leads or, while the database is away and nobody can lead, one that reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import redis

from recovery.connections import faults, state


@dataclass(frozen=True, slots=True)
class Sign:
    """What it keeps saying in the state store, as long as it lives."""

    host: str
    pid: int
    epoch: int | None  # None: it reads only, and changes nothing
    since: int
    at: int
    id: str  # of the process

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, packed: object) -> Sign | None:
        """None for nothing, and for what another version wrote."""
        try:
            return cls(**json.loads(packed)) if isinstance(packed, bytes) else None
        except (ValueError, TypeError):
            return None

    @property
    def leads(self) -> bool:
        return self.epoch is not None


def fetch(store: redis.Redis) -> Sign | None:
    """None: nobody is there. Raises StoreError."""
    with faults.guarded(store):
        return Sign.decode(store.get(state.SCHEDULER))
