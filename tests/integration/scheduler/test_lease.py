"""Several schedulers, of which one leads: real processes, killed, stopped, asked to end; on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.db import ConnectionHandler
from django.db.backends.base.base import BaseDatabaseWrapper

from dashboard.database_url import database_settings
from recovery.actions import runner
from recovery.actions.bulk.bulk_runs import BulkRunner
from recovery.domain.actions.types import Action
from recovery.domain.jobs import JobState
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.reads.bulk import queries as progress_of
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners import scheduler_status
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.reads.stuck import inbox_store
from recovery.scanners.collect.collector import Collector
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.scanners.prune import Pruner
from recovery.scheduler.lease_row import LeaseRow
from recovery.stores.registry import registry
from recovery.stores.state import state_keys as keys
from tests.support.acting import Bench, all_of, finish
from tests.support.patience import patience
from tests.support.processes.schedulers import DATABASE, STARTS_WITHIN, Process, migrate, script
from tests.support.stores.furnished import KINDS
from tests.support.stores.postgres import Postgres, programs
from tests.support.stores.stores import Store
from tests.support.stuck.watching import add, now_ms
from tests.support.waiting import until

SHORT = json.dumps({"TERM": 3.0, "RENEW": 1.0, "MARGIN": 0.5, "LIFE": 5})
AFTER_SIGTERM, AFTER_SIGKILL = 1.0, 12.0  # seconds until another leads
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, our_database: Callable[[str, Path], str], tmp_path: Path) -> str:
    """The URL of a database with our tables."""
    return our_database(request.param, tmp_path)


# -- the row


@pytest.fixture
def connect(database: str) -> Callable[[], BaseDatabaseWrapper]:
    """A new connection for whoever asks, as each process has its own."""

    def connection() -> BaseDatabaseWrapper:
        made: BaseDatabaseWrapper = ConnectionHandler({"default": database_settings(database, pooled=False)})["default"]
        return made

    return connection


@pytest.fixture
def row(connect: Callable[[], BaseDatabaseWrapper]) -> Iterator[LeaseRow]:
    row = LeaseRow(connect)
    row.read()  # the first one who looks makes it
    yield row
    row.close()


@pytest.mark.django_db
def test_of_many_who_ask_at_once_one_gets_it(row: LeaseRow, connect: Callable[[], BaseDatabaseWrapper]) -> None:
    barrier = Barrier(6)

    def ask(number: int) -> bool:
        mine = LeaseRow(connect)
        mine.read()
        barrier.wait(20)
        try:
            return mine.take(f"scheduler {number}", 9000) is not None
        finally:
            mine.close()

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(ask, range(6))) == 1


@pytest.mark.django_db
def test_the_epoch_rises_with_each_change_of_holder_and_with_nothing_else(row: LeaseRow) -> None:
    first = row.take("a", 9000)
    assert first is not None
    assert row.take("a", 9000) == first
    assert row.take("b", 9000) is None
    row.release("b")
    assert row.take("b", 9000) is None
    row.release("a")
    second = row.take("b", 9000)
    assert second is not None
    assert second.epoch > first.epoch
    assert second.since >= first.since


@pytest.mark.django_db
def test_a_lease_that_is_over_goes_to_another_and_one_that_was_renewed_does_not(row: LeaseRow) -> None:
    row.take("a", 200)
    row.take("a", 9000)
    assert 8000 < row.read().left <= 9000
    row.take("a", 50)
    until(lambda: row.take("b", 9000), 5, "the term is over")


@pytest.mark.django_db
def test_what_moved_since_it_was_seen_is_not_taken(row: LeaseRow) -> None:
    row.take("a", 9000)
    seen = row.read()
    until(lambda: row.take("a", 9000) and row.read().expires_at != seen.expires_at, 5, "the clock goes on")
    assert row.take("b", 9000, seen) is None
    assert row.take("b", 9000, row.read()) is not None


@pytest.mark.django_db
def test_a_new_database_begins_above_all_epochs_of_an_older_one(row: LeaseRow) -> None:
    grant = row.take("a", 9000)
    assert grant is not None
    assert grant.epoch >= time.time() - 5


# -- processes, which know of the row alone what the tests above hold it to on either database

_ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
_ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path, valkey: Store, state_store: Store, database: str) -> Iterator[Start]:
    """Start a scheduler: `start("a")`. They see each other's death only when `place` says so."""
    started: list[Process] = []
    add(valkey.client, "bull:jobs", "1", "2")
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url, "DATABASE_URL": database}
    (tmp_path / "unstall.toml").write_text("[intervals]\ncollect = 0.5\n")

    def begin(name: str, constants: str = "{}", *, place: str = "", more: Mapping[str, str] | None = None) -> Process:
        arguments = script(constants, place or f"machine-{name}")
        started.append(Process(tmp_path, name, arguments, {**environ, **(more or {})}))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def sign(state: Store) -> SchedulerStatus | None:
    return scheduler_status.fetch(state.client)


