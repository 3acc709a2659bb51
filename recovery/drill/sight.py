"""Reads the job of a drill: its state, its lock, its stalled mark, and whether its worker is connected."""

from __future__ import annotations

import time
from dataclasses import dataclass

from recovery import backends
from recovery.backends.shared import decode
from recovery.backends.shared.keys import Keys
from recovery.connections.wire import Wire
from recovery.domain import counts
from recovery.domain.drills.plan import Library
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import QueueRef, raw

LOOKED_INTO = (State.WAITING, State.PAUSED, State.PRIORITIZED)


@dataclass(frozen=True, slots=True)
class Sight:
    """One reading. `at`: seconds of the monotonic clock, after the answer. `is_connected` and `is_marked` None: not
    known.
    """

    at: float
    row: JobRow
    is_marked: bool | None
    is_connected: bool | None

    @property
    def token(self) -> str | None:
        return self.row.lock.token if self.row.lock else None

    @property
    def is_back(self) -> bool:
        return self.row.state in LOOKED_INTO


class Watcher:
    """Reads the queue of a drill with the same readers as the pages."""

    def __init__(self, wire: Wire, ref: QueueRef, library: Library, version: str) -> None:
        self._wire = wire
        self._ref = ref
        self._keys = Keys(ref.base)
        self._reader = backends.reader(_flavour(library, version))

    def look(self, id: str, connection: int | None) -> Sight:
        """Reads the job. Raises StoreError, and JobMissing."""
        row = self._reader.row(self._wire, self._ref, id)
        asked: list[tuple[bytes | str | int, ...]] = [(b"SISMEMBER", self._keys.named(b"stalled"), raw(id))]
        if connection is not None:
            asked.append((b"CLIENT", b"LIST", b"ID", connection))
        marked, *listed = self._wire.call(asked)
        count = decode.count(marked)
        return Sight(time.monotonic(), row, None if count is None else bool(count), _connected(listed))


def _connected(listed: list[object]) -> bool | None:
    """Returns whether the worker is connected; None if Redis is too old to list one client, or an ACL refuses it."""
    return bool(listed[0].strip()) if listed and isinstance(listed[0], bytes) else None


def _flavour(library: Library, version: str) -> counts.Flavour:
    if library is Library.BULL:
        return counts.Flavour(counts.Library.BULL)
    major = version.partition(".")[0]
    # The Python port keeps what BullMQ 6 keeps, under version numbers of its own.
    is_known = library is Library.BULLMQ and major.isascii() and major.isdigit()
    return counts.Flavour(counts.Library.BULLMQ, int(major) if is_known else 6)
