"""What a process without a mirror sees: it asks the state store itself, seldom, and never fails for it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dashboard.live import mirror
from dashboard.live.image import UNLED
from recovery import shared_clock
from recovery.connections import registry, state
from recovery.domain.counts import Snapshot
from recovery.reads import snapshots
from recovery.reads.leading import Sign
from tests.patience import patience
from tests.stores import Store


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
    mirror.forget()


def publish(store: Store, number: int) -> None:
    now = shared_clock.now()
    snapshots.publish(store.client, Snapshot(number=number, taken_at=now, deployments=(), queues=()))


def test_the_newest_snapshot_is_read_from_the_store(state_store: Store) -> None:
    publish(state_store, 5)
    newest = mirror.newest()
    assert newest is not None
    assert newest.number == 5
    assert not mirror.health().stale


def test_the_store_is_asked_once_for_many_looks(state_store: Store) -> None:
    publish(state_store, 5)
    mirror.newest()
    before = state_store.client.info("commandstats")["cmdstat_getrange"]["calls"]
    for _ in range(20):
        mirror.newest()
        mirror.health()
    assert state_store.client.info("commandstats")["cmdstat_getrange"]["calls"] == before


def test_an_empty_store_is_no_snapshot_and_stale() -> None:
    assert mirror.newest() is None
    health = mirror.health()
    assert health.stale
    assert health.snapshot_age_ms is None
    assert health.scheduler_alive is False
    assert health.reason == "The scheduler is not running."


def test_the_scheduler_is_alive_while_its_sign_is_there(state_store: Store) -> None:
    state_store.client.set(state.SCHEDULER, b"{}", ex=10)
    assert mirror.health().scheduler_alive is True


def test_a_scheduler_that_only_reads_is_alive_and_leads_nothing(state_store: Store) -> None:
    publish(state_store, 5)
    now = shared_clock.now()
    state_store.client.set(state.SCHEDULER, Sign("eu-1", 7, None, now, now, "a").encode(), ex=10)
    health = mirror.health()
    assert (health.scheduler_alive, health.reason, health.lack) == (True, "", UNLED)


def test_a_scheduler_that_leads_lacks_nothing(state_store: Store) -> None:
    publish(state_store, 5)
    now = shared_clock.now()
    state_store.client.set(state.SCHEDULER, Sign("eu-1", 7, 3, now, now, "a").encode(), ex=10)
    assert mirror.health().lack == ""


def test_a_dead_store_is_a_reason_and_no_exception(state_store: Store) -> None:
    state_store.stop()
    started = time.monotonic()
    assert mirror.newest() is None
    assert "The state store does not answer" in mirror.health().reason
    assert time.monotonic() - started < patience(2)


def test_a_hung_store_costs_a_short_wait(state_store: Store) -> None:
    state_store.pause()
    started = time.monotonic()
    assert mirror.health().error
    assert mirror.newest() is None
    assert time.monotonic() - started < patience(2)


def test_no_state_store_at_all_is_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSTALL_STATE_URL")
    _forget()
    assert mirror.newest() is None
    assert "UNSTALL_STATE_URL" in mirror.health().reason
