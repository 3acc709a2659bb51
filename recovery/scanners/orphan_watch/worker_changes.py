"""Detects workers that connected or left: compares the connections of one pass with those of the pass before.

A name that is still connected has not left: its worker has reconnected, or another one has the same name. After a
restart of Redis all connections are new, and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Worker
from recovery.domain.servers.addresses import AddressMap, host_of
from recovery.domain.stuck.context import CHANGES_KEPT, CHANGES_KEPT_FOR, WorkerChange
from recovery.domain.time_units import SECOND

KEPT, KEPT_FOR = CHANGES_KEPT, CHANGES_KEPT_FOR
NO_ADDRESSES = AddressMap()

Changes = tuple[WorkerChange, ...]


class _Seen(NamedTuple):
    """Worker of a connection. Its server is noted while it lasts: a process that has ended has no sockets any more."""

    name: str
    server: str
    host: str
    since: int

    def change(self, link: str, at: int, where: AddressMap) -> WorkerChange:
        return WorkerChange(self.name, at, self.server or self.host, where.loads.get(self.server), link, self.since)


@dataclass(frozen=True, slots=True)
class QueueWorkerChanges:
    """Workers of one queue that left or came since the last pass."""

    left: Changes = ()
    came: Changes = ()


@dataclass(slots=True)
class WorkerChanges:
    """Worker connections of one deployment at the last pass."""

    _before: dict[QueueRef, dict[str, _Seen]] | None = field(default=None)

    def forget(self) -> None:
        self._before = None

    def since(
        self, workers: Iterable[Worker], now: int, where: AddressMap = NO_ADDRESSES
    ) -> Mapping[QueueRef, QueueWorkerChanges]:
        """Returns the changes since the last pass by queue; none at the first one."""
        before, here = self._before, dict[QueueRef, dict[str, _Seen]]()
        for worker in workers:
            known = (before or {}).get(worker.queue, {}).get(worker.link)
            here.setdefault(worker.queue, {})[worker.link] = _seen(worker, where, known, now)
        self._before = here
        if before is None:
            return {}
        refs = before.keys() | here.keys()
        moves = {ref: _moves(before.get(ref, {}), here.get(ref, {}), now, where) for ref in refs}
        return {ref: found for ref, found in moves.items() if found != QueueWorkerChanges()}


def merge_changes(known: Changes, new: Changes, now: int) -> Changes:
    """Appends changes to the known ones, bounded in number and age."""
    return tuple(change for change in (*known, *new) if now - change.at <= KEPT_FOR)[-KEPT:]


def _seen(worker: Worker, where: AddressMap, known: _Seen | None, now: int) -> _Seen:
    server = where.server(worker.address) or (known.server if known else "")
    since = known.since if known else now - worker.age * SECOND
    return _Seen(worker.name, server, host_of(worker.address), since)


def _moves(before: Mapping[str, _Seen], here: Mapping[str, _Seen], now: int, where: AddressMap) -> QueueWorkerChanges:
    names = {seen.name for seen in here.values()}
    gone = ((link, seen) for link, seen in before.items() if link not in here)
    left = tuple(seen.change(link, now, where) for link, seen in gone if not seen.name or seen.name not in names)
    came = tuple(seen.change(link, now, where) for link, seen in here.items() if link not in before)
    return QueueWorkerChanges(left, came)
