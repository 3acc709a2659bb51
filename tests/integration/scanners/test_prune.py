"""What is kept too long goes, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard.accounts.roles import UserRole
from dashboard.accounts.sessions import digest
from dashboard.models import LoginSession
from recovery.domain.identifiers import QueueRef
from recovery.domain.time_units import DAY
from recovery.models import Alert, AuditEntry, Incident, ScanFind, ScanRun
from recovery.scanners import prune
from recovery.scanners.prune import INCIDENTS_FOR, RUNS_FOR, Pruner
from recovery.servers import queries as servers_queries
from recovery.stores.registry import registry
from recovery.stores.state import state_keys
from tests.support.acting import Bench
from tests.support.people import browser, person
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db


def run(age: int, status: str = "ended") -> ScanRun:
    one = ScanRun.objects.create(scanner="prune", status=status, wanted_at=now_ms() - age)
    ScanFind.objects.create(run=one, deployment="main", base="b", job="1", what="x")
    return one


def incident(age: int | None) -> Incident:
    closed = None if age is None else now_ms() - age
    return Incident.objects.create(
        deployment="main", base="b", job=str(age), kind="orphan", opened_at=1, closed_at=closed
    )


def test_old_runs_and_incidents_go_and_what_is_open_stays(bench: Bench) -> None:
    young, _old = run(RUNS_FOR - 60_000), run(RUNS_FOR + 60_000)
    waiting = run(RUNS_FOR + 60_000, "running")
    kept, _gone, still_open = incident(INCIDENTS_FOR - 60_000), incident(INCIDENTS_FOR + 60_000), incident(None)
    report = Pruner(registry()).run(now_ms())
    assert report.found == 2
    assert set(ScanRun.objects.all()) == {young, waiting}
    assert ScanFind.objects.count() == 2
    assert set(Incident.objects.all()) == {kept, still_open}
    assert not AuditEntry.objects.exists()


def test_what_a_job_suffered_before_is_kept_while_it_waits(bench: Bench) -> None:
    """It is quarantined, however long nobody comes."""
    old = {"deployment": "main", "base": "b", "kind": "orphan", "opened_at": 1, "proven_at": 1}
    ended = now_ms() - 2 * INCIDENTS_FOR
    before = [Incident.objects.create(**old, job="1", closed_at=ended) for _ in range(2)]
    for place in ({"deployment": "other", "job": "1"}, {"base": "c", "job": "1"}, {"job": "2"}):
        Incident.objects.create(**old | place, closed_at=ended)
    now = Incident.objects.create(**old, job="1")
    assert Pruner(registry()).run(now_ms()).found == 3
    assert set(Incident.objects.all()) == {*before, now}


def test_alerts_that_were_over_long_ago_go(bench: Bench) -> None:
    same = {"kind": "quarantine", "words": "x", "since": 1, "seen_at": 1}
    over = now_ms() - prune.ALERTS_FOR
    Alert.objects.create(**same, key="old", resolved_at=over - 60_000)
    kept = {Alert.objects.create(**same, key=str(at), resolved_at=at) for at in (over + 60_000, None)}
    assert Pruner(registry()).run(now_ms()).found == 1
    assert set(Alert.objects.all()) == kept


def test_sessions_that_are_over_go(bench: Bench) -> None:
    kept, idle, expired = (browser(person(UserRole.VIEWER)).session.session_key or "" for _ in range(3))
    rows, now = LoginSession.objects, timezone.now()
    rows.filter(key_hash=digest(idle)).update(last_used_at=now - timedelta(days=2))
    rows.filter(key_hash=digest(expired)).update(expires_at=now - timedelta(seconds=1))
    Pruner(registry()).run(now_ms(), dry_run=True)
    assert rows.count() == 3
    Pruner(registry()).run(now_ms())
    assert [row.key_hash for row in rows.all()] == [digest(kept)]


def test_of_very_many_runs_the_newest_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "RUNS", 3)
    monkeypatch.setattr(prune, "ROWS", 2)
    made = [run(0) for _ in range(8)]
    assert Pruner(registry()).run(now_ms()).found == 5
    assert list(ScanRun.objects.order_by("pk")) == made[-3:]


def test_looking_removes_nothing_and_counts_the_same(bench: Bench) -> None:
    run(RUNS_FOR + 60_000)
    incident(INCIDENTS_FOR + 60_000)
    assert Pruner(registry()).run(now_ms(), dry_run=True).found == 2
    assert ScanRun.objects.count() == Incident.objects.count() == 1


def test_it_stops_when_the_lease_is_lost(bench: Bench) -> None:
    run(RUNS_FOR + 60_000)
    assert Pruner(registry(), lambda: False).run(now_ms()).found == 0
    assert ScanRun.objects.exists()


def test_it_is_never_about_one_queue(bench: Bench) -> None:
    run(RUNS_FOR + 60_000)
    assert Pruner(registry()).run(now_ms(), queue=QueueRef("main", "b")).found == 0


def test_a_server_that_was_silent_for_longer_than_its_history_is_forgotten(bench: Bench) -> None:
    store, now = registry().state(), now_ms()
    store.zadd(state_keys.SERVERS, {"gone": now - 8 * DAY - 1, "away": now - 8 * DAY + 60_000})
    assert Pruner(registry()).run(now).found == 1
    assert list(servers_queries.last_seen(store)) == ["away"]
