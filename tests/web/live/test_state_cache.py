"""What a process without a mirror sees: it asks the state store itself, seldom, and never fails for it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dashboard.live import state_cache
from dashboard.live.cached_state import UNLED
from recovery import shared_clock
from recovery.domain.queues.types import Snapshot
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.support.patience import patience
from tests.support.stores.stores import Store


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, state_store: Store, valkey: Store) -> Iterator[None]:
    monkeypatch.setenv("UNSTALL_REDIS_URL", valkey.url)
    monkeypatch.setenv("UNSTALL_STATE_URL", state_store.url)
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    registry.reset()
    state_cache.forget_cached()


def publish(store: Store, number: int) -> None:
    now = shared_clock.now()
    snapshot_store.publish(store.client, Snapshot(number=number, taken_at=now, deployments=(), queues=()))


def test_the_newest_snapshot_is_read_from_the_store(state_store: Store) -> None:
    publish(state_store, 5)
    newest = state_cache.newest_snapshot()
    assert newest is not None
    assert newest.number == 5
    assert not state_cache.health().stale


def test_the_store_is_asked_once_for_many_looks(state_store: Store) -> None:
    publish(state_store, 5)
    state_cache.newest_snapshot()
    before = state_store.client.info("commandstats")["cmdstat_getrange"]["calls"]
    for _ in range(20):
        state_cache.newest_snapshot()
        state_cache.health()
    assert state_store.client.info("commandstats")["cmdstat_getrange"]["calls"] == before


def test_an_empty_store_is_no_snapshot_and_stale() -> None:
    assert state_cache.newest_snapshot() is None
    health = state_cache.health()
    assert health.stale
    assert health.snapshot_age_ms is None
    assert health.scheduler_alive is False
    assert health.reason == "The scheduler is not running."


def test_the_scheduler_is_alive_while_its_sign_is_there(state_store: Store) -> None:
    state_store.client.set(state_keys.SCHEDULER, b"{}", ex=10)
    assert state_cache.health().scheduler_alive is True


def test_a_scheduler_that_only_reads_is_alive_and_leads_nothing(state_store: Store) -> None:
    publish(state_store, 5)
    now = shared_clock.now()
    state_store.client.set(state_keys.SCHEDULER, SchedulerStatus("eu-1", 7, None, now, now, "a").encode(), ex=10)
    health = state_cache.health()
    assert (health.scheduler_alive, health.reason, health.lack) == (True, "", UNLED)


def test_a_scheduler_that_leads_lacks_nothing(state_store: Store) -> None:
    publish(state_store, 5)
    now = shared_clock.now()
    state_store.client.set(state_keys.SCHEDULER, SchedulerStatus("eu-1", 7, 3, now, now, "a").encode(), ex=10)
    assert state_cache.health().lack == ""


def test_a_dead_store_is_a_reason_and_no_exception(state_store: Store) -> None:
    state_store.stop()
    started = time.monotonic()
    assert state_cache.newest_snapshot() is None
    assert "The state store does not answer" in state_cache.health().reason
    assert time.monotonic() - started < patience(2)


def test_a_hung_store_costs_a_short_wait(state_store: Store) -> None:
    state_store.pause()
    started = time.monotonic()
    assert state_cache.health().error
    assert state_cache.newest_snapshot() is None
    assert time.monotonic() - started < patience(2)


def test_no_state_store_at_all_is_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSTALL_STATE_URL")
    _forget()
    assert state_cache.newest_snapshot() is None
    assert "UNSTALL_STATE_URL" in state_cache.health().reason
