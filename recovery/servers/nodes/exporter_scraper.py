"""Scrapes all configured node_exporters concurrently every five seconds.

One that does not answer as it should is scraped less and less often, down to twice a minute, and delays no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.servers.nodes.exporter_target import EVERY, ExporterTarget
from recovery.servers.nodes.sample_writer import NodeSampleWriter, SampleSource
from recovery.stores.http import http_client
from recovery.stores.registry import ConnectionRegistry

__all__ = ["EVERY", "ExporterScraper"]


class ExporterScraper:
    """Scrapes all exporters and stores the samples. For one thread at a time."""

    def __init__(
        self, registry: ConnectionRegistry, may: May = always_leader, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watches = [
            ExporterTarget(node.id, node.exporter, node.disk) for node in registry.config.nodes if node.exporter
        ]
        self._post = NodeSampleWriter(registry, SampleSource.EXPORTERS)
        self._may = may
        self._clock = clock

    def run(self, now: int) -> int:
        """Scrapes what is due; returns how many samples were written. Raises StoreError; a backlog is written later."""
        standing = self._post.standing([watch.id for watch in self._watches], now)
        at = self._clock()
        asked = [watch for watch in self._watches if watch.is_due(at, standing.kept.get(watch.id))]
        answers = http_client.fetch_all([watch.question for watch in asked])
        samples = [
            (sample, watch.backlog)
            for watch, answer in zip(asked, answers, strict=True)
            if (sample := watch.take(answer, standing.now, at, standing.kept.get(watch.id)))
        ]
        if not self._may():
            return 0
        self._post.tell(watch.trouble for watch in self._watches if watch.trouble)
        return self._post.put(samples)
