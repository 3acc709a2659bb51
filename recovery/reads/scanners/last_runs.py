"""Stores the last run of each scanner in the state store: one hash with one field for each scanner.

Every run is written, also the many that get no row in the database. So its age tells whether the scanner runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import redis

from recovery import signing
from recovery.domain.json_fields import count, text, whole, whole_or_none
from recovery.domain.scanners.types import ScannerKind
from recovery.stores.redis import redis_errors
from recovery.stores.state import size_limits, state_keys

_PURPOSE = "scanner run"


@dataclass(frozen=True, slots=True)
class LastScannerRun:
    """Last run of a scanner, and when a run last succeeded. `trouble`: why this one failed, or what it could not do."""

    started_at: int
    ended_at: int
    succeeded_at: int | None = None
    next_at: int | None = None  # when the next run is due, as its scheduler plans it
    looked: int = 0
    found: int = 0
    acted: int = 0
    refused: int = 0
    holds: tuple[str, ...] = ()
    trouble: str = ""
    run: int | None = None  # the row of this run, when it has one
    is_refused: bool = False  # the store's user has no permission for what was to be done

    @property
    def has_failed(self) -> bool:
        return self.succeeded_at != self.ended_at

    @property
    def took(self) -> int:
        return max(0, self.ended_at - self.started_at)

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, packed: object) -> LastScannerRun | None:
        """Decodes a run; None for nothing, and for what another version wrote."""
        try:
            return _pulse(json.loads(packed)) if isinstance(packed, bytes | str) else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


def write(store: redis.Redis, scan: ScannerKind, pulse: LastScannerRun) -> None:
    """Stores the last run of a scanner. Raises StoreError."""
    with redis_errors.guarded(store):
        store.hset(state_keys.SCANNERS, scan.value, signing.seal(_PURPOSE, pulse.encode().encode(), scan.value))


def read(store: redis.Redis) -> dict[ScannerKind, LastScannerRun]:
    """Reads the last run of every scanner that ever ran. Raises StoreError."""
    with redis_errors.guarded(store):
        return decode_runs(size_limits.hash_of(size_limits.ask_hash(store, state_keys.SCANNERS)))


def decode_runs(fields: Mapping[Any, Any]) -> dict[ScannerKind, LastScannerRun]:
    """Decodes the hash of all scanners, as the state store returned it."""
    written = ((scan, signing.unseal(_PURPOSE, fields.get(scan.value.encode()), scan.value)) for scan in ScannerKind)
    found = ((scan, LastScannerRun.decode(row)) for scan, row in written)
    return {scan: pulse for scan, pulse in found if pulse}


def _pulse(written: dict[str, Any]) -> LastScannerRun:
    return LastScannerRun(
        started_at=whole(written["started_at"]),
        ended_at=whole(written["ended_at"]),
        succeeded_at=whole_or_none(written["succeeded_at"]),
        next_at=whole_or_none(written["next_at"]),
        looked=count(written["looked"]),
        found=count(written["found"]),
        acted=count(written["acted"]),
        refused=count(written["refused"]),
        holds=tuple(text(hold) for hold in written["holds"]),
        trouble=text(written["trouble"]),
        run=whole_or_none(written["run"]),
        is_refused=written.get("is_refused") is True,
    )
