"""What a server wrote as a worker of n8n left tells that it was asked to stop and ran out of its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.instances import InstanceEnding
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample
from recovery.domain.stuck.context import WorkerChange
from recovery.reads.stuck.observations import QueueObservation
from recovery.scanners.orphan_watch.n8n_shutdowns import ASKED_FOR, ShutdownLogs
from recovery.scanners.orphan_watch.queue_state import QueueState
from tests.support.logs.shipped import settle, ship
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db

N8N = QueueRef("main", "bull:jobs")
BULL = LibraryVersion(QueueLibrary.BULL, 4)
GAVE_UP = "2026-11-20 | error | Error: Shutdown timed out after 45 seconds"


@pytest.fixture(autouse=True)
def configured(watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch) -> ShutdownLogs:
    one = watch_bench(valkey)
    monkeypatch.setattr("recovery.logs.shippers.servers", lambda: frozenset({"eu-2"}))
    return ShutdownLogs(one.registry.config)


def departed(*left: WorkerChange, ref: QueueRef = N8N) -> QueueState:
    return QueueState(ref, QueueSample(ref, BULL), QueueObservation(left=left))


def told(logs: ShutdownLogs, *left: WorkerChange, now: int | None = None, ref: QueueRef = N8N) -> list[int | None]:
    post = departed(*left, ref=ref)
    logs.explain([post], now or now_ms())
    return [change.gave_up_after for change in post.memory.left]


def test_a_worker_whose_shutdown_timed_out_is_told_with_its_seconds(
    configured: ShutdownLogs, state_store: Store
) -> None:
    ship(state_store, "eu-2", "Received SIGTERM. Shutting down...", GAVE_UP, "unrelated")
    settle(state_store)
    assert told(configured, WorkerChange("", now_ms(), "eu-2")) == [45]


def test_a_worker_that_wrote_no_such_line_was_not_asked(configured: ShutdownLogs, state_store: Store) -> None:
    ship(state_store, "eu-2", "Received SIGTERM. Shutting down...", "Shutdown timed out after a while")
    ship(state_store, "eu-9", GAVE_UP)
    settle(state_store)
    assert told(configured, WorkerChange("", now_ms(), "eu-2")) == [None]


def test_of_two_that_left_one_server_together_one_line_tells_of_neither(
    configured: ShutdownLogs, state_store: Store
) -> None:
    ship(state_store, "eu-2", GAVE_UP)
    settle(state_store)
    at = now_ms()
    assert told(
        configured, WorkerChange("", at, "eu-2", connection="a"), WorkerChange("", at, "eu-2", connection="b")
    ) == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    "change",
    [
        WorkerChange("", 0, "eu-3"),  # no monitor ships its lines
        WorkerChange("", 0, ""),  # nobody knows where it ran
        WorkerChange("", 0, "eu-2", ending=InstanceEnding.STOPPED.value),
        WorkerChange("", -ASKED_FOR, "eu-2"),
        WorkerChange("", -30_000, "eu-2"),  # before that line
    ],
)
def test_nothing_is_told_of_others(configured: ShutdownLogs, state_store: Store, change: WorkerChange) -> None:
    ship(state_store, "eu-2", GAVE_UP)
    settle(state_store)
    now = now_ms()
    assert told(configured, replace(change, at=now + change.at - 1)) == [None]


def test_queues_that_are_not_n8ns_and_a_silent_store_are_left_alone(
    configured: ShutdownLogs, state_store: Store
) -> None:
    ship(state_store, "eu-2", GAVE_UP)
    settle(state_store)
    assert told(configured, WorkerChange("", now_ms(), "eu-2"), ref=QueueRef("main", "bull:mail")) == [None]
    state_store.pause()
    try:
        assert told(configured, WorkerChange("", now_ms(), "eu-2")) == [None]
    finally:
        state_store.resume()
