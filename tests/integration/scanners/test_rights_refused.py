"""A store whose user may change nothing: nobody is promised to put anything right, and every way out says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.accounts.roles import UserRole
from recovery.alerts.detectors import AlertDetectors
from recovery.backends.redis_common import permissions
from recovery.domain.alerts.types import AlertKind
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.domain.stuck.inbox import StuckInbox
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners import last_runs, rights_refusals
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.scanners.runtime.permissions import ScannerPermissions
from recovery.scanners.runtime.run_recorder import ScannerRunRecorder
from recovery.scanners.runtime.scanner_runner import ScannerRunner
from recovery.scanners.runtime.store_rights import StoreRightsCheck
from recovery.scanners.stale_check.scanner import StaleCheck
from recovery.stores import registry
from recovery.stores.state import state_keys
from recovery.stores.state.shared_read import windows
from tests.integration.stores.test_acl import admit, documented
from tests.support.people import browser, person, text
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import SHORT, WatchBench, active, config_for
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = QueueRef("main", "bull:jobs")
READER = documented()
OPERATOR = documented("unstall-operator")
AT_ONCE = '[policy]\nstale_check = { mode = "enabled", after = 0 }\n'


class Bench(WatchBench):
    """A leader's scanners over a store that lets its user do this much."""

    def __init__(self, directory: Path, store: Store, kept: Store, rule: str, toml: str) -> None:
        config_for(directory, kept, admit(store, rule), toml + SHORT)
        registry.reset()
        windows.forget()
        super().__init__(registry.registry().config)
        self.rights = StoreRightsCheck(registry.registry(), lambda: self.collector.newest)
        leader_token = LeaderToken(7, always_leader)
        holding = ScannerPermissions(self.registry, leader_token, lambda _: ()).holding(ScannerKind.STALE_CHECK)
        self.check_stale = StaleCheck(self.registry, lambda: self.collector.newest, leader_token, holding)
        self.discover()

    def inbox(self) -> StuckInbox:
        windows.forget()
        inbox = self.look()
        snapshot_store.publish(self.registry.state(), self.snapshot)
        return inbox

    def check(self) -> None:
        self.collector.look(now_ms())
        self.rights.run(now_ms())

    def stale(self) -> last_runs.LastScannerRun:
        """A run of the stale check, once the watch has proven what is lost."""
        self.look()
        ScannerRunner(ScannerKind.STALE_CHECK, self.check_stale.run, ScannerRunRecorder(self.registry, 7)).due(
            now_ms() + 2_000
        )
        return last_runs.read(self.registry.state())[ScannerKind.STALE_CHECK]


Make = Callable[..., Bench]


@pytest.fixture
def server(serve: Callable[..., Store]) -> Store:
    return serve()


@pytest.fixture
def make(tmp_path: Path, server: Store, state_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Bench] = []
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    now = now_ms()
    state_store.client.set(state_keys.SCHEDULER, SchedulerStatus("here", 1, 7, now, now, "me").encode())

    def one(rule: str, toml: str = AT_ONCE) -> Bench:
        active(server, JOBS.base, "1")
        made.append(Bench(tmp_path, server, state_store, rule, toml))
        return made[-1]

    yield one
    for bench in made:
        bench.close()
    registry.reset()


def denied(server: Store) -> list[Any]:
    """What stands in the ACL log, and how often."""
    log: Any = server.client.acl_log()
    return [(entry["object"], int(entry["count"])) for entry in log]


def test_who_may_only_read_is_recognised_and_promises_nothing(make: Make, server: Store) -> None:
    bench = make(READER)
    bench.check()
    bench.check()
    (row,), people = bench.inbox().rows, bench.inbox().people
    assert row.verdict.fate.endswith("Stale-check is enabled, but the user of main lacks write permission.")
    assert (row.verdict.rescuer, row.verdict.needs_a_person, people) == (None, True, 1)
    assert denied(server) == [("evalsha", 1)]


def test_its_scanner_fails_until_it_is_let(make: Make, server: Store) -> None:
    bench = make(READER)
    bench.check()
    pulse = bench.stale()
    assert (pulse.has_failed, pulse.is_refused, pulse.acted, pulse.refused) == (True, True, 0, 0)
    assert pulse.trouble.startswith("The user of main may not change bull:jobs: ")
    assert denied(server) == [("evalsha", 1)]
    found = AlertDetectors(bench.registry, lambda: bench.snapshot).look(now_ms()).findings
    (told,) = [one for one in found if one.kind is AlertKind.SCANNER]
    assert told.words.startswith("Stale-check is denied by its store: The user of main may not change")
    admit(server, OPERATOR)
    rights_refusals.forget(bench.registry.state(), JOBS)
    pulse = bench.stale()
    assert (pulse.has_failed, pulse.is_refused, pulse.acted) == (False, False, 1)


def test_every_page_says_so(make: Make, server: Store) -> None:
    bench = make(READER)
    bench.check()
    bench.stale()
    bench.inbox()
    admin = browser(person(UserRole.ADMIN))
    stuck = text(admin, "/stuck")
    assert "main is read-only: its Redis user has no write permission." in stuck
    assert "the user of main lacks write permission" in stuck
    assert "act=requeue" not in stuck
    assert "The user of main may not change bull:jobs" in text(admin, "/scanners")


def test_what_is_granted_is_noticed(make: Make, server: Store) -> None:
    bench = make(READER)
    bench.check()
    admit(server, OPERATOR)
    fresh = StoreRightsCheck(bench.registry, lambda: bench.collector.newest)
    fresh.run(now_ms())
    assert rights_refusals.fetch(bench.registry.state()) == {}
    assert bench.inbox().people == 0


def test_nobody_asks_where_it_is_configured_to_be_read_only(make: Make, server: Store) -> None:
    bench = make(READER, f"read_only = true\n{AT_ONCE}")
    bench.check()
    pulse = bench.stale()
    assert (pulse.has_failed, pulse.is_refused) == (False, False)
    assert bench.inbox().people == 1
    assert denied(server) == []


def test_what_nobody_asked_about_is_learned_from_the_act_that_is_refused(make: Make, server: Store) -> None:
    bench = make(READER)
    assert bench.inbox().people == 0
    pulse = bench.stale()
    assert (pulse.is_refused, pulse.acted) == (True, 0)
    assert "evalsha" in pulse.trouble
    assert bench.inbox().people == 1
    assert bench.stale().is_refused
    assert denied(server) == [("evalsha", 1)]


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        (OPERATOR, ""),
        (OPERATOR.replace("~*", "~bull:* ~unstall:fence:*"), ""),
        (f"{OPERATOR} -lrem", "lrem"),
        (READER, "evalsha"),
        (OPERATOR.replace("~*", "~bull:*"), "key"),
        (OPERATOR.replace("~*", "%R~* ~unstall:fence:*"), "key"),
    ],
    ids=["all", "by-prefix", "a-command", "reader", "no-fence", "keys-to-read"],
)
def test_it_is_asked_without_changing_anything(make: Make, server: Store, rule: str, lacks: str) -> None:
    bench = make(rule)
    before = {key: server.client.dump(key) for key in server.client.keys("*")}
    said = permissions.missing_permissions(bench.registry.wire("main"), JOBS)
    assert said is not None
    assert (lacks in said) if lacks else said == ""
    assert {key: server.client.dump(key) for key in server.client.keys("*")} == before
