"""The sweep of job tables as a scanner: by what its policy allows, through the audit, and not right after an outage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.actions.audit import audit_log
from recovery.backends.job_tables import server_uptime
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.errors import BadOrder, NotRecorded, QueueMissing, TimedOut, Unreachable
from recovery.models import AuditEntry
from recovery.reads.queues import outages
from recovery.scanners.job_tables import startup_sweep
from recovery.scanners.job_tables.startup_sweep import READ_ONLY, StartupSweep
from recovery.stores.registry import registry
from recovery.stores.sql.sql_client import as_sql_client
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, REF, TABLE, Place, Sqlite, TableBench, configured
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
OBSERVES = '[[policies]]\nqueue = "app/jobs"\n[policies.startup_sweep]\nmode = "dry-run"\n'
LATER = '[[policies]]\nqueue = "app/jobs"\n[policies.startup_sweep]\nafter = 3600\n'
THREE = '[[policies]]\nqueue = "app/jobs"\n[policies.startup_sweep]\nmost = 3\n'


class Sweeping:
    """A table, and the scanner with a clock that the test moves."""

    def __init__(self, bench: TableBench) -> None:
        self.bench = bench
        self.seconds = 1000.0
        self.holds: tuple[str, ...] = ()
        self.leads = True
        self.leader_token: LeaderToken | None = LeaderToken(7, lambda: self.leads)
        self.scanner = StartupSweep(registry(), self.leader_token, lambda _: self.holds, clock=lambda: self.seconds)

    def run(self, **how: Any) -> ScannerReport:
        return self.scanner.run(0, **how)

    def start(self, **how: Any) -> ScannerReport:
        return self.scanner.start(REF, **how)


@pytest.fixture
def make(
    place: Place, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Sweeping]]:
    place.run(JOBS)
    with ExitStack() as stack:

        def made(rest: str = "", table: str = TABLE) -> Sweeping:
            stack.enter_context(configured(tmp_path, monkeypatch, state_store, {"app": place}, table + rest))
            return Sweeping(TableBench(place, state_store))

        yield made


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database has been up for long; without this it has just started with the tests."""
    monkeypatch.setattr(server_uptime, "uptime", lambda _: None)


@pytest.fixture
def sweeping(make: Callable[..., Sweeping], old: None) -> Sweeping:
    return make()


def test_rows_whose_lease_is_over_go_back_to_wait_by_themselves(sweeping: Sweeping) -> None:
    sweeping.bench.orphan(1, 2)
    sweeping.bench.orphan(3, attempts=2)
    sweeping.bench.held(4)
    report = sweeping.run()
    assert sweeping.bench.states() == {1: "queued", 2: "queued", 3: "failed", 4: "running"}
    assert (report.looked, report.acted, report.refused) == (4, 3, 0)
    assert all("lease ended" in find.what for find in report.finds)


def test_the_audit_has_each_under_the_scanners_name_with_the_policy(sweeping: Sweeping) -> None:
    sweeping.bench.orphan(1)
    (find,) = sweeping.run().finds
    intent, outcome = AuditEntry.objects.order_by("pk")
    assert (intent.actor_kind, intent.actor, intent.deployment) == ("scanner", "startup-sweep", "app")
    assert intent.reason.startswith("Enabled")
    assert "by default" in intent.reason
    assert find.audit == outcome.pk


