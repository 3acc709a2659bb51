"""The scheduler process: it lives, it says so, it ends in order, and no trouble floods its log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.errors import Unreachable
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners import scheduler_status
from recovery.scheduler.plan import PlanEntry, SchedulerPlan
from recovery.scheduler.plan_runner import PlanRunner, TickGuard, build_scheduler
from recovery.shared_clock import steady
from tests.support.patience import patience
from tests.support.processes.schedulers import STARTS_WITHIN, Process, furnish
from tests.support.stores.stores import Store
from tests.support.stuck.watching import add
from tests.support.waiting import until

pytestmark = pytest.mark.django_db  # each run closes connections that are too old, so it looks at them

_HANGS = """
import threading, sys, django
django.setup()
from recovery.scheduler import process
from recovery.scheduler.plan import PlanEntry, SchedulerPlan
process.GRACE = 0.5
def hang(now):
    print("hanging", file=sys.stderr, flush=True)
    threading.Event().wait()
def _nothing(): pass
process.leader_plan = lambda *_: SchedulerPlan((PlanEntry("collect", 60, hang),), _nothing, _nothing)
from recovery.config import current
process.run(current())
"""
SILENT = PlanEntry("alive", 60, lambda _now: None)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []
    furnish(tmp_path)

    def begin(*arguments: str, **environ: str) -> Process:
        started.append(Process(tmp_path, "scheduler", arguments, environ))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def test_it_publishes_says_that_it_lives_and_ends_in_order(
    start: Callable[..., Process], valkey: Store, state_store: Store
) -> None:
    add(valkey.client, "bull:jobs", "1", "2")
    one = start("manage.py", "scheduler", UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=state_store.url)
    client = state_store.client
    until(lambda: (found := snapshot_store.fetch(client)) and found.queues, STARTS_WITHIN, "a snapshot with the queue")
    found = snapshot_store.fetch(client)
    assert found is not None
    assert [sample.counts.waiting for sample in found.queues] == [2]
    sign = scheduler_status.fetch(client)
    assert sign is not None
    assert (sign.pid, sign.leads) == (one.pid, True)
    assert 0 < client.ttl("unstall:scheduler") <= 16
    began = time.monotonic()
    one.ask()
    assert one.status() == 0
    assert time.monotonic() - began < patience(5)
    assert client.get("unstall:scheduler") is None
    assert valkey.client.keys("unstall*") == []


def test_a_second_signal_ends_it_at_once(
    start: Callable[..., Process], valkey: Store, serve: Callable[..., Store]
) -> None:
    state = serve()
    one = start("-c", _HANGS.replace("GRACE = 0.5", "GRACE = 60"), **_urls(valkey, state))
    one.says("hanging")
    one.ask()
    one.says("ending")
    one.ask()
    assert one.status() == 130


def test_what_hangs_is_left_behind_after_the_grace(
    start: Callable[..., Process], valkey: Store, serve: Callable[..., Store]
) -> None:
    one = start("-c", _HANGS, **_urls(valkey, serve()))
    one.says("hanging")
    one.ask()
    assert one.status() == 1
    assert "not waiting for it" in one.log


def test_its_heart_beats_until_a_look_at_the_queues_hangs(
    start: Callable[..., Process], valkey: Store, serve: Callable[..., Store], tmp_path: Path
) -> None:
    beats = tmp_path / "heartbeat"
    fast = "from recovery.processes import heartbeat\nheartbeat.EVERY, process.STUCK = 0.1, 1.0\nfrom recovery.config"
    environ = {**_urls(valkey, serve()), "UNSTALL_HEARTBEAT_PATH": str(beats)}
    one = start("-c", _HANGS.replace("from recovery.config", fast), **environ)
    one.says("hanging")
    until(beats.exists, 10, "it beats")
    until(lambda: steady() - float(beats.read_text()) > 3, 15, "it beats no more")
    assert one.child.poll() is None


def _urls(queues: Store, state: Store) -> dict[str, str]:
    setup = {"UNSTALL_REDIS_URL": queues.url, "UNSTALL_STATE_URL": state.url}
    return setup | {"UNSTALL_LOG_LEVEL": "info"}


def test_without_a_state_store_it_does_not_start(start: Callable[..., Process], valkey: Store) -> None:
    one = start("manage.py", "scheduler", UNSTALL_REDIS_URL=valkey.url)
    assert one.status() == 2
    assert "UNSTALL_STATE_URL" in one.log


def test_a_trouble_is_said_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    troubles = iter(["refused", "refused", "refused", "no answer", "", ""])

    def run(_now: int) -> None:
        trouble = next(troubles)
        if trouble:
            raise Unreachable("redis://h:6379/0", trouble)

    rounds = TickGuard("collect", run)
    with caplog.at_level(logging.INFO, "recovery.scheduler.plan_runner"):
        for _ in range(6):
            rounds()
    assert [record.getMessage() for record in caplog.records] == [
        "collect: redis://h:6379/0: refused",
        "collect: redis://h:6379/0: no answer",
        "collect: recovered",
    ]


def test_a_fault_of_ours_is_logged_with_its_trace_and_the_next_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    runs = []

    def run(now: int) -> None:
        runs.append(now)
        raise ZeroDivisionError("oh")

    rounds = TickGuard("record", run, clock=lambda: 12_500)
    rounds()
    rounds()
    assert runs == [12_500, 12_500]
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_run_that_takes_long_is_not_started_twice_and_delays_nobody() -> None:
    release, running, ticks = threading.Event(), [], []

    def slow(now: int) -> None:
        running.append(now)
        release.wait(20)

    plan = SchedulerPlan(
        (PlanEntry("slow", 0.05, slow), PlanEntry("quick", 0.05, ticks.append)), lambda: None, lambda: None
    )
    scheduler = build_scheduler(plan, SILENT)
    scheduler.start()
    until(lambda: len(ticks) > 5, what="the quick one's ticks")
    started = len(running)
    release.set()
    scheduler.shutdown(wait=True)
    assert started == 1


def test_a_first_run_does_not_wait_for_its_interval() -> None:
    runs: list[int] = []
    scheduler = build_scheduler(
        SchedulerPlan((PlanEntry("prune", 3600, runs.append),), lambda: None, lambda: None), SILENT
    )
    scheduler.start()
    until(lambda: runs, what="the first run")
    scheduler.shutdown(wait=True)


def test_without_leave_no_run_begins() -> None:
    runs: list[int] = []
    leave = [True]
    rounds = TickGuard("collect", runs.append, may=lambda: bool(leave))
    rounds()
    leave.clear()
    rounds()
    assert len(runs) == 1


def test_a_duty_is_over_when_its_last_run_has_ended() -> None:
    release, running = threading.Event(), threading.Event()

    def slow(_now: int) -> None:
        running.set()
        release.wait(20)

    closed: list[bool] = []
    duty = PlanRunner(SchedulerPlan((PlanEntry("slow", 60, slow),), lambda: None, lambda: closed.append(True)), SILENT)
    assert running.wait(10)
    duty.begin_end()
    assert (duty.is_ending, duty.is_over, closed) == (True, False, [])
    release.set()
    until(lambda: duty.is_over, what="its end")
    assert closed == [True]


def test_it_outlives_its_stores(start: Callable[..., Process], serve: Callable[..., Store]) -> None:
    queues, state = serve(), serve()
    add(queues.client, "bull:jobs", "1")
    one = start("manage.py", "scheduler", **_urls(queues, state))
    until(lambda: _newest(state), STARTS_WITHIN, "the first snapshot")
    queues.stop()
    state.stop()
    one.says("connection refused")
    queues.start()
    state.start()
    add(queues.client, "bull:jobs", "1", "2", "3")
    until(lambda: _newest(state) == [3], 8, "the numbers after the return")
    assert one.log.count("collect: redis://") <= 2
    assert one.child.poll() is None


def _newest(state: Store) -> list[int | None]:
    found = snapshot_store.fetch(state.client)
    return [sample.counts.waiting for sample in found.queues] if found else []
