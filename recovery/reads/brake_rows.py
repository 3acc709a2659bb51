"""Reads the database rows of the safety limits. An unreadable row counts as the most careful value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

from django.db.models import QuerySet

from recovery.domain.brake import Brake
from recovery.domain.breaker import Breaker
from recovery.domain.pardon import Pardon
from recovery.domain.purse import Purse
from recovery.domain.refs import QueueRef, raw, unslug
from recovery.domain.retry import Past
from recovery.models import BrakeState

T = TypeVar("T")
AT_ONCE = 400  # names in one query: SQLite takes 999 of all kinds


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """Kind of safety limit. `unread` makes the value of a row that cannot be read, from when it was written."""

    name: str
    read: Callable[[Any], T]
    fresh: Callable[[], T]
    unread: Callable[[int], T]
    write: Callable[[T], Any]


STORE: Kind[Brake] = Kind("store", Brake.from_json, Brake, Brake.doubtful, Brake.as_json)
BUDGET: Kind[Purse] = Kind("budget", Purse.from_json, Purse, Purse.lost, Purse.as_json)
BREAKER: Kind[Breaker] = Kind(
    "breaker", Breaker.from_json, Breaker, lambda at: Breaker.doubtful("", at), Breaker.as_json
)
PAST: Kind[Past] = Kind("past", Past.from_json, Past, Past.used_up, Past.as_json)
PARDON: Kind[Pardon] = Kind("pardon", Pardon.from_json, Pardon, Pardon.unread, Pardon.as_json)


@dataclass(frozen=True, slots=True)
class Place:
    """Owner of rows: a queue or, with `base` "", a deployment; in the spelling of the columns."""

    deployment: str
    base: str = ""

    @classmethod
    def of(cls, queue: QueueRef) -> Place:
        return cls(queue.deployment, queue.slug)

    @property
    def queue(self) -> QueueRef:
        return QueueRef(self.deployment, unslug(self.base) if self.base else "")


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """Value of one row with its version; `version` None: the row does not exist yet."""

    value: T
    version: int | None = None
    at: int = 0
    is_readable: bool = True


def read(kind: Kind[T], place: Place, keys: Iterable[str]) -> dict[str, Row[T]]:
    """Reads one row for each key. Raises django.db.Error, as every function of this module."""
    wanted = list(dict.fromkeys(keys))
    found: dict[str, Row[T]] = {key: Row(kind.fresh()) for key in wanted}
    for start in range(0, len(wanted), AT_ONCE):
        rows = of(kind, place).filter(key__in=wanted[start : start + AT_ONCE])
        found |= {row.key: decoded(kind, row) for row in rows}
    return found


def one(kind: Kind[T], place: Place, key: str = "") -> Row[T]:
    return read(kind, place, (key,))[key]


def of(kind: Kind[Any], place: Place | None = None) -> QuerySet[BrakeState]:
    found = BrakeState.objects.filter(kind=kind.name)
    return found.filter(deployment=place.deployment, base=place.base) if place else found


def decoded(kind: Kind[T], row: BrakeState) -> Row[T]:
    try:
        return Row(kind.read(json.loads(row.state)), row.version, row.at)
    except (ValueError, TypeError, RecursionError):
        return Row(kind.unread(row.at), row.version, row.at, is_readable=False)


def place_of(row: BrakeState) -> Place:
    return Place(row.deployment, row.base)


def breaker_key(signature: str) -> str:
    """Returns the key of the breaker for an error; "" is the breaker for all errors of a queue."""
    return sha256(raw(signature)).hexdigest() if signature else ""


def values(kind: Kind[T], place: Place) -> Mapping[str, T]:
    """Returns all values of this kind in a place, by key."""
    return {row.key: decoded(kind, row).value for row in of(kind, place)}
