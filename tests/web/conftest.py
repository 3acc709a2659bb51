"""Pages on a real store: the queues of a test, and the snapshot that the collector takes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.live import state_cache
from dashboard.live.cached_state import SnapshotHealth
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, Snapshot
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.stores import registry
from recovery.stores.state.shared_read import windows
from tests.support.people import browser, person
from tests.support.stores.stores import Store
from tests.support.stuck.watching import config_of, now_ms

FRESH = SnapshotHealth(snapshot_age_ms=800, scheduler_alive=True, stale=False)
BULLMQ = LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5", ("meta.version = bullmq:5.81.5",))


class Desk:
    """What a web process has in front of it: connections, and the newest snapshot."""

    def __init__(self, store: Store, state: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.state = state
        self._monkeypatch = monkeypatch
        self.snapshot: Snapshot | None = None
        self.health = FRESH
        monkeypatch.setattr(state_cache, "newest_snapshot", lambda: self.snapshot)
        monkeypatch.setattr(state_cache, "health", lambda: self.health)

    @property
    def client(self) -> redis.Redis:
        return self.store.client

    def look(self, *bases: str, flavour: LibraryVersion = BULLMQ) -> Snapshot:
        """Take a snapshot of these queues of the deployment `main`."""
        roster = KnownQueues()
        roster.replace("main", [KnownQueue(QueueRef("main", base), flavour, 0, 0) for base in bases])
        collector = Collector(registry.registry(), roster)
        try:
            self.snapshot = collector.look(now_ms())
        finally:
            collector.close()
        self.forget()
        return self.snapshot

    def forget(self) -> None:
        """What was read a moment ago is read again."""
        windows.forget()


@pytest.fixture(autouse=True)
def _not_connected() -> None:
    """Connections that a test before this one left in the process are closed, and what it saw is forgotten."""
    registry.reset()
    state_cache.forget_cached()


@pytest.fixture
def desk(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    config_of(tmp_path, state_store, {"main": valkey})
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    registry.reset()
    yield Desk(valkey, state_store, monkeypatch)
    registry.reset()


@pytest.fixture
def viewer() -> Client:
    return browser(person(UserRole.VIEWER))


@pytest.fixture
def operator() -> Client:
    return browser(person(UserRole.OPERATOR))
