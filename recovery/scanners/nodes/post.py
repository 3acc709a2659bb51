"""Writes samples of servers without a monitor to the state store, and the errors of exporters for open pages.

The closest source wins: a monitor, which sees processes and quotas, before an exporter, and that before a Prometheus.
The source is a field of the sample, which expires. If a monitor starts between our read and our write, one sample of
ours stands until its next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from recovery.connections import faults, server_hashes, state
from recovery.connections.publishing import Publisher
from recovery.connections.registry import Registry
from recovery.domain import nodes
from recovery.domain.ages import SECOND
from recovery.domain.backlog import Backlog
from recovery.domain.nodes import Trouble
from recovery.domain.servers import FORMAT, Origin, Server
from recovery.errors import StoreError

_FIELDS = ("format", "origin", "cpu_ema")
KEEP_S = 120  # TTL of the error of a node, unless it is reported again
_RANK = {Origin.MONITOR: 0, Origin.EXPORTER: 1, Origin.PROMETHEUS: 2}


class Source(StrEnum):
    """Sources that report errors: each replaces only its own."""

    EXPORTERS = "exporters"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True)
class Kept:
    """Sample of a server that is stored now. It expires if no other follows."""

    origin: Origin
    cpu_ema: float | None

    def outranks(self, other: Origin) -> bool:
        return _RANK.get(self.origin, 0) < _RANK[other]


@dataclass(frozen=True, slots=True)
class Standing:
    """Samples that are stored at one moment, in ms of the store's clock, which all monitors share."""

    now: int
    kept: Mapping[str, Kept]


class Post:
    """Reads stored samples, and writes samples and errors of one source. For one thread at a time."""

    def __init__(self, registry: Registry, source: Source) -> None:
        self._registry = registry
        self._source = source
        self._ahead = 0  # ms that the store's clock is ahead of ours
        self._kept: Mapping[str, Kept] = {}
        self._has_told = False

    def standing(self, ids: Sequence[str], now: int) -> Standing:
        """Reads the stored samples in one round trip; while the store is away it returns the last known ones."""
        with suppress(StoreError):  # the next write raises it
            self._look(ids, now)
        return Standing(now + self._ahead, self._kept)

    def put(self, samples: Iterable[tuple[Server, Backlog]]) -> int:
        """Writes samples; returns how many. Raises StoreError: a backlog is written when the store is back."""
        publisher, count = Publisher(self._registry.state()), 0
        for server, backlog in samples:
            publisher.publish(server, backlog)
            count += 1
        return count

    def tell(self, troubles: Iterable[Trouble]) -> None:
        """Replaces the errors that this source has reported before. Raises StoreError."""
        store, told = self._registry.state(), tuple(troubles)
        with faults.guarded(store), store.pipeline(transaction=True) as pipeline:
            if not self._has_told:
                pipeline.delete(state.NODES)  # a source may not be configured any more
            if told:
                pipeline.hset(state.NODES, self._source.value, nodes.encode(told))
                pipeline.expire(state.NODES, KEEP_S)
            else:
                pipeline.hdel(state.NODES, self._source.value)
            pipeline.execute()
        self._has_told = True

    def _look(self, ids: Sequence[str], now: int) -> None:
        store = self._registry.state()
        with faults.guarded(store), store.pipeline(transaction=False) as pipeline:
            pipeline.time()
            server_hashes.prepare(pipeline)
            for id in ids:
                server_hashes.ask(pipeline, id, _FIELDS)
            (seconds, micros), _, *rows = pipeline.execute()
        self._ahead = seconds * SECOND + micros // 1000 - now
        found = ((id, _kept(*server_hashes.row_of(row, len(_FIELDS)))) for id, row in zip(ids, rows, strict=True))
        self._kept = {id: kept for id, kept in found if kept}


def _kept(format: bytes | None, origin: bytes | None, cpu_ema: bytes | None) -> Kept | None:
    """Decodes a stored sample; None if there is none, or another version wrote it."""
    if format != FORMAT.encode():
        return None
    try:
        return Kept(Origin((origin or b"").decode()), float(cpu_ema) if cpu_ema else None)
    except ValueError:
        return None
