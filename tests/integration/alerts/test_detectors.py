"""Where the leader learns what is to be told: real stores, and what the scanners leave in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.db import connection

from recovery.alerts.detectors import AlertDetectors
from recovery.domain.alerts.types import AlertCheck, AlertFinding, AlertKind
from recovery.domain.gate.state_machine import Gate, GateSample, GateState
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.queues.types import Snapshot
from recovery.domain.stuck.inbox import StuckInbox
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.time_units import MINUTE
from recovery.reads.stuck import inbox_store
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.support.acting import Bench, set_up
from tests.support.stores.stores import Store
from tests.support.stuck import samples
from tests.support.stuck.watching import now_ms
from tests.web.safety_limit_rows import hold_store, quarantine, trip

pytestmark = pytest.mark.django_db(transaction=True)
ALL = frozenset(AlertKind) - {AlertKind.SCHEDULER}


@pytest.fixture
def bench(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with set_up(valkey, state_store, tmp_path, monkeypatch) as made:
        inbox_store.publish(state_store.client, StuckInbox(now_ms()))
        yield made


def look(snapshot: Snapshot | None) -> AlertCheck:
    return AlertDetectors(registry.registry(), lambda: snapshot).look(now_ms())


def of(kind: AlertKind, found: AlertCheck) -> AlertFinding:
    (one,) = [finding for finding in found.findings if finding.kind is kind]
    return one


def test_a_quiet_house_is_known_to_be_quiet(bench: Bench) -> None:
    found = look(bench.look())
    assert (found.findings, found.known, found.silent) == ((), ALL, frozenset())


def test_jobs_that_nothing_will_rescue(bench: Bench) -> None:
    bench.orphan("1", "2", data='{"secret": "hunter2"}')
    OrphanWatch(registry.registry(), bench.look).run(now_ms())
    found = of(AlertKind.ABANDONED, look(bench.look()))
    assert found.words.endswith("abandoned in main/bull:mail: no worker is connected, nothing will ever recover them.")
    assert (found.key, found.size) == ("main/bull:mail", 2)
    assert found.link == "/stuck?queue=main%2Fbull%3Amail&verdict=abandoned"


def test_what_a_scanner_rescues_is_said_to_be_so(bench: Bench, state_store: Store) -> None:
    bench.orphan("1", "2")
    inbox = OrphanWatch(registry.registry(), bench.look).run(now_ms())
    (tally,) = inbox.queues
    soon = now_ms() + 27.5 * MINUTE
    for rescued, fate in (
        (2, "stale-check recovers them within 27 min."),
        (1, "nothing will ever recover 1 of them."),
    ):
        ahead = QueueOutlook(rescued, rescued, round(soon), PolicyScanner.STALE_CHECK)
        inbox_store.publish(state_store.client, replace(inbox, queues=(replace(tally, outlook=ahead),)))
        assert of(AlertKind.ABANDONED, look(bench.look())).words.endswith(fate)


def test_a_quarantined_job_that_is_stuck(bench: Bench) -> None:
    quarantine("7", QueueRef("main", bench.base))
    bench.orphan("7")
    OrphanWatch(registry.registry(), bench.look).run(now_ms())
    found = of(AlertKind.QUARANTINE, look(bench.look()))
    assert found.words.startswith("1 job of main/bull:mail is quarantined")
    assert "verdict=quarantined" in found.link


def test_safety_limits_of_both_kinds_tell_no_ages_that_would_be_news_each_time(bench: Bench) -> None:
    hold_store()
    trip("connect ECONNREFUSED password=hunter2")
    first, second = look(bench.look()), look(bench.look())
    assert of(AlertKind.PAUSE, first).words == of(AlertKind.PAUSE, second).words
    breaker = of(AlertKind.BREAKER, first)
    assert breaker.words == of(AlertKind.BREAKER, second).words
    assert breaker.words.startswith("A breaker is open in main/bull:mail: ")
    assert "hunter2" not in breaker.words
    assert breaker.since is not None


def test_a_gate_that_is_closed_and_one_of_which_nothing_is_known(bench: Bench, state_store: Store) -> None:
    now = now_ms()
    closed = Gate("eu/1", GateState.CLOSED, now - 60_000, sample=GateSample(now, now, 60_000, 97.2, 91.0))
    silent = Gate("eu-2", GateState.CLOSED, now - 60_000, sample=GateSample(now - 10**7, now - 10**7, 5000, 97.2, 91.0))
    for gate in (closed, silent):
        state_store.client.hset(state_keys.GATES, gate.server, gate.encode())
    found = look(bench.look())
    finding = of(AlertKind.GATE, found)
    assert finding.words == "The gate of eu/1 is closed: its CPU is at 97 %. No heavy job starts on it."
    assert (finding.link, finding.since) == ("/servers/eu~2F1", now - 60_000)
    assert not found.knows(AlertKind.GATE, "eu-2")
    assert found.knows(AlertKind.GATE, "eu/1")


def test_a_deployment_that_is_silent_and_queues_that_cannot_be_read(bench: Bench) -> None:
    queues = [samples.queue(f"bull:q{number}", error="no permission: LLEN") for number in range(5)]
    at = now_ms()
    found = of(AlertKind.UNREADABLE, look(samples.snapshot(*queues, taken_at=at)))
    assert found.words == ("5 queues of main cannot be read: bull:q0, bull:q1, bull:q2 and 2 more. no permission: LLEN")
    silent = look(samples.snapshot(samples.queue(), silent="main", taken_at=at))
    assert of(AlertKind.UNREADABLE, silent).words == "main does not answer (redis://main:6379): connection refused."
    assert not silent.knows(AlertKind.ABANDONED, "main/bull:mail")


def test_what_is_old_or_away_is_not_known(bench: Bench, state_store: Store) -> None:
    inbox_store.publish(state_store.client, StuckInbox(now_ms() - 60_000))
    assert look(samples.snapshot(taken_at=now_ms() - 60_000)).known == {
        AlertKind.AUDIT,
        AlertKind.BREAKER,
        AlertKind.PAUSE,
        AlertKind.GATE,
        AlertKind.SCANNER,
        AlertKind.CONSOLE,
        AlertKind.N8N,
    }
    assert AlertKind.UNREADABLE not in look(None).known
    state_store.pause()
    try:
        assert look(samples.snapshot(taken_at=now_ms())).known == {
            AlertKind.AUDIT,
            AlertKind.BREAKER,
            AlertKind.PAUSE,
            AlertKind.N8N,
            AlertKind.UNREADABLE,
        }
    finally:
        state_store.resume()


def test_without_the_database_the_safety_limits_are_not_known(bench: Bench) -> None:
    snapshot = bench.look()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE recovery_brakestate RENAME TO gone")
    try:
        assert look(snapshot).known == ALL - {AlertKind.BREAKER, AlertKind.PAUSE}
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO recovery_brakestate")
