"""The sums behind the counters: they grow by each closed minute, whoever leads, and never fall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.metrics.queue_totals import QueueTotal
from recovery.domain.queues.time_series import DAY, MINUTE, FinishedTally
from recovery.domain.queues.types import (
    DeploymentSample,
    JobCounts,
    LibraryVersion,
    QueueLibrary,
    QueueSample,
    Rates,
    Snapshot,
)
from recovery.metrics import queue_totals_store
from recovery.metrics.queue_totals_counter import KEPT, QueueTotalsCounter
from recovery.scanners.collect.recorder import HistoryRecorder
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store
from tests.support.stuck.watching import NOW, config_of, finish

BASE = "bull:jobs"
JOBS = QueueRef("main", BASE)
M = NOW // MINUTE  # the minute that is open at NOW


class Bench:
    """A leader's recorder over real stores. `counts`: the workers keep the library's metrics."""

    def __init__(self, registry: ConnectionRegistry, queues: Store, state: Store) -> None:
        self.registry = registry
        self.queues = queues.client
        self.state = state
        self.counts = False
        self.follow()

    def follow(self) -> None:
        """Another one leads from now on."""
        self.recorder = HistoryRecorder(self.registry, lambda: self.snapshot)

    def close(self, minute: int, *, error: str = "") -> QueueTotal | None:
        """This minute has just closed."""
        now = (minute + 1) * MINUTE + 4_000
        self.snapshot = self._snapshot(now, error)
        self.recorder.run(now)
        return self.total

    @property
    def total(self) -> QueueTotal | None:
        return queue_totals_store.decode_totals(self.state.client.hgetall(state_keys.TOTALS)).get(JOBS)  # type: ignore[arg-type]

    def _snapshot(self, now: int, error: str) -> Snapshot:
        pipeline = self.queues.pipeline()
        pipeline.llen(f"{BASE}:wait").zcard(f"{BASE}:completed").zcard(f"{BASE}:failed").get(f"{BASE}:id")
        waiting, completed, failed, added = pipeline.execute()
        sample = QueueSample(
            JOBS,
            LibraryVersion(QueueLibrary.BULLMQ, 5),
            JobCounts(waiting, 0, 0, 0, 0, completed, failed, 0),
            rates=Rates(source="library" if self.counts else ""),
            added=int(added or 0),
        )
        return Snapshot(1, now, (DeploymentSample("main", "redis://h", now, error=error),), (sample,))


@pytest.fixture
def bench(tmp_path: Path, valkey: Store, state_store: Store) -> Iterator[Bench]:
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": valkey}))
    # Two jobs of long ago: from then on the kept ones are known to be all there were.
    finish(valkey.client, BASE, at(M - 90))
    finish(valkey.client, BASE, at(M - 90), outcome="failed")
    yield Bench(registry, valkey, state_store)
    registry.close()


def at(minute: int, second: int = 30) -> int:
    return minute * MINUTE + second * 1000


def test_each_closed_minute_is_added_once(bench: Bench) -> None:
    finish(bench.queues, BASE, at(M), at(M), at(M + 1))
    finish(bench.queues, BASE, at(M + 1), outcome="failed")
    assert bench.close(M) == QueueTotal(M, 2, 0, None)
    assert bench.close(M) == QueueTotal(M, 2, 0, None)
    assert bench.close(M + 1) == QueueTotal(M + 1, 3, 1, 0)


def test_jobs_that_are_removed_later_stay_in_the_sum(bench: Bench) -> None:
    finish(bench.queues, BASE, at(M), at(M), at(M))
    bench.close(M)
    bench.queues.zremrangebyrank(f"{BASE}:completed", 1, -1)
    assert bench.close(M + 1) == QueueTotal(M + 1, 3, 0, 3)
    bench.queues.delete(*bench.queues.keys(f"{BASE}:*"))
    after = bench.close(M + 2)
    assert after is not None
    assert (after.completed, after.failed) == (3, 0)


def test_a_minute_that_nobody_can_tell_leaves_the_sum_as_it_was(bench: Bench) -> None:
    finish(bench.queues, BASE, at(M), at(M + 1))
    bench.close(M)
    assert bench.close(M + 1, error="connection refused") == QueueTotal(M, 1, 0, None)


def test_where_the_workers_count_the_larger_number_is_taken(bench: Bench) -> None:
    bench.counts = True
    bench.queues.hset(f"{BASE}:metrics:completed", mapping={"count": 9, "prevTS": at(M), "prevCount": 2})
    finish(bench.queues, BASE, at(M), outcome="failed")
    bench.queues.hset(f"{BASE}:metrics:failed", mapping={"count": 4, "prevTS": at(M - 5), "prevCount": 4})
    assert bench.close(M) == QueueTotal(M, 7, 1, None)  # a stalled job that failed is in no metrics of the library


def test_minutes_without_a_scheduler_are_made_up_from_what_the_workers_counted(bench: Bench) -> None:
    bench.counts = True
    bench.queues.hset(f"{BASE}:metrics:completed", mapping={"count": 5, "prevTS": at(M), "prevCount": 0})
    assert bench.close(M) == QueueTotal(M, 5, 0, None)
    bench.queues.hset(f"{BASE}:metrics:completed", mapping={"count": 30, "prevTS": at(M + 4), "prevCount": 28})
    bench.queues.rpush(f"{BASE}:metrics:completed:data", 11, 0, 12, 5)  # the minutes before the last, newest first
    bench.follow()
    after = bench.close(M + 4)
    assert after is not None
    assert after.completed == 5 + 12 + 0 + 11 + 2


def test_a_leader_whose_clock_is_behind_sets_nothing_back(bench: Bench) -> None:
    finish(bench.queues, BASE, at(M), at(M + 1))
    bench.close(M)
    newest = bench.close(M + 1)
    bench.follow()
    assert bench.close(M) == newest
    assert bench.close(M + 1) == newest


def test_a_minute_whose_sum_could_not_be_kept_is_added_with_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(bench.queues, BASE, at(M), at(M + 1), at(M + 1), at(M + 2))
    bench.close(M)
    with monkeypatch.context() as patch:
        patch.setattr(QueueTotalsCounter, "add", lambda *_: 0)
        bench.close(M + 1)
    assert bench.close(M + 2) == QueueTotal(M + 2, 4, 0, 0)


def test_of_two_that_believe_to_lead_one_adds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(bench.queues, BASE, at(M), at(M))
    bench.close(M - 1)
    other = QueueTotalsCounter(bench.registry)
    counted, now = {JOBS: FinishedTally(2, 0, None)}, (M + 1) * MINUTE + 4_000
    grown = QueueTotalsCounter._grown

    def meanwhile(self: QueueTotalsCounter, *arguments: object) -> object:
        """The other one is through before this one writes."""
        if self is not other:
            other.add(snapshot, counted, now)
        return grown(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(QueueTotalsCounter, "_grown", meanwhile)
    snapshot = bench._snapshot(now, "")
    assert QueueTotalsCounter(bench.registry).add(snapshot, counted, now) == 0
    assert bench.total == QueueTotal(M, 2, 0, None)


def test_a_state_store_that_comes_back_empty_sets_nothing_back(bench: Bench) -> None:
    finish(bench.queues, BASE, at(M), at(M), at(M + 1))
    bench.close(M)
    bench.state.flush()
    assert bench.close(M + 1) == QueueTotal(M + 1, 3, 0, 0)


def test_a_queue_that_is_gone_is_forgotten_when_its_history_is(bench: Bench) -> None:
    gone = QueueRef("main", "bull:gone\udcff")
    bench.state.client.hset(state_keys.TOTALS, queue_totals_store.field(gone), QueueTotal(M - KEPT + 2, 1).encode())
    bench.close(M)
    assert bench.state.client.hexists(state_keys.TOTALS, queue_totals_store.field(gone))
    bench.close(M + 2)
    assert not bench.state.client.hexists(state_keys.TOTALS, queue_totals_store.field(gone))


def test_a_pause_of_months_is_read_a_day_back_at_most(bench: Bench) -> None:
    bench.counts = True
    bench.state.client.hset(
        state_keys.TOTALS, queue_totals_store.field(JOBS), QueueTotal(M - 100 * DAY, 7, 0, 0).encode()
    )
    bench.queues.hset(f"{BASE}:metrics:completed", mapping={"count": 5_000, "prevTS": at(M), "prevCount": 5_000})
    bench.queues.rpush(f"{BASE}:metrics:completed:data", *[1] * 3 * DAY)
    after = bench.close(M)
    assert after is not None
    assert after.completed == 7 + DAY - 1


def test_whatever_happens_to_queues_leaders_and_stores_no_sum_ever_falls(bench: Bench) -> None:
    random, known = Random(7), QueueTotal(0)
    for minute in range(M, M + 120):
        match random.randrange(8):
            case 0:
                bench.queues.delete(*bench.queues.keys(f"{BASE}:*"), "-")
            case 1:
                bench.follow()
            case 2:
                bench.queues.zremrangebyrank(f"{BASE}:completed", 0, random.randrange(9))
            case 3:
                bench.state.client.delete(state_keys.SNAPSHOT, *bench.state.client.keys("unstall:history:*"))
            case 4:
                bench.counts = not bench.counts
            case _:
                finish(bench.queues, BASE, *[at(minute)] * random.randrange(1, 5))
                bench.queues.incr(f"{BASE}:id", random.randrange(3))
        total = bench.close(minute, error="away" if random.randrange(9) == 0 else "")
        if total:
            pairs = zip(
                (known.completed, known.failed, known.left), (total.completed, total.failed, total.left), strict=True
            )
            assert all((after or 0) >= (before or 0) for before, after in pairs), minute
            known = total
    assert (known.completed or 0) > 50
