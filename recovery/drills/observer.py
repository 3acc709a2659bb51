"""Reads the job of a drill: its state, its lock, its stalled mark, and whether its worker is connected."""

from __future__ import annotations

import time
from dataclasses import dataclass

from recovery.backends import registry as backends_registry
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.drills.plan import DrillLibrary
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues import types as queues_types
from recovery.stores.redis.client import StoreClient

LOOKED_INTO = (JobState.WAITING, JobState.PAUSED, JobState.PRIORITIZED)


@dataclass(frozen=True, slots=True)
class DrillObservation:
    """A reading. `at`: seconds of the monotonic clock, after the answer. `is_connected` and `is_marked` None: not
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


class DrillObserver:
    """Reads the queue of a drill with the same readers as the pages."""

    def __init__(self, wire: StoreClient, ref: QueueRef, library: DrillLibrary, version: str) -> None:
        self._wire = wire
        self._ref = ref
        self._keys = Keys(ref.base)
        self._reader = backends_registry.reader(_flavour(library, version))

    def look(self, id: str, connection: int | None) -> DrillObservation:
        """Reads the job. Raises StoreError, and JobMissing."""
        row = self._reader.row(self._wire, self._ref, id)
        asked: list[tuple[bytes | str | int, ...]] = [(b"SISMEMBER", self._keys.named(b"stalled"), encode_name(id))]
        if connection is not None:
            asked.append((b"CLIENT", b"LIST", b"ID", connection))
        marked, *listed = self._wire.call(asked)
        count = decode.count(marked)
        return DrillObservation(time.monotonic(), row, None if count is None else bool(count), _connected(listed))


def _connected(listed: list[object]) -> bool | None:
    """Returns whether the worker is connected; None if Redis is too old to list one client, or an ACL refuses it."""
    return bool(listed[0].strip()) if listed and isinstance(listed[0], bytes) else None


def _flavour(library: DrillLibrary, version: str) -> queues_types.LibraryVersion:
    if library is DrillLibrary.BULL:
        return queues_types.LibraryVersion(queues_types.QueueLibrary.BULL)
    major = version.partition(".")[0]
    # The Python port keeps what BullMQ 6 keeps, under version numbers of its own.
    is_known = library is DrillLibrary.BULLMQ and major.isascii() and major.isdigit()
    return queues_types.LibraryVersion(queues_types.QueueLibrary.BULLMQ, int(major) if is_known else 6)
