"""Puts samples where a monitor puts its own, and what cannot be read where open pages find it.

Who measures closest wins: a monitor, which sees processes and quotas, before an exporter, and that before a Prometheus.
Who told last stands in the sample itself, for as long as it lasts. Between our look and our write a monitor may start:
then one sample of ours stands until its next.
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
KEEP_S = 120  # what is told of a node that cannot be read, when nobody tells it again
_RANK = {Origin.MONITOR: 0, Origin.EXPORTER: 1, Origin.PROMETHEUS: 2}


class Source(StrEnum):
    """Who tells of troubles: each replaces its own only."""

    EXPORTERS = "exporters"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True)
class Kept:
    """The sample of a server that stands. It ends by itself when no other follows."""

    origin: Origin
    cpu_ema: float | None

    def outranks(self, other: Origin) -> bool:
        return _RANK.get(self.origin, 0) < _RANK[other]


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands in the store at one moment, in ms of its clock: the one that all monitors share."""

    now: int
    kept: Mapping[str, Kept]


class Post:
    """One thread at a time."""

    def __init__(self, registry: Registry, source: Source) -> None:
        self._registry = registry
        self._source = source
        self._ahead = 0  # ms that the store's clock is ahead of ours
        self._kept: Mapping[str, Kept] = {}
        self._has_told = False

    def standing(self, ids: Sequence[str], now: int) -> Standing:
        """In one round trip; while the store is away as it stood before, and the time goes on."""
        with suppress(StoreError):  # whoever writes next says so
            self._look(ids, now)
        return Standing(now + self._ahead, self._kept)

    def put(self, samples: Iterable[tuple[Server, Backlog]]) -> int:
        """How many were written. Raises StoreError: what is in a backlog is written when the store is back."""
        publisher, count = Publisher(self._registry.state()), 0
        for server, backlog in samples:
            publisher.publish(server, backlog)
            count += 1
        return count

    def tell(self, troubles: Iterable[Trouble]) -> None:
        """In place of what this source told before. Raises StoreError."""
        store, told = self._registry.state(), tuple(troubles)
        with faults.guarded(store), store.pipeline(transaction=True) as pipeline:
            if not self._has_told:
                pipeline.delete(state.NODES)  # what was configured before may be no source any more
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
    """None for nothing, and for what another version wrote."""
    if format != FORMAT.encode():
        return None
    try:
        return Kept(Origin((origin or b"").decode()), float(cpu_ema) if cpu_ema else None)
    except ValueError:
        return None