def test_without_an_audit_nothing_is_done(sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> int:
        raise NotRecorded("the disk is full")

    sweeping.bench.orphan(1)
    monkeypatch.setattr(audit_log, "write_intent", refuses)
    report = sweeping.run()
    assert sweeping.bench.states() == {1: "running"}
    assert any("the disk is full" in fault for fault in report.faults)


def test_what_only_observes_says_it_and_does_nothing(make: Callable[..., Sweeping], old: None) -> None:
    sweeping = make(OBSERVES)
    sweeping.bench.orphan(1)
    for report in (sweeping.run(), sweeping.start()):
        assert [find.outcome for find in report.finds] == [None]
        assert "ry run" in report.finds[0].policy
    assert sweeping.bench.states() == {1: "running"}


def test_asked_to_look_only_it_does_nothing(sweeping: Sweeping) -> None:
    sweeping.bench.orphan(1)
    assert [find.outcome for find in sweeping.run(dry_run=True).finds] == [None]
    assert [find.outcome for find in sweeping.start(dry_run=True).finds] == [None]
    assert sweeping.bench.states() == {1: "running"}


def test_a_database_that_is_read_only_is_looked_at_and_left(make: Callable[..., Sweeping], old: None) -> None:
    sweeping = make()
    sweeping.bench.orphan(1)
    config = sweeping.scanner._registry.config
    object.__setattr__(config, "databases", (replace(config.databases[0], read_only=True),))
    report = sweeping.run()
    assert [(find.outcome, find.policy) for find in report.finds] == [(None, READ_ONLY)]
    assert (report.faults, report.holds) == ((), ())
    assert sweeping.bench.states() == {1: "running"}


def test_a_policy_may_wait_and_bound(make: Callable[..., Sweeping], old: None) -> None:
    sweeping = make(LATER)
    sweeping.bench.orphan(1)
    assert sweeping.run().finds == ()
    sweeping = make(THREE)
    sweeping.bench.orphan(2, 3, 4, 5)
    report = sweeping.run()
    assert report.acted == 3
    assert report.holds
    assert sweeping.run().acted == 2


def test_of_very_many_that_are_left_only_some_are_told_and_all_are_counted(
    make: Callable[..., Sweeping], old: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup_sweep, "TOLD", 2)
    sweeping = make(THREE)
    sweeping.bench.orphan(*range(1, 9))
    report = sweeping.run()
    assert (report.acted, len(report.finds), report.found) == (3, 5, 8)
    observing = sweeping.run(dry_run=True)
    assert (observing.acted, len(observing.finds), observing.found) == (0, 2, 5)


def test_who_leads_no_more_or_does_not_know_it_does_nothing(sweeping: Sweeping) -> None:
    sweeping.bench.orphan(1)
    sweeping.leads = False
    assert [find.outcome for find in sweeping.run().finds] == [None]
    unknown = StartupSweep(registry(), None, lambda _: ())
    assert [find.outcome for find in unknown.run(0).finds] == [None]
    assert sweeping.bench.states() == {1: "running"}


def test_a_safety_limit_that_holds_holds_this_too(sweeping: Sweeping) -> None:
    sweeping.bench.orphan(1)
    sweeping.holds = ("Startup-sweep is paused by ada.",)
    report = sweeping.run()
    assert report.holds == ("Startup-sweep is paused by ada.",)
    assert sweeping.bench.states() == {1: "running"}


# -- a worker starts


def test_a_worker_that_starts_takes_back_its_own(sweeping: Sweeping) -> None:
    sweeping.bench.held(1, 2, owner="a")
    sweeping.bench.held(3, owner="b")
    report = sweeping.start(owner="a")
    assert report.acted == 2
    assert "Its owner a has just started." in report.finds[0].what
    assert sweeping.bench.states() == {1: "queued", 2: "queued", 3: "running"}


def test_a_start_leaves_what_another_worker_keeps(sweeping: Sweeping) -> None:
    sweeping.bench.held(1)
    sweeping.bench.orphan(2)
    sweeping.bench.held(3, lease_until=None)
    assert sweeping.start().acted == 2
    assert sweeping.bench.states() == {1: "running", 2: "queued", 3: "queued"}


def test_a_start_needs_nobody_who_leads(sweeping: Sweeping) -> None:
    sweeping.bench.held(1, owner="a")
    starting = StartupSweep(registry(), None, lambda _: ())
    assert starting.start(REF, owner="a").acted == 1


def test_a_start_of_what_is_no_table_is_refused(make: Callable[..., Sweeping]) -> None:
    sweeping = make(table=TABLE.replace('owner = "owner"\n', ""))
    with pytest.raises(QueueMissing):
        sweeping.scanner.start(QueueRef("app", "other"))
    with pytest.raises(BadOrder, match="no owner column"):
        sweeping.start(owner="a")


def test_the_count_is_logged(sweeping: Sweeping, caplog: pytest.LogCaptureFixture) -> None:
    sweeping.bench.orphan(1, 2)
    with caplog.at_level("INFO", "recovery.scanners"):
        sweeping.run()
    assert "startup-sweep of app/jobs: 2 rows were left running, 2 recovered" in caplog.text


# -- after an outage nobody could renew anything


@pytest.mark.parametrize("place", ["postgresql", "mariadb"], indirect=True)
def test_a_database_that_has_just_started_proves_nothing(make: Callable[..., Sweeping]) -> None:
    sweeping = make(table=TABLE + "heartbeat_limit = 600000\n")
    sweeping.bench.orphan(1)
    report = sweeping.run()
    assert "was unavailable a moment ago" in report.holds[0]
    assert [(find.outcome, find.policy) for find in report.finds] == [(None, report.holds[0])]
    assert sweeping.bench.states() == {1: "running"}
    assert sweeping.start().acted == 1, "whoever starts knows better"


def test_a_database_that_was_away_gives_its_workers_time(sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: object) -> None:
        raise TimedOut("app", "no answer within 2 s")

    sweeping.bench.orphan(1)
    with monkeypatch.context() as away:
        away.setattr(server_uptime, "uptime", silent)
        report = sweeping.run()
        assert ("no answer" in report.faults[0], report.finds) == (True, ())
    sweeping.seconds += 5
    assert "have 1 min to renew" in sweeping.run().holds[0]
    sweeping.seconds += 59
    assert sweeping.run().holds
    assert sweeping.bench.states() == {1: "running"}
    sweeping.seconds += 1
    assert sweeping.run().acted == 1


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_whoever_leads_next_knows_of_an_outage_too(sweeping: Sweeping, place: Sqlite) -> None:
    """A term ends with an outage of everything, and the next one begins as soon as that is over."""
    sweeping.bench.orphan(1)
    with place.away():
        assert not _answers()
    until(_answers, 30, "what has just failed is not asked again at once")
    following = StartupSweep(registry(), sweeping.leader_token, lambda _: ())
    assert "was unavailable a moment ago" in following.run(0).holds[0]
    assert sweeping.bench.states() == {1: "running"}


@pytest.mark.parametrize(("ago", "holds"), [(14_000, False), (40_000, True)], ids=["taken over", "away"])
def test_whoever_leads_next_elsewhere_knows_for_how_long_nobody_had_an_answer(
    sweeping: Sweeping, state_store: Store, ago: int, holds: bool
) -> None:
    sweeping.bench.orphan(1)
    sweeping.bench.held(2)
    state_store.client.set(state_keys.last_answered("app"), b"1", px=outages.KEEP - ago)
    report = sweeping.run()
    assert bool(report.holds) is holds
    assert sweeping.bench.states()[1] == ("running" if holds else "queued")
    if holds:
        assert "have 59 s to renew" in report.holds[0] or "have 1 min to renew" in report.holds[0]
        state_store.client.pexpire(state_keys.silence_before("app"), outages.RELEVANT * ago - 60_000)
        assert sweeping.run().acted == 1, "they had their time"


def _answers() -> bool:
    try:
        with as_sql_client(registry().wire("app")).session() as session:
            return bool(session.all("SELECT 1"))
    except Unreachable:
        return False


def test_one_table_that_cannot_be_read_costs_only_itself(make: Callable[..., Sweeping], old: None) -> None:
    sweeping = make(table='[[tables]]\ndatabase = "app"\ntable = "gone"\n' + TABLE)
    sweeping.bench.orphan(1)
    report = sweeping.run()
    assert any("no table gone" in fault for fault in report.faults)
    assert sweeping.bench.states() == {1: "queued"}
    assert sweeping.run(queue=REF).faults == ()


@pytest.mark.parametrize("place", ["postgresql", "mariadb"], indirect=True)
def test_how_long_a_server_is_up_is_known(make: Callable[..., Sweeping]) -> None:
    make()
    up = server_uptime.uptime(registry().wire("app"))
    assert up is not None
    assert 0 <= up < 3_600_000
