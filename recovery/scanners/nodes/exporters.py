"""Scrapes all configured node_exporters concurrently every five seconds.

One that does not answer as it should is scraped less and less often, down to twice a minute, and delays no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from recovery.connections import http
from recovery.connections.registry import Registry
from recovery.domain.mandate import May, always
from recovery.scanners.nodes.post import Post, Source
from recovery.scanners.nodes.watch import EVERY, Watch

__all__ = ["EVERY", "Exporters"]


class Exporters:
    """Scrapes all exporters and stores the samples. For one thread at a time."""

    def __init__(self, registry: Registry, may: May = always, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._watches = [Watch(node.id, node.exporter, node.disk) for node in registry.config.nodes if node.exporter]
        self._post = Post(registry, Source.EXPORTERS)
        self._may = may
        self._clock = clock

    def run(self, now: int) -> int:
        """Scrapes what is due; returns how many samples were written. Raises StoreError; a backlog is written later."""
        standing = self._post.standing([watch.id for watch in self._watches], now)
        at = self._clock()
        asked = [watch for watch in self._watches if watch.is_due(at, standing.kept.get(watch.id))]
        answers = http.ask([watch.question for watch in asked])
        samples = [
            (sample, watch.backlog)
            for watch, answer in zip(asked, answers, strict=True)
            if (sample := watch.take(answer, standing.now, at, standing.kept.get(watch.id)))
        ]
        if not self._may():
            return 0
        self._post.tell(watch.trouble for watch in self._watches if watch.trouble)
        return self._post.put(samples)