def leads(state: Store, one: Process) -> bool:
    found = sign(state)
    return found is not None and found.leads and found.pid == one.pid


def pair(start: Start, state: Store, constants: str = "{}") -> tuple[Process, Process]:
    """The first one leads, the other follows."""
    one = start("a", constants)
    until(lambda: leads(state, one), STARTS_WITHIN, "the first one leads")
    other = start("b", constants)
    other.says(f"on standby: {os.uname().nodename} (process {one.pid}) is the leader")
    return one, other


def test_one_that_is_asked_to_end_is_followed_within_a_second(start: Start, state_store: Store) -> None:
    one, other = pair(start, state_store)
    before = sign(state_store)
    one.ask()
    other.says("It is the leader", 10)
    until(lambda: leads(state_store, other), 10)
    assert at(other, "It is the leader") - at(one, "ending") <= patience(AFTER_SIGTERM)
    assert one.status() == 0
    after = sign(state_store)
    assert before is not None
    assert after is not None
    assert (after.epoch or 0) > (before.epoch or 0) > 0
    until(lambda: taken_at(state_store) > after.since, 10, "a snapshot of the new leader")


@_ON_SQLITE
def test_one_that_is_killed_is_followed_within_twelve_seconds(start: Start, state_store: Store) -> None:
    one, other = pair(start, state_store)
    one.send(signal.SIGKILL)
    began = time.time()
    until(lambda: leads(state_store, other), 30, "the other one leads")
    assert time.time() - began <= max(AFTER_SIGKILL, patience(AFTER_SIGKILL / 2))


@_ON_SQLITE
def test_one_that_is_killed_and_started_again_waits_for_nobody(start: Start, state_store: Store) -> None:
    """It sees that the process that has the lease is no more."""
    one = start("a", place="here")
    until(lambda: leads(state_store, one), STARTS_WITHIN, "it leads")
    one.send(signal.SIGKILL)
    one.child.wait(10)
    again = start("b", place="here")
    again.says("started")
    assert "on standby" not in again.log
    assert "It is the leader" in again.log


@_ON_POSTGRESQL
def test_one_that_was_stopped_past_its_term_follows_when_it_goes_on(start: Start, state_store: Store) -> None:
    one, other = pair(start, state_store, SHORT)
    one.send(signal.SIGSTOP)
    other.says("It is the leader", 20)
    until(lambda: leads(state_store, other), 10)
    one.send(signal.SIGCONT)
    one.says("is lost; it is on standby", 20)
    one.says(f"on standby: {os.uname().nodename} (process {other.pid}) is the leader", 20)
    numbers = {taken_at(state_store) for _ in samples(state_store, 5)}
    assert min(numbers) > at(other, "It is the leader") * 1000
    assert leads(state_store, other)
    other.ask()
    one.says("It is the leader", 40)
    until(lambda: leads(state_store, one), 10, "it leads again")


@_ON_POSTGRESQL
def test_of_three_only_one_takes_over(start: Start, state_store: Store) -> None:
    one, other = pair(start, state_store, SHORT)
    third = start("c", SHORT)
    third.says("on standby")
    one.send(signal.SIGKILL)
    heir = until(
        lambda: next((each for each in (other, third) if leads(state_store, each)), None), 20, "one of them leads"
    )
    rest = third if heir is other else other
    rest.says(f"(process {heir.pid}) is the leader", 10)
    assert "started" not in rest.log


# -- the database is away


