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

from recovery.domain.servers import node_exporter
from recovery.domain.servers.node_exporter import NodeProblem
from recovery.domain.servers.samples import FORMAT, SampleOrigin, Server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.domain.time_units import SECOND
from recovery.errors import StoreError
from recovery.servers.sample_store import SampleStore
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import server_hashes, state_keys

_FIELDS = ("format", "origin", "cpu_ema")
KEEP_S = 120  # TTL of the error of a node, unless it is reported again
_RANK = {SampleOrigin.MONITOR: 0, SampleOrigin.EXPORTER: 1, SampleOrigin.PROMETHEUS: 2}


class SampleSource(StrEnum):
    """Sources that report errors: each replaces only its own."""

    EXPORTERS = "exporters"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True)
class StoredSample:
    """Sample of a server that is stored now. It expires if no other follows."""

    origin: SampleOrigin
    cpu_ema: float | None

    def outranks(self, other: SampleOrigin) -> bool:
        return _RANK.get(self.origin, 0) < _RANK[other]


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """Samples that are stored at one moment, in ms of the store's clock, which all monitors share."""

    now: int
    kept: Mapping[str, StoredSample]


class NodeSampleWriter:
    """Reads stored samples, and writes samples and errors of one source. For one thread at a time."""

    def __init__(self, registry: ConnectionRegistry, source: SampleSource) -> None:
        self._registry = registry
        self._source = source
        self._ahead = 0  # ms that the store's clock is ahead of ours
        self._kept: Mapping[str, StoredSample] = {}
        self._has_told = False

    def standing(self, ids: Sequence[str], now: int) -> StoredSamples:
        """Reads the stored samples in one round trip; while the store is away it returns the last known ones."""
        with suppress(StoreError):  # the next write raises it
            self._look(ids, now)
        return StoredSamples(now + self._ahead, self._kept)

    def put(self, samples: Iterable[tuple[Server, UnsentSamples]]) -> int:
        """Writes samples; returns how many. Raises StoreError: a backlog is written when the store is back."""
        publisher, count = SampleStore(self._registry.state()), 0
        for server, backlog in samples:
            publisher.publish(server, backlog)
            count += 1
        return count

    def tell(self, troubles: Iterable[NodeProblem]) -> None:
        """Replaces the errors that this source has reported before. Raises StoreError."""
        store, told = self._registry.state(), tuple(troubles)
        with redis_errors.guarded(store), store.pipeline(transaction=True) as pipeline:
            if not self._has_told:
                pipeline.delete(state_keys.NODES)  # a source may not be configured any more
            if told:
                pipeline.hset(state_keys.NODES, self._source.value, node_exporter.encode(told))
                pipeline.expire(state_keys.NODES, KEEP_S)
            else:
                pipeline.hdel(state_keys.NODES, self._source.value)
            pipeline.execute()
        self._has_told = True

    def _look(self, ids: Sequence[str], now: int) -> None:
        store = self._registry.state()
        with redis_errors.guarded(store), store.pipeline(transaction=False) as pipeline:
            pipeline.time()
            server_hashes.prepare(pipeline)
            for id in ids:
                server_hashes.ask(pipeline, id, _FIELDS)
            (seconds, micros), _, *rows = pipeline.execute()
        self._ahead = seconds * SECOND + micros // 1000 - now
        found = ((id, _kept(*server_hashes.row_of(row, len(_FIELDS)))) for id, row in zip(ids, rows, strict=True))
        self._kept = {id: kept for id, kept in found if kept}


def _kept(format: bytes | None, origin: bytes | None, cpu_ema: bytes | None) -> StoredSample | None:
    """Decodes a stored sample; None if there is none, or another version wrote it."""
    if format != FORMAT.encode():
        return None
    try:
        return StoredSample(SampleOrigin((origin or b"").decode()), float(cpu_ema) if cpu_ema else None)
    except ValueError:
        return None
