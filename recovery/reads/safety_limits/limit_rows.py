"""Reads the database rows of the safety limits. An unreadable row counts as the most careful value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

from django.db.models import QuerySet

from recovery.domain.auto_retry.rules import RetryHistory
from recovery.domain.identifiers import QueueRef, encode_name, unslug
from recovery.domain.safety_limits.circuit_breaker import CircuitBreaker
from recovery.domain.safety_limits.quarantine_release import QuarantineRelease
from recovery.domain.safety_limits.redis_pause import RedisPause
from recovery.domain.safety_limits.retry_budget_state import RetryBudgetState
from recovery.models import BrakeState

T = TypeVar("T")
AT_ONCE = 400  # names in one query: SQLite takes 999 of all kinds


@dataclass(frozen=True, slots=True)
class SafetyLimitKind(Generic[T]):
    """Kind of safety limit. `unread` makes the value of a row that cannot be read, from when it was written."""

    name: str
    read: Callable[[Any], T]
    fresh: Callable[[], T]
    unread: Callable[[int], T]
    write: Callable[[T], Any]


REDIS_PAUSE: SafetyLimitKind[RedisPause] = SafetyLimitKind(
    "store", RedisPause.from_json, RedisPause, RedisPause.doubtful, RedisPause.as_json
)
BUDGET: SafetyLimitKind[RetryBudgetState] = SafetyLimitKind(
    "budget", RetryBudgetState.from_json, RetryBudgetState, RetryBudgetState.lost, RetryBudgetState.as_json
)
BREAKER: SafetyLimitKind[CircuitBreaker] = SafetyLimitKind(
    "breaker",
    CircuitBreaker.from_json,
    CircuitBreaker,
    lambda at: CircuitBreaker.doubtful("", at),
    CircuitBreaker.as_json,
)
RETRY_HISTORY: SafetyLimitKind[RetryHistory] = SafetyLimitKind(
    "past", RetryHistory.from_json, RetryHistory, RetryHistory.used_up, RetryHistory.as_json
)
QUARANTINE_RELEASE: SafetyLimitKind[QuarantineRelease] = SafetyLimitKind(
    "pardon", QuarantineRelease.from_json, QuarantineRelease, QuarantineRelease.unread, QuarantineRelease.as_json
)


@dataclass(frozen=True, slots=True)
class SafetyLimitScope:
    """Owner of rows: a queue or, with `base` "", a deployment; in the spelling of the columns."""

    deployment: str
    base: str = ""

    @classmethod
    def of(cls, queue: QueueRef) -> SafetyLimitScope:
        return cls(queue.deployment, queue.slug)

    @property
    def queue(self) -> QueueRef:
        return QueueRef(self.deployment, unslug(self.base) if self.base else "")


@dataclass(frozen=True, slots=True)
class SafetyLimitRow(Generic[T]):
    """Value of one row with its version; `version` None: the row does not exist yet."""

    value: T
    version: int | None = None
    at: int = 0
    is_readable: bool = True


def read_rows(kind: SafetyLimitKind[T], place: SafetyLimitScope, keys: Iterable[str]) -> dict[str, SafetyLimitRow[T]]:
    """Reads one row for each key. Raises django.db.Error, as every function of this module."""
    wanted = list(dict.fromkeys(keys))
    found: dict[str, SafetyLimitRow[T]] = {key: SafetyLimitRow(kind.fresh()) for key in wanted}
    for start in range(0, len(wanted), AT_ONCE):
        rows = rows_of_kind(kind, place).filter(key__in=wanted[start : start + AT_ONCE])
        found |= {row.key: decode_row(kind, row) for row in rows}
    return found


def read_row(kind: SafetyLimitKind[T], place: SafetyLimitScope, key: str = "") -> SafetyLimitRow[T]:
    return read_rows(kind, place, (key,))[key]


def rows_of_kind(kind: SafetyLimitKind[Any], place: SafetyLimitScope | None = None) -> QuerySet[BrakeState]:
    found = BrakeState.objects.filter(kind=kind.name)
    return found.filter(deployment=place.deployment, base=place.base) if place else found


def decode_row(kind: SafetyLimitKind[T], row: BrakeState) -> SafetyLimitRow[T]:
    try:
        return SafetyLimitRow(kind.read(json.loads(row.state)), row.version, row.at)
    except (ValueError, TypeError, RecursionError):
        return SafetyLimitRow(kind.unread(row.at), row.version, row.at, is_readable=False)


def place_of(row: BrakeState) -> SafetyLimitScope:
    return SafetyLimitScope(row.deployment, row.base)


def breaker_key(signature: str) -> str:
    """Returns the key of the breaker for an error; "" is the breaker for all errors of a queue."""
    return sha256(encode_name(signature)).hexdigest() if signature else ""


def values_by_key(kind: SafetyLimitKind[T], place: SafetyLimitScope) -> Mapping[str, T]:
    """Returns all values of this kind in a place, by key."""
    return {row.key: decode_row(kind, row).value for row in rows_of_kind(kind, place)}
