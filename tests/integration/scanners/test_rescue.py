"""What the orphan-watch puts right by itself, and what it leaves alone, over queues that are written by hand."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import DatabaseError

from recovery.actions import runner
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.domain.stuck.context import QUARANTINE_AFTER
from recovery.domain.stuck.types import VerdictKind
from recovery.models import AuditEntry, Incident, ScannerPause
from recovery.reads.stuck import incidents
from recovery.scanners.orphan_watch import incident_guard
from recovery.scanners.runtime.permissions import ScannerPermissions
from recovery.scanners.runtime.scanner_actions import ScannerActions
from recovery.stores import registry as connections
from recovery.stores.state.shared_read import windows
from tests.support.acting import ADMIN
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import WatchBench, active, config_for
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

STARTED = 1_760_000_000_000
MAIL = QueueRef("main", "bull:mail")
ARMED = '[policy]\norphan_watch = { mode = "enabled", release = true }\n'


class Night:
    """A watch that may act, looked at by hand."""

    def __init__(self, bench: WatchBench, store: Store) -> None:
        self.bench = bench
        self.store = store
        self.held: tuple[str, ...] = ()
        self.leader_token: LeaderToken | None = LeaderToken(7, always_leader)

    def scan(
        self, *, dry_run: bool = False, queue: QueueRef | None = None, later: int = 0, collects: bool = True
    ) -> ScannerReport:
        now = now_ms() + later
        if collects:
            self.bench.collector.run(now)
        windows.forget()  # what was read a moment ago is read again
        return self.bench.watch.scan(now, self._scanner_actions, dry_run=dry_run, queue=queue)

    def _scanner_actions(self, dry_run: bool) -> ScannerActions:
        warrant = ScannerPermissions(self.bench.registry, self.leader_token, lambda _: self.held)
        return warrant.scanner_actions(ScannerKind.ORPHAN_WATCH, dry_run=dry_run)

    def waiting(self, ref: QueueRef = MAIL) -> list[bytes]:
        return list(self.store.client.lrange(f"{ref.base}:wait", 0, -1))


@pytest.fixture
def night(
    valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Night]]:
    benches: list[WatchBench] = []

    def make(rest: str = ARMED) -> Night:
        config = config_for(tmp_path, state_store, valkey, rest)
        monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
        connections.reset()
        benches.append(WatchBench(config))
        return Night(benches[-1], valkey)

    yield make
    for bench in benches:
        bench.close()
    connections.reset()


def orphaned(night: Night, *ids: str, **fields: Any) -> None:
    active(night.store, MAIL.base, *ids, **fields)
    night.bench.discover()


def test_proven_orphans_go_back_to_wait_and_their_incidents_are_closed(night: Callable[..., Night]) -> None:
    one = night()
    orphaned(one, "1", "2")
    report = one.scan()
    assert [(find.job.id, find.outcome) for find in report.finds] == [("1", Outcome.DONE), ("2", Outcome.DONE)]
    assert report.finds[0].what.startswith("Abandoned: It is active and ")
    assert sorted(one.waiting()) == [b"1", b"2"]
    closed = Incident.objects.exclude(closed_at=None)
    assert {(row.resolved_by, row.audit) for row in closed} == {("scanner", report.finds[0].audit)}
    assert one.scan().finds == ()


def test_after_how_long_is_up_to_the_policy(night: Callable[..., Night]) -> None:
    one = night('[policy]\norphan_watch = { mode = "enabled", after = 60 }\n')
    orphaned(one, "1")
    assert one.scan().finds == ()
    told = one.scan(queue=MAIL).finds
    assert "Its policy waits" in told[0].policy
    assert [find.outcome for find in one.scan(later=61_000).finds] == [Outcome.DONE]


def test_the_rest_of_very_many_waits_for_the_next_look(night: Callable[..., Night]) -> None:
    one = night('[policy]\norphan_watch = { mode = "enabled", most = 2 }\n')
    orphaned(one, *(str(number) for number in range(5)))
    done = [sum(find.outcome is Outcome.DONE for find in one.scan().finds) for _ in range(4)]
    assert done == [2, 2, 1, 0]


def test_what_observes_only_tells_what_it_would_leave(night: Callable[..., Night]) -> None:
    one = night("")
    orphaned(one, "1")
    before = _dump(one.store)
    assert one.scan().finds == ()
    (find,) = one.scan(dry_run=True).finds
    assert (find.outcome, find.policy) == (None, "This was a dry run.")
    assert _dump(one.store) == before
    assert not AuditEntry.objects.exists()


def test_a_pause_a_safety_limit_and_a_lost_lease_hold_it_and_say_so(night: Callable[..., Night]) -> None:
    one = night()
    orphaned(one, "1")
    ScannerPause.objects.create(scanner="orphan-watch", by="ada", at=now_ms(), reason="a migration")
    assert one.scan().holds == ("Orphan-watch is paused by ada: a migration",)
    ScannerPause.objects.all().delete()
    one.held = ("The store was restarted.",)
    assert one.scan().holds == ("The store was restarted.",)
    one.held, one.leader_token = (), None
    (find,) = one.scan().finds
    assert "the leader is unknown" in find.policy
    assert one.waiting() == []
    one.leader_token = LeaderToken(7, always_leader)
    assert one.scan().acted == 1


def test_a_quarantined_job_waits_for_a_person(night: Callable[..., Night]) -> None:
    one = night()
    _suffered(QUARANTINE_AFTER - 1)
    orphaned(one, "1")
    assert one.scan().finds == ()
    assert "quarantined" in one.scan(queue=MAIL).finds[0].policy
    assert one.waiting() == []


def test_a_mark_that_forgot_what_a_job_did_does_not_cost_another_worker(
    night: Callable[..., Night], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database was away at the first look nobody knew of the earlier incidents."""
    one = night()
    _suffered(QUARANTINE_AFTER - 1)
    orphaned(one, "1")
    with monkeypatch.context() as patch:
        patch.setattr(incidents, "orphan_counts", _away)
        report = one.scan()
    assert report.acted == 0
    assert any("database" in fault for fault in report.faults)
    assert one.scan().acted == 0
    assert one.waiting() == []


