"""Discovers queues: configured names first, then the names of connected workers, then a SCAN in the background.

Every deployment has a thread of its own. The first three steps are done within milliseconds, and what is found is
listed after each slice of the SCAN, so that a page shows something long before a large keyspace is scanned.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.search import QueueSearch
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)


class Discoverer:
    """Searches all deployments for queues. `remembers`: the result is kept in the state store for the next start."""

    def __init__(self, registry: ConnectionRegistry, roster: KnownQueues, *, remembers: bool = True) -> None:
        self._registry = registry
        self._roster = roster
        self._remembers = remembers
        self._stopping = threading.Event()
        every = int(registry.config.discover_every * 1000)
        self._searches = [
            QueueSearch(deployment, registry, roster, every=every, stopping=self._stopping)
            for deployment in registry.config.deployments
        ]
        self._is_loaded = not remembers

    @property
    def known(self) -> int:
        """Number of known queues in all deployments."""
        return sum(len(self._roster.listing(search.name).queues) for search in self._searches)

    def run(self, now: int) -> bool:
        """Runs each search that is due; returns False if none was.

        Raises StoreError when the result cannot be stored; this process knows it nevertheless.
        """
        self._load()
        with ThreadPoolExecutor(max_workers=max(1, len(self._searches)), thread_name_prefix="discover") as pool:
            were_due = list(pool.map(lambda search: search.run(now), self._searches))
        if self._remembers:
            for search in self._searches:
                self._roster.save(self._registry.state(), search.name)
        return any(were_due)

    def stop(self) -> None:
        """Asks a run that is under way to end after its slice of the SCAN."""
        self._stopping.set()

    def _load(self) -> None:
        """Loads the queues known before the restart; if the state store is away, the next run tries again."""
        if self._is_loaded:
            return
        for search in self._searches:
            self._roster.load(self._registry.state(), search.name)
        self._is_loaded = True
