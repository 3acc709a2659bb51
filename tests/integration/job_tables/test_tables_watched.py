"""Job tables in the snapshot, in the inbox and among the incidents, on real databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recovery.actions import runner
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.queues.time_series import MINUTE
from recovery.domain.queues.types import QueueLibrary, QueueSample, Snapshot
from recovery.domain.stuck.types import VerdictKind
from recovery.models import Incident, ScannerPause
from recovery.reads.queues import history, snapshot_store
from recovery.reads.stuck import inbox_store, incidents
from recovery.reads.stuck import queries as stuck_queries
from recovery.scanners.collect.collector import Collector
from recovery.scanners.collect.recorder import HistoryRecorder
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.scanners.prune import Pruner
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, REF, TABLE, Place, Sqlite, TableBench, configured
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until
from tests.web.safety_limit_rows import quarantine

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _table(place: Place) -> None:
    place.run(JOBS)


@pytest.fixture
def serve_table(
    place: Place, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., TableBench]]:
    opened = []

    def serve(rest: str = "", **more: Any) -> TableBench:
        one = configured(tmp_path, monkeypatch, state_store, {"app": place}, TABLE + rest, **more)
        one.__enter__()
        opened.append(one)
        return TableBench(place, state_store)

    yield serve
    for one in opened:
        one.__exit__(None, None, None)


@pytest.fixture
def bench(serve_table: Callable[..., TableBench]) -> TableBench:
    return serve_table()


def sample(bench: TableBench) -> QueueSample:
    (found,) = bench.collect().queues
    return found


def test_a_table_is_a_queue_of_the_snapshot(bench: TableBench) -> None:
    bench.add(1, 2, 3)
    bench.held(4, 5, owner="w1")
    bench.orphan(6, owner="w2")
    bench.add(7, state="failed")
    bench.add(8, 9, state="done")
    bench.add(10, state="archived")
    found = sample(bench)
    assert (found.ref, found.flavour.library, found.error) == (REF, QueueLibrary.TABLE, "")
    counts = found.counts
    assert (counts.waiting, counts.active, counts.completed, counts.failed, counts.delayed) == (3, 3, 2, 1, 0)
    assert found.workers == 2
    assert found.is_paused is False
    assert found.oldest_waiting_at
    assert found.oldest_active_at


def test_a_table_without_rows_has_none_and_nobody_says_that_no_worker_is_there(bench: TableBench) -> None:
    found = sample(bench)
    assert (found.counts.waiting, found.counts.active) == (0, 0)
    assert found.workers is None


def test_the_snapshot_survives_its_way_through_the_state_store(bench: TableBench, state_store: Store) -> None:
    bench.held(1)
    taken = bench.collect()
    assert snapshot_store.fetch(state_store.client) == taken


def test_a_table_that_is_missing_costs_only_itself(serve_table: Callable[..., TableBench], valkey: Store) -> None:
    other = TABLE.replace('table = "jobs"', 'table = "other"')
    bench = serve_table(other)
    bench.add(1)
    found = {one.ref.base: one for one in bench.collect().queues}
    assert found["jobs"].counts.waiting == 1
    assert "no table other" in found["other"].error
    assert found["other"].counts.waiting is None


def test_a_table_that_goes_away_keeps_its_last_numbers_marked(bench: TableBench, place: Place) -> None:
    bench.add(1)
    collector = Collector(registry.registry(), KnownQueues())
    try:
        collector.look(now_ms())
        place.run("DROP TABLE jobs")
        (found,) = until(lambda: [one for one in collector.look(now_ms() + 600_000).queues if one.error], 30)
    finally:
        collector.close()
    assert (found.counts.waiting, found.is_old) == (1, True)


def test_a_database_that_is_away_is_told_with_its_last_numbers(bench: TableBench, place: Place) -> None:
    bench.add(1)
    collector = Collector(registry.registry(), KnownQueues())
    try:
        collector.look(now_ms())
        with _gone(place):
            registry.registry().wire("app").close()
            found = until(lambda: _away(collector), 30)
    finally:
        collector.close()
    assert found.counts.waiting == 1


@contextmanager
def _gone(place: Any) -> Iterator[None]:
    """For as long as it lasts."""
    if isinstance(place, Sqlite):
        path = Path(place.url.removeprefix("sqlite:///"))
        path.rename(path.with_suffix(".away"))
        try:
            yield
        finally:
            path.with_suffix(".away").rename(path)
    else:
        place.server.stop()
        try:
            yield
        finally:
            place.server.start()


def _away(collector: Collector) -> QueueSample | None:
    snapshot = collector.look(now_ms() + 600_000)
    (deployment,) = snapshot.deployments
    return snapshot.queues[0] if deployment.error else None


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)  # SQLite has one lock for all tables
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_table_that_somebody_locks_is_silent_alone_unless_it_is_the_only_one(
    serve_table: Callable[..., TableBench], place: Place, is_alone: bool
) -> None:
    place.run(JOBS.replace("TABLE jobs", "TABLE other"))
    serve_table("" if is_alone else TABLE.replace('table = "jobs"', 'table = "other"'), timeout=0.3)
    collector = Collector(registry.registry(), KnownQueues())
    with psycopg.connect(place.url) as locking:
        locking.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        try:
            snapshot = until(lambda: _seen(collector, is_alone=is_alone), 30)
        finally:
            collector.close()
    assert bool(snapshot.deployments[0].error) is is_alone


def _seen(collector: Collector, *, is_alone: bool) -> Snapshot | None:
    """Once each table was tried."""
    snapshot = collector.look(now_ms())
    errors = {sample.ref.base: sample.error for sample in snapshot.queues}
    is_told = bool(errors.get("jobs")) and (is_alone or errors.get("other") == "")
    return snapshot if is_told else None


def test_what_was_recorded_of_a_database_is_not_pruned(bench: TableBench, state_store: Store) -> None:
    for ref in (REF, QueueRef("gone", "jobs")):
        state_store.client.set(state_keys.history(ref, "m"), b"x")
    Pruner(registry.registry()).run(now_ms())
    assert state_store.client.keys("*") == [state_keys.history(REF, "m")]


def test_what_ended_in_a_minute_is_recorded_and_shown_as_a_rate(bench: TableBench) -> None:
    bench.add(1, state="done")
    recorder = HistoryRecorder(registry.registry(), lambda: newest[-1])
    newest = [bench.collect()]
    minute = now_ms() // MINUTE * MINUTE
    for turn in (1, 2):
        newest.append(_later(bench.collect(), minute + turn * MINUTE + 2_000))
        recorder.run(minute + turn * MINUTE + 4_000)
        bench.add(turn * 10, turn * 10 + 1, state="done")
        bench.add(turn * 10 + 2, state="failed")
    tallies = history.recent(registry.registry().state(), [REF], minute + 3 * MINUTE)[REF]
    assert [(one.completed, one.failed) for one in tallies.values() if not one.is_unknown] == [(2, 1)]
    series = history.series(REF, newest[-1].queues[0].flavour, 1, now=minute + 3 * MINUTE)
    assert (sum(point.completed or 0 for point in series.points), series.source) == (2, "recorded")
    assert series.note.startswith("Recorded by Unstall once a minute: the increase of done")


def _later(snapshot: Snapshot, at: int) -> Snapshot:
    deployments = tuple(replace(one, taken_at=at) for one in snapshot.deployments)
    return replace(snapshot, taken_at=at, deployments=deployments)


def test_lost_rows_are_in_the_inbox_and_those_that_are_held_are_not(bench: TableBench, state_store: Store) -> None:
    bench.held(1, owner="w1")
    bench.orphan(2, 3, owner="w2")
    inbox = bench.watch()
    assert [(line.job.id, line.verdict.kind) for line in inbox.rows] == [
        ("2", VerdictKind.ORPHAN),
        ("3", VerdictKind.ORPHAN),
    ]
    (tally,) = inbox.queues
    assert (tally.looked, tally.stuck, tally.people) == (3, 2, 0)
    assert tally.watchdog.is_dead is False
    assert inbox_store.fetch(state_store.client) == inbox


def test_where_no_scanner_sweeps_lost_rows_need_a_person(serve_table: Callable[..., TableBench]) -> None:
    bench = serve_table('[policy.startup_sweep]\nmode = "dry-run"\n')
    bench.orphan(1)
    inbox = bench.watch()
    assert [(line.verdict.kind, line.verdict.until) for line in inbox.rows] == [(VerdictKind.ABANDONED, None)]
    assert inbox.people == 1


def test_a_sweep_that_somebody_stopped_rescues_nobody(bench: TableBench) -> None:
    bench.orphan(1)
    ScannerPause.objects.create(scanner="startup-sweep", by="ada", at=now_ms())
    inbox = bench.watch()
    assert [line.verdict.kind for line in inbox.rows] == [VerdictKind.ABANDONED]
    assert inbox.rows[0].verdict.fate.endswith("Startup-sweep is enabled, but it is paused.")


def test_where_a_sweep_comes_it_is_named_with_its_time(bench: TableBench) -> None:
    bench.orphan(1)
    inbox = bench.watch()
    ((line,), (tally,)) = inbox.rows, inbox.queues
    assert (line.verdict.rescuer, line.verdict.needs_a_person) == (PolicyScanner.STARTUP_SWEEP, False)
    assert line.verdict.until == inbox.checked_at + 63_000
    assert (tally.outlook.promised, tally.outlook.until) == (1, line.verdict.until)


def test_without_a_leader_nobody_sweeps_and_that_is_said(bench: TableBench, state_store: Store) -> None:
    bench.orphan(1)
    bench.is_led = False
    (line,) = bench.watch().rows
    assert (line.verdict.kind, line.verdict.until) == (VerdictKind.ABANDONED, None)
    assert line.verdict.fate.endswith("Startup-sweep is enabled, but no scheduler leads.")


def test_what_a_sweep_was_to_do_is_taken_back_when_nobody_leads_any_more(bench: TableBench, state_store: Store) -> None:
    bench.orphan(1)
    assert bench.watch().people == 0
    state_store.client.delete(state_keys.SCHEDULER)
    bench.forget()
    inbox = stuck_queries.newest_inbox()
    assert inbox is not None
    assert inbox.people == 1
    assert (inbox.rows[0].verdict.until, inbox.rows[0].verdict.needs_a_person) == (None, True)
    assert (
        inbox.rows[0].verdict.fate
        == "Never recovered in the current state. Startup-sweep is enabled, but no scheduler leads."
    )


def test_a_database_that_may_only_be_read_is_swept_by_nobody(
    place: Place, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with configured(tmp_path, monkeypatch, state_store, {"app": place}, TABLE):
        path = tmp_path / "unstall.toml"
        path.write_text(path.read_text().replace("[[databases]]", "[[databases]]\nread_only = true", 1))
        registry.reset()
        bench = TableBench(place, state_store)
        bench.orphan(1)
        (line,) = bench.watch().rows
    assert (line.verdict.kind, line.verdict.needs_a_person) == (VerdictKind.ABANDONED, True)
    assert line.verdict.fate.endswith("Startup-sweep is enabled, but app is configured to be read only.")


def test_a_row_that_the_sweep_leaves_to_a_person_is_promised_to_nobody(bench: TableBench) -> None:
    bench.orphan(1)
    quarantine("1", REF)
    (line,) = bench.watch().rows
    assert (line.verdict.is_quarantined, line.verdict.rescuer, line.verdict.needs_a_person) == (True, None, True)


def test_of_a_database_that_went_away_nothing_is_promised(bench: TableBench, place: Place) -> None:
    bench.orphan(1)
    watch, snapshots = OrphanWatch(registry.registry(), lambda: snapshots[-1]), [bench.collect()]
    assert watch.run(now_ms()).people == 0
    away = replace(snapshots[0].deployments[0], error="connection refused")
    snapshots.append(replace(snapshots[0], deployments=(away,)))
    inbox = watch.run(now_ms())
    assert inbox.people == 1
    assert inbox.rows[0].verdict.fate.endswith("Startup-sweep is enabled, but app does not answer.")


def test_a_row_beyond_the_limit_of_its_queue_is_overdue(serve_table: Callable[..., TableBench]) -> None:
    bench = serve_table('[[queues]]\nname = "app/jobs"\noverdue_after = 30\n')
    bench.held(1)
    assert [line.verdict.kind for line in bench.watch().rows] == [VerdictKind.OVERDUE]


def test_bad_data_of_a_lost_row_is_told(serve_table: Callable[..., TableBench], tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"required": ["file", "id"]}')
    bench = serve_table('[[queues]]\nname = "app/jobs"\nschema = "schema.json"\n')
    bench.orphan(1)
    (line,) = bench.watch().rows
    assert (line.verdict.kind, line.verdict.of_lock) == (VerdictKind.MALFORMED, VerdictKind.ORPHAN)
    (result,) = runner.perform(bench.order(Action.REQUEUE, 1))
    assert (result.outcome, "needs force" in result.why) == (Outcome.REFUSED, True)


# -- incidents


def watching(bench: TableBench) -> Callable[[int], None]:
    """One watch, that looks until so many incidents are open: a table rests between two looks."""
    watch = OrphanWatch(registry.registry(), bench.collect)

    def look(count: int) -> bool:
        watch.run(now_ms())
        return Incident.objects.filter(closed_at=None).count() == count

    return lambda count: until(lambda: look(count), 30) and None


def test_a_lost_row_is_one_incident_until_it_is_put_right(bench: TableBench) -> None:
    bench.orphan(1, owner="w1")
    look = watching(bench)
    look(1)
    look(1)
    (found,) = incidents.incidents_of_job(REF.job("1"))
    assert (found.kind, found.holder, found.closed_at, bool(found.proven_at)) == ("orphan", "w1", None, True)
    (result,) = runner.perform(bench.order(Action.REQUEUE, 1))
    look(0)
    (found,) = incidents.incidents_of_job(REF.job("1"))
    assert (found.resolved_by, found.audit) == ("operator", result.audit)


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ("UPDATE jobs SET lease_until = 9000000000000", "worker"),
        ("UPDATE jobs SET state = 'done'", "worker"),
        ("UPDATE jobs SET state = 'failed', last_error = 'it broke'", "worker"),
        ("UPDATE jobs SET state = 'queued', attempts = 1, last_error = 'orphaned by worker restart'", "stalled-check"),
        ("UPDATE jobs SET state = 'failed', attempts = 3, last_error = 'orphaned by worker restart'", "stalled-check"),
        ("UPDATE jobs SET state = 'queued'", ""),
        ("UPDATE jobs SET started_at = 9000000000000, lease_until = 9000000000000", ""),
        ("DELETE FROM jobs", "removed"),
    ],
)
def test_whoever_put_it_right_is_told(bench: TableBench, place: Place, change: str, by: str) -> None:
    bench.orphan(1)
    look = watching(bench)
    look(1)
    place.run(change)
    look(0)
    (found,) = incidents.incidents_of_job(REF.job("1"))
    assert found.closed_at
    assert found.resolved_by == by


def test_a_third_incident_quarantines_what_only_a_person_touches(bench: TableBench, place: Place) -> None:
    bench.orphan(1)
    look = watching(bench)
    for _ in range(2):
        look(1)
        place.run("UPDATE jobs SET state = 'queued'")
        look(0)
        place.run("UPDATE jobs SET state = 'running'")
    look(1)
    assert Incident.objects.count() == 3
    (result,) = runner.perform(bench.order(Action.REQUEUE, 1))
    assert (result.outcome, "needs force" in result.why) == (Outcome.REFUSED, True)
    (result,) = runner.perform(bench.order(Action.REQUEUE, 1, force=True))
    assert result.outcome is Outcome.DONE


def test_a_row_is_lost_until_its_hook_has_heard_of_it(serve_table: Callable[..., TableBench], place: Place) -> None:
    from recovery.hooks.dispatcher import HookDispatcher

    place.run("CREATE TABLE imports (id INTEGER PRIMARY KEY, stage VARCHAR(20))")
    place.run("INSERT INTO imports VALUES (1, 'importing')")
    bench = serve_table(
        '[[hooks]]\nname = "imports"\nqueue = "app/jobs"\non = ["lost"]\ndatabase = "app"\ntable = "imports"\n'
        'id = "id"\nstage = "stage"\nfrom = ["importing"]\nto = "pending"\n'
    )
    bench.orphan(1)
    bench.watch()
    assert HookDispatcher(registry.registry()).run(now_ms()) == 1
    assert place.run("SELECT stage FROM imports") == [("pending",)]


def test_a_deployment_in_redis_beside_it_is_watched_as_ever(
    serve_table: Callable[..., TableBench], valkey: Store
) -> None:
    from tests.support.stuck.watching import add, bullmq

    bench = serve_table(redis=valkey.url)
    bullmq(valkey.client, "bull:mail")
    add(valkey.client, "bull:mail", "1")
    bench.orphan(1)
    from recovery.scanners.discovery.scanner import Discoverer

    roster = KnownQueues()
    Discoverer(registry.registry(), roster, remembers=False).run(now_ms())
    collector = Collector(registry.registry(), roster)
    try:
        snapshot = collector.look(now_ms())
    finally:
        collector.close()
    assert {sample.ref.base: sample.counts.waiting for sample in snapshot.queues} == {"bull:mail": 1, "jobs": 0}
    assert [line.job.id for line in OrphanWatch(registry.registry(), lambda: snapshot).run(now_ms()).rows] == ["1"]