@pytest.fixture
def frail() -> Iterator[Postgres]:
    """A PostgreSQL that may be stopped."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with Postgres() as server:
        yield server


@_ON_SQLITE
def test_while_the_database_is_away_one_reads_and_nobody_changes_anything(
    start: Start, state_store: Store, tmp_path: Path, frail: Postgres
) -> None:
    reachable = {"DATABASE_URL": frail.url}
    migrate(tmp_path, reachable)
    one = start("a", SHORT, more=reachable)
    until(lambda: leads(state_store, one), STARTS_WITHIN, "it leads")
    other = start("b", SHORT, more=reachable)
    other.says("on standby")
    frail.stop()
    try:
        for each in one, other:
            each.says("It only reads", 30)
            assert "orphan-watch" not in each.log.rpartition("started")[2]
        until(lambda: (found := sign(state_store)) and not found.leads, 20, "one claims to read")
        reader, spare = (one, other) if until(lambda: sign(state_store)).pid == one.pid else (other, one)
        gone_at = now_ms()
        until(lambda: taken_at(state_store) > gone_at, 10, "the numbers go on")
        assert {found.pid for _ in samples(state_store, 5) if (found := sign(state_store))} == {reader.pid}
        reader.send(signal.SIGKILL)
        until(lambda: (found := sign(state_store)) and found.pid == spare.pid, 40, "the other one reads")
    finally:
        frail.start()
    until(lambda: leads(state_store, spare), 30, "it leads")
    assert "orphan-watch" in spare.log.rpartition("started")[2]


@_ON_SQLITE
def test_without_its_tables_it_reads_at_once_and_says_why(start: Start, state_store: Store, tmp_path: Path) -> None:
    (tmp_path / DATABASE).unlink()
    one = start("a")
    one.says("the leader cannot be read from the database: no such table")
    until(lambda: taken_at(state_store), 10, "a snapshot")
    found = sign(state_store)
    assert found is not None
    assert (found.pid, found.leads) == (one.pid, False)


# -- what was begun with leave, and is ready without


@pytest.mark.django_db
def test_what_was_seen_before_the_lease_was_lost_does_not_cover_what_the_next_one_sees(bench: Bench) -> None:
    state = bench.state.client
    collector = Collector(registry(), may=_no)
    try:
        snapshot = collector.run(now_ms())
        OrphanWatch(registry(), lambda: snapshot, may=_no).run(now_ms())
        state.set(keys.discovered_queues("gone"), b"of a deployment that is no more")
        assert Pruner(registry(), _no).run(0).count == 0
        assert (
            snapshot_store.fetch(state),
            inbox_store.fetch(state),
            state.exists(keys.discovered_queues("gone")),
        ) == (None, None, 1)
    finally:
        collector.close()


def _no() -> bool:
    return False


@pytest.mark.django_db
def test_a_bulk_run_ends_between_two_chunks_when_the_lease_is_lost(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.failed(*(str(number) for number in range(1200)))
    run = all_of(bench, Action.RETRY)
    leading_now, chunk = [True], runner.perform_prechecked

    def lose(*arguments: Any) -> Any:
        came_to = chunk(*arguments)
        leading_now.clear()
        return came_to

    losing = BulkRunner(registry(), LeaderToken(1, lambda: bool(leading_now)))
    with monkeypatch.context() as patch:
        patch.setattr(runner, "perform_prechecked", lose)
        losing.run(0)
    assert losing.run(0) == 0
    found = progress_of.progress(run.pk, now_ms())
    assert (found.status, found.done, len(bench.ids(JobState.FAILED))) == ("running", 500, 700)
    losing.close()
    assert finish(hands, run).done == 1200
    assert bench.ids(JobState.FAILED) == []


def at(one: Process, words: str) -> float:
    """When it said so."""
    (line,) = (line for line in one.log.splitlines() if words in line)
    return datetime.fromisoformat(line.split()[0]).timestamp()


def taken_at(state: Store) -> int:
    found = snapshot_store.fetch(state.client)
    return found.taken_at if found else 0


def samples(state: Store, count: int) -> Iterator[int]:
    """At each of the next snapshots."""
    last = taken_at(state)
    for number in range(count):
        before = last
        last = until(lambda before=before: (now := taken_at(state)) != before and now, 20, "another snapshot")  # type: ignore[misc]
        yield number
