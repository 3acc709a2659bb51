"""Recorded history, from the minute that closed to the chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import MINUTE, FinishedPoint, FinishedSeries, FinishedTally
from recovery.domain.queues.types import (
    DeploymentSample,
    JobCounts,
    LibraryVersion,
    QueueLibrary,
    QueueSample,
    Snapshot,
)
from recovery.reads.queues import history
from recovery.scanners.collect import recorder
from recovery.scanners.collect.collector import Collector
from recovery.scanners.collect.recorder import HistoryCells, HistoryRecorder, HistoryWriter
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.scanners.prune import Pruner
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.stores import Store
from tests.support.stuck.watching import NOW, add, config_of, finish

JOBS = QueueRef("main", "bull:jobs")
BULLMQ = LibraryVersion(QueueLibrary.BULLMQ, 5)
M = NOW // MINUTE  # the minute that is open at NOW


class Bench:
    """A recorder, and the snapshot it goes by."""

    def __init__(self, registry: ConnectionRegistry, queues: Store, state: Store) -> None:
        self.registry = registry
        self.queues = queues.client
        self.state = state.client
        self.recorder = HistoryRecorder(registry, lambda: self.snapshot)
        self.snapshot: Snapshot | None = None

    def restart(self) -> None:
        self.recorder = HistoryRecorder(self.registry, lambda: self.snapshot)

    def run(self, now: int, *, error: str = "", lost: str = "") -> int:
        """The end of a minute, with the counts as they are in Redis."""
        pipeline = self.queues.pipeline()
        pipeline.llen("bull:jobs:wait").zcard("bull:jobs:completed").zcard("bull:jobs:failed").get("bull:jobs:id")
        waiting, completed, failed, added = pipeline.execute()
        counts = JobCounts() if error else JobCounts(waiting, 0, 0, 0, 0, completed, failed, 0)
        sample = QueueSample(JOBS, BULLMQ, counts, added=int(added or 0), error=error)
        deployment = DeploymentSample("main", "redis://h", now, error=lost)
        self.snapshot = Snapshot(1, now, (deployment,), (sample,))
        return self.recorder.run(now)

    def cells(self, now: int, minutes: int = 60) -> dict[int, FinishedTally]:
        return history.recent(self.state, [JOBS], now, minutes=minutes)[JOBS]

    def series(self, hours: int, now: int) -> FinishedSeries:
        return history.series(JOBS, BULLMQ, hours, now=now, stores=self.registry)


@pytest.fixture
def bench(tmp_path: Path, valkey: Store, state_store: Store) -> Iterator[Bench]:
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": valkey}))
    yield Bench(registry, valkey, state_store)
    registry.close()


def at(minute: int, seconds: float = 30) -> int:
    return minute * MINUTE + int(seconds * 1000)


def test_the_minute_that_closed_is_counted(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 3), at(M - 1, 0), at(M - 1, 59.999), at(M, 0))
    finish(bench.queues, "bull:jobs", at(M - 5), at(M - 1), outcome="failed")
    bench.run(NOW)
    assert bench.cells(NOW)[M - 1] == FinishedTally(2, 1, None)


def test_a_minute_is_recorded_once(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 3), at(M - 1))
    assert [bench.run(NOW), bench.run(NOW + 1000)] == [1, 0]


def test_jobs_that_vanish_when_they_finish_are_counted_as_left(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", *"abcdefgh")
    bench.run(at(M))
    for _ in range(5):
        bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 1))
    assert bench.cells(at(M + 1))[M] == FinishedTally(None, None, 5)


def test_nothing_left_makes_zero_a_known_zero(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", "a", "b")
    bench.run(at(M))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 1))
    bench.run(at(M + 2))
    assert bench.cells(at(M + 2))[M + 1] == FinishedTally(0, 0, 0)


def test_a_queue_that_does_nothing_takes_no_memory(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", "a")
    for minute in range(5):
        assert bench.run(at(M + minute)) == 0
    assert bench.state.keys("unstall:history:*") == []


def test_the_idle_minutes_before_the_first_job_are_known_zeros(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", "a")
    for minute in range(4):
        bench.run(at(M + minute))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 4))
    cells = bench.cells(at(M + 4))
    assert [cells.get(M + minute) for minute in range(-1, 4)] == [
        None,
        *[FinishedTally(0, 0, 0)] * 3,
        FinishedTally(None, None, 1),
    ]


def test_minutes_when_nobody_recorded_are_unknown(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", "a", "b", "c")
    bench.run(at(M))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 1))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 4))
    assert set(bench.cells(at(M + 4))) == {M}


def test_what_left_while_nobody_recorded_is_not_put_into_one_minute(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", "a", "b", "c")
    bench.run(at(M))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 1))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 4))
    bench.run(at(M + 5))
    assert bench.cells(at(M + 5))[M + 4] == FinishedTally(0, 0, 0)


def test_a_dead_deployment_s_minutes_are_unknown(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 3), at(M - 1))
    assert bench.run(NOW, lost="connection refused") == 0
    assert bench.cells(NOW) == {}


def test_an_unreadable_queue_s_minutes_are_unknown(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 3), at(M - 1))
    assert bench.run(NOW, error="WRONGTYPE") == 0


def test_a_wiped_queue_has_not_lost_jobs_and_counts_anew(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", *"abcdef")
    bench.run(at(M))
    for _ in range(3):
        bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 1))
    bench.queues.flushdb()
    add(bench.queues, "bull:jobs", "a", "b")
    bench.run(at(M + 2))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 3))
    cells = bench.cells(at(M + 3))
    assert [cells[M + minute].left if M + minute in cells else None for minute in range(3)] == [3, None, 1]


def test_the_last_hour_is_counted_from_kept_jobs_at_first_sight(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 50), at(M - 40), at(M - 40, 31), at(M - 10))
    finish(bench.queues, "bull:jobs", at(M - 50), outcome="failed")
    bench.run(NOW)
    cells = bench.cells(NOW)
    assert [cells[M - 40].completed, cells[M - 10].completed, cells[M - 5].completed] == [2, 1, 0]
    assert M - 55 not in cells


def test_a_restart_keeps_what_was_recorded(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 9), at(M - 1))
    bench.run(NOW)
    bench.queues.zremrangebyscore("bull:jobs:completed", at(M - 1), at(M - 1))
    bench.restart()
    bench.run(at(M + 1))
    cells = bench.cells(at(M + 1))
    assert cells[M - 1].completed == 1


def test_ten_minutes_are_summed_when_they_are_over(bench: Bench) -> None:
    start = (M // 10 + 1) * 10
    finish(bench.queues, "bull:jobs", at(start - 30))
    finish(bench.queues, "bull:jobs", at(start - 30), outcome="failed")
    for minute in range(start, start + 10):
        finish(bench.queues, "bull:jobs", at(minute), at(minute, 31))
        bench.run(at(minute + 1))
    tens = history.cells(bench.state, history.TENS, [JOBS], start // 10, start // 10)[JOBS]
    assert tens[start // 10] == FinishedTally(20, 0, 0)


def test_a_week_s_chart_is_made_of_tens(bench: Bench) -> None:
    hour = (M // 60 + 1) * 60
    tape = HistoryWriter(bench.state)
    tape.add([HistoryCells(JOBS, hour, (FinishedTally(1, 0, 2),) * 60)])
    tape.write()
    week = bench.series(168, at(hour + 61))
    assert len(week.points) == 168
    assert week.points[-1] == FinishedPoint(hour * MINUTE, 60, 0, 120)


def test_queues_beyond_the_first_fill_keep_what_they_had(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(bench.queues, "bull:jobs", at(M - 30), at(M - 1))
    bench.run(NOW)
    bench.queues.zremrangebyscore("bull:jobs:completed", at(M - 1), at(M - 1))
    bench.restart()
    monkeypatch.setattr(recorder, "BACKFILL", 0)
    bench.run(at(M + 1))
    monkeypatch.setattr(recorder, "BACKFILL", 1)
    bench.run(at(M + 2))
    assert bench.cells(at(M + 2))[M - 1].completed == 1


def test_history_is_forgotten_some_time_after_its_queue(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 3), at(M - 1))
    bench.run(NOW)
    keys = bench.state.keys("unstall:history:*")
    assert keys
    assert all(7 * 86_400 < bench.state.ttl(key) <= 8 * 86_400 for key in keys)


def test_both_rings_take_forty_kilobytes_at_most(bench: Bench) -> None:
    start = (M // 1446 + 1) * 1446 - 1  # the last cell of the ring, so that all of it is there
    finish(bench.queues, "bull:jobs", *(at(start - minute) for minute in range(59, -1, -1)))
    bench.run(at(start + 1))
    sizes = [bench.state.strlen(key) for key in bench.state.keys("unstall:history:*")]
    assert 20_000 < sum(sizes) <= 40_000


def test_recorded_minutes_become_a_chart(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 9))
    for minute in range(3):
        finish(bench.queues, "bull:jobs", at(M + minute))
        bench.run(at(M + minute + 1))
    bench.queues.delete("bull:jobs:completed")
    series = bench.series(1, at(M + 3))
    assert series.source == "recorded"
    assert len(series.points) == 60
    assert series.points[-1] == FinishedPoint((M + 2) * MINUTE, 1, 0, 0)
    assert series.points[0].completed is None
    assert "gaps" in series.note.lower()


def test_the_workers_own_metrics_come_first(bench: Bench) -> None:
    bench.queues.hset("bull:jobs:metrics:completed", mapping={"count": 9, "prevTS": at(M - 1), "prevCount": 6})
    bench.queues.rpush("bull:jobs:metrics:completed:data", 4, 2)
    series = bench.series(1, NOW)
    assert series.source == "library"
    assert [point.completed for point in series.points[-3:]] == [2, 4, 3]
    assert "workers" in series.note


def test_where_metrics_miss_something_the_record_fills_in(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 9), at(M - 1), at(M - 1), at(M - 1))
    finish(bench.queues, "bull:jobs", at(M - 9), at(M - 1), outcome="failed")
    bench.run(NOW)
    bench.queues.hset("bull:jobs:metrics:completed", mapping={"count": 3, "prevTS": at(M - 1), "prevCount": 0})
    series = bench.series(1, NOW)
    assert (series.points[-1].completed, series.points[-1].failed) == (3, 1)
    assert series.points[-2].completed is not None
    assert "filled from" in series.note


def test_kept_jobs_tell_of_the_time_before_the_first_record(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 1000), at(M - 500), at(M - 500), at(M - 2))
    series = bench.series(24, NOW)
    assert series.source == "kept"
    assert sum(point.completed or 0 for point in series.points) == 3
    assert series.points[0].completed is None
    assert all(point.failed is None for point in series.points)


def test_a_queue_that_removes_its_jobs_says_what_left_means(bench: Bench) -> None:
    add(bench.queues, "bull:jobs", "a", "b")
    bench.run(at(M))
    bench.queues.rpop("bull:jobs:wait")
    bench.run(at(M + 1))
    series = bench.series(1, at(M + 1))
    assert series.points[-1] == FinishedPoint(M * MINUTE, None, None, 1)
    assert "left" in series.note


def test_a_chart_of_nothing_says_so(bench: Bench) -> None:
    series = bench.series(12, NOW)
    assert series.source == ""
    assert series.note.startswith("No data yet")
    assert {point.completed for point in series.points} == {None}


def test_a_dead_queue_store_leaves_the_record(tmp_path: Path, state_store: Store, serve: Callable[..., Store]) -> None:
    mortal = serve()
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": mortal}))
    one = Bench(registry, mortal, state_store)
    finish(one.queues, "bull:jobs", at(M - 9), at(M - 1))
    one.run(NOW)
    mortal.stop()
    series = one.series(1, NOW)
    registry.close()
    assert series.points[-1].completed == 1
    assert "could not be read" in series.note


def test_a_dead_state_store_leaves_the_kept_jobs(tmp_path: Path, valkey: Store, serve: Callable[..., Store]) -> None:
    mortal = serve()
    registry = ConnectionRegistry(config_of(tmp_path, mortal, {"main": valkey}))
    mortal.stop()
    finish(valkey.client, "bull:jobs", at(M - 9), at(M - 1))
    series = history.series(JOBS, BULLMQ, 1, now=NOW, stores=registry)
    registry.close()
    assert series.points[-1].completed == 1
    assert "could not be read" in series.note


def test_recorded_minutes_reach_the_sparkline(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 3), at(M - 1))
    bench.run(NOW)
    roster = KnownQueues()
    roster.replace("main", [KnownQueue(JOBS, BULLMQ, NOW, NOW)])
    collector = Collector(bench.registry, roster)
    rates = collector.look(NOW).queues[0].rates
    collector.close()
    assert rates.source == "recorded"
    assert rates.completed[:2] == (1, 0)


@pytest.mark.django_db
def test_pruning_forgets_deployments_that_are_no_longer_configured(bench: Bench) -> None:
    finish(bench.queues, "bull:jobs", at(M - 3), at(M - 1))
    bench.run(NOW)
    kept = sorted(bench.state.keys())
    bench.state.hset("unstall:found:old", "bull:jobs", "[]")
    bench.state.set("unstall:history:1m:old/bull:jobs", b"x")
    bench.state.set("unrelated", b"x")
    assert Pruner(bench.registry).run(NOW).count == 2
    assert sorted(bench.state.keys()) == sorted([*kept, b"unrelated"])
