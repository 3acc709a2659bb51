"""Who feeds the pages: the scheduler that leads or, while the database is away and nobody can lead, one that reads."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

import redis
from django.db import Error

from recovery import signing
from recovery.connections import clock, faults, state, state_limits
from recovery.domain.consoles import Console
from recovery.models import Lease

_SIGN, _CLOCK = "scheduler sign", "clock offset"  # purposes of signatures
_CLOCK_LIMIT = 100  # bytes of a signed number; what is longer is none
_NUMBER = re.compile(rb"-?\d{1,15}")


@dataclass(frozen=True, slots=True)
class Sign:
    """What it keeps saying in the state store, as long as it lives."""

    host: str
    pid: int
    epoch: int | None  # None: it reads only, and changes nothing
    since: int
    at: int
    id: str  # of the process
    consoles: tuple[Console, ...] = ()  # others that lead on a Redis that we watch

    def encode(self) -> bytes:
        """Signed: an alert and the predictions go by it."""
        return signing.seal(_SIGN, json.dumps(asdict(self)).encode())

    @classmethod
    def decode(cls, packed: object) -> Sign | None:
        """None for nothing, and for what another version or another program wrote."""
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
    """The two answers are what `time_of` takes."""
    pipeline.time()
    pipeline.getrange(state.CLOCK, 0, _CLOCK_LIMIT)


def time_of(clock: tuple[int, int], ahead: object) -> int:
    """The time that all processes share, in ms: the store's clock, or what the leader makes of it after it jumped."""
    seconds, micros = clock
    found = (signing.unseal(_CLOCK, ahead) if isinstance(ahead, bytes) else None) or b""
    return seconds * 1000 + micros // 1000 + (int(found) if _NUMBER.fullmatch(found) else 0)


def offset(ms: int) -> bytes:
    """By how much the leader's time is ahead of the store's clock, signed: all processes set theirs by it."""
    return signing.seal(_CLOCK, b"%d" % ms)


def fetch_time(store: redis.Redis) -> int:
    """Raises StoreError."""
    with faults.guarded(store), store.pipeline(transaction=False) as pipeline:
        ask_time(pipeline)
        return time_of(*pipeline.execute())


def fetch(store: redis.Redis) -> Sign | None:
    """None: nobody is there. Raises StoreError."""
    with faults.guarded(store):
        packed = state_limits.ask_string(store, state.SCHEDULER, state_limits.SMALL_LIMIT)
        return Sign.decode(state_limits.string_of(packed, state_limits.SMALL_LIMIT))


def is_led(sign: Sign | None) -> bool | None:
    """Whether a scheduler leads, by its sign, or by the lease in the database where there is none; None: not known.

    A state store that takes no writes loses the sign of a scheduler that leads all the same.
    """
    if sign is not None:
        return sign.leads
    try:
        return Lease.objects.filter(expires_at__gt=clock.now()).exists()
    except Error:
        return None
