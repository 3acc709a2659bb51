"""A state store that is full is called that; recovery goes on, and what could not be undone asks first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.alerts.no_leader_watch import _trouble
from dashboard.live import state_cache
from dashboard.server import probes
from recovery.actions import runner
from recovery.actions.safety_limits import auto_retry_limits
from recovery.domain.actions.types import Action, ActionOptions
from recovery.domain.jobs import JobState
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.types import StuckJob, Verdict, VerdictKind
from recovery.errors import BadOrder, WritesRefused
from recovery.models import Lease
from recovery.reads.safety_limits.limit_rows import REDIS_PAUSE
from recovery.reads.scanners.blockers import ScannerBlockers
from recovery.reads.stuck import inbox_store
from recovery.reads.stuck import queries as stuck_queries
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.registry import ScannerRegistry
from recovery.stores.redis import redis_errors
from recovery.stores.registry import registry, reset
from recovery.stores.sql import database_clock
from recovery.stores.state import state_keys
from recovery.stores.state.shared_read import windows
from tests.support.acting import ADMIN, MAIL, Bench, set_up
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bench(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with set_up(valkey, state_store, tmp_path, monkeypatch) as made:
        with (tmp_path / "unstall.toml").open("a") as file:
            file.write('\n[thresholds]\nstalled_interval = 1\n[policy]\norphan_watch = { mode = "enabled" }\n')
        reset()
        state_cache.forget_cached()
        yield made
        state_cache.forget_cached()


@contextmanager
def full(store: Store) -> Iterator[None]:
    store.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        store.client.config_set("maxmemory", 0)


def test_it_is_said_as_that_and_not_as_a_scheduler_that_does_not_run(bench: Bench, state_store: Store) -> None:
    bench.look()
    with full(state_store):
        health = state_cache.health()
        assert "The state store refuses writes: it is full (maxmemory)" in health.refuses
        assert health.error == ""
        assert health.scheduler_alive is None
        assert ("state store", health.lack) == ("state store", health.refuses) == _trouble(health)
        assert replace(health, stale=True).reason == health.refuses
        status, told = probes._ready("", health)
        assert (status, told["degraded"]) == (200, ["state store: takes no writes"])
    state_cache.forget_cached()
    assert state_cache.health().refuses == ""


def test_the_orphan_watch_goes_on(bench: Bench, state_store: Store) -> None:
    roster = KnownQueues()
    Discoverer(registry(), roster, remembers=False).run(now_ms())
    collector = Collector(registry(), roster)
    crew = ScannerRegistry(registry(), lambda: collector.newest, LeaderToken(1, lambda: True))
    try:
        collector.run(now_ms())
        crew.run_of(ScannerKind.ORPHAN_WATCH)(now_ms())
        auto_retry_limits.release(ADMIN, REDIS_PAUSE.name, "main", "", "", "the store was started for this test")
        bench.orphan("1")
        with full(state_store):
            with pytest.raises(WritesRefused):
                collector.run(now_ms())
            report = crew.run_of(ScannerKind.ORPHAN_WATCH)(now_ms())
        assert report is not None
        assert (report.acted, bench.ids(JobState.WAITING)) == (1, ["1"])
        assert any("refuses writes" in fault for fault in report.faults)
    finally:
        collector.close()


def leads(*, is_over: bool = False) -> None:
    """As the lease in the database says."""
    until = now_ms() + (-1 if is_over else 60_000)
    Lease.objects.update_or_create(id=1, defaults={"holder": "here", "epoch": 7, "since": 0, "expires_at": until})


def predicted() -> list[str]:
    """What keeps the orphan-watch from acting, each as the end of a sentence; and what the newest inbox says."""
    windows.forget()
    found = [one.clause for one in ScannerBlockers(registry(), now_ms()).of(ScannerKind.ORPHAN_WATCH, MAIL)]
    inbox = stuck_queries.newest_inbox()
    assert inbox is not None
    return [*found, inbox.rows[0].verdict.fate]


def test_who_leads_while_it_is_full_is_known_from_the_lease(
    bench: Bench, state_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sign of who leads ends while it cannot be written. What is predicted is what happens: recovery goes on."""
    soon = "Orphan-watch requeues it within 5 s."
    row = StuckJob(
        MAIL.job("1"), "mail", Verdict(VerdictKind.ABANDONED, fate=soon, until=5, rescuer=PolicyScanner.ORPHAN_WATCH), 1
    )
    inbox_store.publish(
        state_store.client, StuckInbox(1, (row,), (StuckTally(MAIL, watchdog=StalledCheckState(is_dead=True)),))
    )
    never = "Never recovered in the current state. Orphan-watch is enabled, but {}."
    leads()
    with full(state_store):
        assert predicted() == [soon]
        leads(is_over=True)
        assert predicted() == ["no scheduler leads", never.format("no scheduler leads")]
        monkeypatch.setattr(database_clock, "CLOCK", {"sqlite": "no_such_column"})
        unknown = "the leader is unknown"
        assert predicted() == [unknown, never.format(unknown)]


def test_what_could_not_be_undone_asks_before(bench: Bench, state_store: Store) -> None:
    bench.failed("1")
    order = bench.order(Action.REMOVE, "1")
    assert not runner.preview(order).needs_name
    with full(state_store):
        preview = runner.preview(order)
        assert (preview.needs_name, "cannot be undone" in preview.risk) == (True, True)
        with pytest.raises(BadOrder, match="Nothing was changed"):
            runner.insist_on_undo(order)
        runner.insist_on_undo(replace(order, options=ActionOptions(force=True)))
    runner.insist_on_undo(order)


def test_a_refusal_has_its_kind(state_store: Store) -> None:
    with full(state_store), pytest.raises(WritesRefused, match="it is full"), redis_errors.guarded(state_store.client):
        state_store.client.set(state_keys.PROBE, b"1")
