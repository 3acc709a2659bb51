"""Throttles a bulk run: rests between its chunks, longer ones while the store answers others slowly."""

from __future__ import annotations

import time
from collections import deque

from recovery.config import Deployment
from recovery.config.databases import Database
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import open_wire

REST = 0.0005  # seconds between two chunks: other clients of the store get in between
SLOW_MS = 5.0  # a PING that takes so much longer than the best one: other clients wait too, perhaps because of us
JITTER = 0.25  # of the best one: over a long way the times differ by more
BASELINE = 100  # PINGs among which the best is sought: a store that is slow in all is far away, or not slowed by us
LOOKS = 2  # PINGs, of which the quicker counts: a busy machine delays one now and then, a busy store delays all
LONGEST = 1.0  # seconds: however slow it is, a run goes on
LOOK_EVERY = 0.1  # seconds between two looks: far away each is a round trip in which nothing else is done


class ChunkDelay:
    """Computes a rest from latencies alone. A distant store is not a slow one: the best of late is what it can do."""

    def __init__(self) -> None:
        self._known: deque[float] = deque(maxlen=BASELINE)
        self._rest = REST

    def after(self, latency: float) -> float:
        """Returns the seconds to rest after a PING that took so many milliseconds."""
        self._known.append(latency)
        best = min(self._known)
        if latency > best * (1 + JITTER) + SLOW_MS:
            self._rest = min(LONGEST, self._rest * 2)
        else:
            self._rest = max(REST, self._rest / 2)
        return self._rest


class BulkThrottle:
    """Measures latency on a connection of its own, as another client sees it. Call `close` when the run is over.

    A SQL database serves many at once, so it is not asked: only its own worker waits for a row that we change.
    """

    def __init__(self, place: Deployment | Database) -> None:
        self._wire = open_wire(place) if isinstance(place, Deployment) else None
        self._rests = ChunkDelay()
        self._looked, self._rest = 0.0, 0.0

    def rest(self) -> float:
        """Returns the seconds to wait now. Raises StoreError."""
        if self._rest > REST or time.monotonic() - self._looked >= LOOK_EVERY:
            self._rest = self._rests.after(self.latency())
            self._looked = time.monotonic()
        return self._rest

    def latency(self) -> float:
        """Returns the milliseconds that the slowest node takes to answer."""
        wire = self._wire
        return max(min(_asked(wire, node) for _ in range(LOOKS)) for node in wire.nodes()) if wire else 0.0

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


def _asked(wire: StoreClient, node: str) -> float:
    began = time.perf_counter()
    wire.at(node, [(b"PING",)])
    return (time.perf_counter() - began) * 1000
