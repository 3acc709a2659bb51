"""Reads which scheduler feeds the pages: the leader or, while the database is unavailable, one that only reads."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

import redis
from django.db import Error

from recovery import signing
from recovery.domain.scheduler.consoles import Console
from recovery.models import Lease
from recovery.stores.redis import redis_errors
from recovery.stores.sql import database_clock
from recovery.stores.state import size_limits, state_keys

_SIGN, _CLOCK = "scheduler sign", "clock offset"  # purposes of signatures
_CLOCK_LIMIT = 100  # bytes of a signed number; anything longer is invalid
_NUMBER = re.compile(rb"-?\d{1,15}")


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """Status that this scheduler keeps writing to the state store while it runs."""

    host: str
    pid: int
    epoch: int | None  # its term; None: it only reads, and changes nothing
    since: int
    at: int
    id: str  # of the process
    consoles: tuple[Console, ...] = ()  # other consoles whose scheduler leads on a Redis that we watch

    def encode(self) -> bytes:
        """Encodes and signs the status: an alert and the predictions depend on it."""
        return signing.seal(_SIGN, json.dumps(asdict(self)).encode())

    @classmethod
    def decode(cls, packed: object) -> SchedulerStatus | None:
        """Decodes a status; None for nothing, and for what another version or another program wrote."""
        written = signing.unseal(_SIGN, packed) if isinstance(packed, bytes) else None
        try:
            fields = json.loads(written or b"{}")
            return cls(**fields | {"consoles": tuple(Console(**one) for one in fields["consoles"])})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    @property
    def leads(self) -> bool:
        return self.epoch is not None


def ask_time(pipeline: Any) -> None:
    """Adds two commands to a pipeline, whose replies `time_of` takes."""
    pipeline.time()
    pipeline.getrange(state_keys.CLOCK, 0, _CLOCK_LIMIT)


def time_of(clock: tuple[int, int], ahead: object) -> int:
    """Returns the shared time of all processes in ms: the store's clock, with the leader's offset after it jumped."""
    seconds, micros = clock
    found = (signing.unseal(_CLOCK, ahead) if isinstance(ahead, bytes) else None) or b""
    return seconds * 1000 + micros // 1000 + (int(found) if _NUMBER.fullmatch(found) else 0)


def offset(ms: int) -> bytes:
    """Encodes and signs how far the leader's time is ahead of the store's clock; every process applies it."""
    return signing.seal(_CLOCK, b"%d" % ms)


def fetch_time(store: redis.Redis) -> int:
    """Fetches the shared time in ms. Raises StoreError."""
    with redis_errors.guarded(store), store.pipeline(transaction=False) as pipeline:
        ask_time(pipeline)
        return time_of(*pipeline.execute())


def fetch(store: redis.Redis) -> SchedulerStatus | None:
    """Fetches the status; None: no scheduler is running. Raises StoreError."""
    with redis_errors.guarded(store):
        packed = size_limits.ask_string(store, state_keys.SCHEDULER, size_limits.SMALL_LIMIT)
        return SchedulerStatus.decode(size_limits.string_of(packed, size_limits.SMALL_LIMIT))


def is_led(sign: SchedulerStatus | None) -> bool | None:
    """Tells whether a scheduler leads, by its status or else by the lease in the database; None: not known.

    While the state store takes no writes, the status of a leading scheduler is missing from it.
    """
    if sign is not None:
        return sign.leads
    try:
        return Lease.objects.filter(expires_at__gt=database_clock.now()).exists()
    except Error:
        return None