def test_without_its_incident_in_the_database_nothing_goes(
    night: Callable[..., Night], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not be counted, and a quarantined job would take one worker more."""
    one = night()
    orphaned(one, "1")
    monkeypatch.setattr(incident_guard, "jobs_with_open_incident", lambda _ref, _ids: set())
    assert one.scan().acted == 0
    assert one.waiting() == []


def test_a_job_that_dies_again_between_two_looks_is_another_incident(night: Callable[..., Night]) -> None:
    """It was put back, taken and lost again within seconds, so no look saw it well."""
    one = night()
    orphaned(one, "1", ats=1, processedOn=STARTED)
    for times in range(1, QUARANTINE_AFTER):
        assert one.scan().acted == 1
        assert Incident.objects.count() == times
        one.store.client.delete(f"{MAIL.base}:wait")
        active(one.store, MAIL.base, "1", ats=times + 1, processedOn=STARTED + times, stc=times)
    until(lambda: one.scan().finds == () and Incident.objects.filter(closed_at=None).count() == 1)
    assert "quarantined" in one.scan(queue=MAIL).finds[0].policy
    assert Incident.objects.count() == QUARANTINE_AFTER


def test_a_named_worker_that_left_and_stays_away_has_its_lock_taken(night: Callable[..., Night]) -> None:
    """Seen to leave, and still away at the next look: its lock is taken, long before it ends."""
    one = night()
    client = one.store.client
    with _worker(one.store, "a"), closing(_worker(one.store, "b")) as leaving:
        held(one, "1", worker="b", token="b:1")
        held(one, "2", worker="a", token="a:1")
        one.bench.discover()
        assert one.scan().finds == ()
        leaving.close()
        until(lambda: one.scan().finds == () and one.bench.watch.is_pending, what="it has only just gone")
        assert one.waiting() == []
        report = one.scan(later=2_000)
    assert [(find.job.id, find.act, find.outcome) for find in report.finds] == [("1", "release", "done")]
    assert one.waiting() == [b"1"]
    assert client.get(f"{MAIL.base}:2:lock") == b"a:1"
    assert Incident.objects.get().proven_at, "it counts as orphaned"


@contextmanager
def _just_left(one: Night) -> Iterator[None]:
    """Worker b holds job 1 and left a moment ago; a is still there."""
    leaving = _worker(one.store, "b")
    with _worker(one.store, "a"):
        held(one, "1", worker="b", token="b:1")
        one.bench.discover()
        one.scan()
        leaving.close()
        until(lambda: one.scan().finds == () and one.bench.watch.is_pending)
        yield


def test_a_worker_that_came_back_keeps_its_lock(night: Callable[..., Night]) -> None:
    one = night()
    with _just_left(one), _worker(one.store, "b"):
        assert one.scan(later=2_000).finds == ()
    assert one.waiting() == []


def test_a_look_at_the_same_snapshot_proves_no_worker_gone(night: Callable[..., Night]) -> None:
    """It may have come back since: nobody has asked who is connected."""
    one = night()
    with _just_left(one), _worker(one.store, "b"):
        one.store.client.pexpire(f"{MAIL.base}:1:lock", 51_000)
        assert one.scan(later=8_000, collects=False).finds == ()
        assert one.bench.watch.is_pending, "the next snapshot tells"
        assert one.scan(later=8_000).finds == ()
    assert one.waiting() == []


@pytest.mark.parametrize(("policy", "pending"), [(ARMED, True), ("", False)])
def test_a_lock_that_is_about_to_run_out_is_looked_at_with_the_next_snapshot(
    night: Callable[..., Night], policy: str, pending: bool
) -> None:
    one = night(policy)
    active(one.store, MAIL.base, "1", flavour="bull", processedOn=STARTED)
    one.store.client.set(f"{MAIL.base}:1:lock", "w", px=30_000)
    one.bench.discover()
    one.scan()
    assert not one.bench.watch.is_pending
    one.store.client.pexpire(f"{MAIL.base}:1:lock", 9_000)
    one.scan()
    assert not one.bench.watch.is_pending, "the look that is due comes before its end"
    one.store.client.pexpire(f"{MAIL.base}:1:lock", 2_000)
    one.scan()
    assert one.bench.watch.is_pending is pending
    one.store.client.delete(f"{MAIL.base}:1:lock")
    one.scan(later=2_000)
    assert one.bench.watch.is_pending is pending, "its end wants a second look"


def test_what_somebody_has_given_back_meanwhile_is_not_proven_by_its_lock(night: Callable[..., Night]) -> None:
    """Without counting it as a stall, so that nothing in the job tells; and a worker is about to lock it again."""
    one = night(f"{ARMED}[thresholds]\nstalled_interval = 30\n")
    active(one.store, MAIL.base, "1", flavour="bull", processedOn=STARTED)
    one.store.client.set(f"{MAIL.base}:1:lock", "w", px=30_000)
    one.bench.discover()
    one.bench.look()
    one.store.client.pexpire(f"{MAIL.base}:1:lock", 2_000)
    one.bench.look(later=100)
    options = ActionOptions(requeue=True, counts_as_stall=False, force=True)
    order = ActionCommand(Action.RELEASE, MAIL, ADMIN, "it hangs", runner.current_jobs(MAIL, ("1",)), options)
    assert [result.outcome for result in runner.perform(order)] == [Outcome.DONE]
    one.store.client.lmove(f"{MAIL.base}:wait", f"{MAIL.base}:active", "RIGHT", "LEFT")
    assert one.bench.look(later=2_200).counts == {VerdictKind.UNLOCKED: 1}
    assert one.bench.look(later=4_200).counts == {VerdictKind.UNLOCKED: 1}


@pytest.mark.parametrize("library", ["bull3", "bull4"])
def test_a_killed_worker_of_bull_is_replaced_once_its_lock_has_run_out(
    night: Callable[..., Night], libraries: Fleet, library: str
) -> None:
    """And not after a stalled interval, beside a worker that lives and keeps what it has."""
    one = night(f"{ARMED}[thresholds]\nstalled_interval = 3600\n")
    jobs, times = libraries[library].queue(one.store, "mail"), {"lockDuration": 5_000, "stalledInterval": 60_000}
    holder = jobs.work("hang", apart=True, **times)
    lost = jobs.add("lost")
    until(lambda: jobs.counts()["active"] == 1, what="the worker has it")
    live = jobs.work("hang", apart=True, **times)
    kept = jobs.add("kept")
    until(lambda: jobs.counts()["active"] == 2, what="the other worker has one too")
    one.bench.discover()
    one.scan()
    holder.kill()
    until(lambda: one.scan().acted == 1, 20, "the watch put it back")
    assert one.waiting() == [lost.encode()]
    assert one.scan().acted == 0
    live.release()
    until(lambda: live.events("completed") == [("completed", kept)])
    until(lambda: ("active", lost) in live.events("active"), what="it runs again")


def test_without_leave_to_release_a_lock_is_waited_for(night: Callable[..., Night]) -> None:
    one = night('[policy]\norphan_watch = { mode = "enabled" }\n')
    with _worker(one.store, "a"):
        held(one, "1", worker="b", token="b:1")
        one.bench.discover()
        one.scan()
        (find,) = one.scan(later=5_000, queue=MAIL).finds
    assert "does not allow releasing it" in find.policy


def test_a_lock_that_changed_hands_meanwhile_is_left_alone(
    night: Callable[..., Night], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = night()
    leaving = _worker(one.store, "b")
    with _worker(one.store, "a"):
        held(one, "1", worker="b", token="b:1")
        one.bench.discover()
        one.scan()
        leaving.close()
        until(lambda: one.scan().finds == () and one.bench.watch.is_pending)
        prove = incident_guard.mark_proven

        def slow(*given: Any) -> set[str]:
            one.store.client.set(f"{MAIL.base}:1:lock", "c:1", px=60_000)
            return prove(*given)

        monkeypatch.setattr(incident_guard, "mark_proven", slow)
        report = one.scan(later=2_000)
    assert [find.outcome for find in report.finds] == [Outcome.REFUSED]
    assert one.store.client.get(f"{MAIL.base}:1:lock") == b"c:1"
    assert Incident.objects.get().proven_at is None, "so it was not orphaned after all"
    assert one.scan(later=3_000).finds == (), "and it is not tried again at once"


def held(night: Night, id: str, *, worker: str, token: str) -> None:
    active(night.store, MAIL.base, id, pb=worker, ats=1, processedOn=now_ms())
    night.store.client.set(f"{MAIL.base}:{id}:lock", token, px=60_000)


def _worker(store: Store, name: str) -> redis.Redis:
    """A connection that looks like a worker's."""
    client = store.connect(client_name=f"bull:{b64encode(b'mail').decode()}:w:{name}")
    client.ping()
    return client


def _suffered(times: int) -> None:
    at = now_ms() - 3_600_000
    for number in range(times):
        Incident.objects.create(
            deployment="main", base=MAIL.slug, job="1", kind="orphan", opened_at=at, proven_at=at, closed_at=at + number
        )


def _away(*_: object) -> dict[str, int]:
    raise DatabaseError("gone")


def _dump(store: Store) -> dict[bytes, bytes | None]:
    return {key: store.client.dump(key) for key in store.client.keys("*")}
