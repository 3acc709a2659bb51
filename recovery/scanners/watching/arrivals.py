"""Workers' comings and goings: the connections of one look compared with those of the look before.

A name that is still connected has not gone: its worker has reconnected, or has a twin. After a restart of Redis all
connections are new, and nothing is said of anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from recovery.domain.counts import Worker
from recovery.domain.holders import host_of
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import Change

KEPT = 50  # changes kept of each kind and queue
KEPT_FOR = 3_600_000  # ms: an older one explains nothing that is found now

Changes = tuple[Change, ...]
_Connection = tuple[str, str]  # its address and Redis's id: ids repeat in a cluster


@dataclass(frozen=True, slots=True)
class Moves:
    """What happened on one queue since the last look."""

    left: Changes = ()
    came: Changes = ()


@dataclass(slots=True)
class Arrivals:
    """Of one deployment."""

    _before: dict[QueueRef, dict[_Connection, str]] | None = field(default=None)

    def forget(self) -> None:
        self._before = None

    def since(self, workers: Iterable[Worker], now: int) -> Mapping[QueueRef, Moves]:
        """The first look has nothing to compare with."""
        here: dict[QueueRef, dict[_Connection, str]] = {}
        for worker in workers:
            here.setdefault(worker.queue, {})[worker.address, worker.connection] = worker.name
        before, self._before = self._before, here
        if before is None:
            return {}
        refs = before.keys() | here.keys()
        moves = {ref: _moves(before.get(ref, {}), here.get(ref, {}), now) for ref in refs}
        return {ref: found for ref, found in moves.items() if found != Moves()}


def joined(known: Changes, new: Changes, now: int) -> Changes:
    """Bounded in number and age."""
    return tuple(change for change in (*known, *new) if now - change.at <= KEPT_FOR)[-KEPT:]


def _moves(before: Mapping[_Connection, str], here: Mapping[_Connection, str], now: int) -> Moves:
    names = set(here.values())
    left = [item for item in before.items() if item[0] not in here and (not item[1] or item[1] not in names)]
    came = [item for item in here.items() if item[0] not in before]
    return Moves(_changes(left, now), _changes(came, now))


def _changes(found: Iterable[tuple[_Connection, str]], now: int) -> Changes:
    return tuple(Change(name, now, host_of(address)) for (address, _), name in found)
