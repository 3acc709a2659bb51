"""Each library really runs, wherever it may: what the readers are compared with is true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes.driver import NotInLibrary
from tests.support.processes.fleet import Library, Queue
from tests.support.stores.cluster import Cluster
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store
from tests.support.waiting import until


@pytest.fixture
def queue(valkey: Store, library: Library) -> Queue:
    return library.queue(valkey)


def test_an_added_job_waits(queue: Queue) -> None:
    job = queue.add("send", {"to": "me"}, attempts=3)
    seen = queue.job(job)
    assert seen is not None
    assert (seen["id"], seen["name"], seen["data"], seen["state"]) == (job, "send", {"to": "me"}, "waiting")
    assert queue.counts()["waiting"] == 1


def test_many_jobs_are_added_in_order(queue: Queue) -> None:
    jobs = queue.add_many(2500, "bulk")
    assert len(set(jobs)) == 2500
    assert queue.counts()["waiting"] == 2500


def test_a_worker_completes_a_job(queue: Queue) -> None:
    job = queue.add("send", {"result": {"sent": True}})
    worker = queue.work("ok")
    until(lambda: queue.counts()["completed"] == 1)
    seen = queue.job(job)
    assert seen is not None
    assert seen["returnvalue"] == {"sent": True}
    until(lambda: ("completed", job) in worker.events())


def test_a_worker_fails_a_job(queue: Queue) -> None:
    job = queue.add("send", {"reason": "no such host"})
    queue.work("fail")
    until(lambda: queue.counts()["failed"] == 1)
    seen = queue.job(job)
    assert seen is not None
    assert seen["failedReason"] == "no such host"
    assert "no such host" in seen["stacktrace"][0]


def test_a_delayed_job_is_not_waiting(queue: Queue) -> None:
    queue.add("later", delay=60_000)
    counts = queue.counts()
    assert (counts["delayed"], counts["waiting"]) == (1, 0)


def test_the_most_urgent_job_runs_first(queue: Queue) -> None:
    slow, quick = queue.add("slow", priority=9), queue.add("quick", priority=1)
    worker = queue.work("ok")
    until(lambda: len(worker.events("completed")) == 2)
    assert [job for _event, job in worker.events("completed")] == [quick, slow]


def test_a_prioritized_job_is_counted_where_the_generation_keeps_it(queue: Queue) -> None:
    queue.add("urgent", priority=5)
    has_own_state = not queue.library.is_bull and queue.library.major >= 4
    counts = queue.counts()
    assert counts["waiting"] == (0 if has_own_state else 1)
    assert counts.get("prioritized", 0) == (1 if has_own_state else 0)


def test_a_repeated_job_has_its_next_run_delayed(queue: Queue) -> None:
    queue.schedule("nightly", {"pattern": "0 3 * * *", "tz": "Europe/Berlin"}, "tick")
    queue.schedule("often", {"every": 3_600_000}, "tock")
    assert {row["name"] for row in queue.schedules()} == {"tick", "tock"}
    counts = queue.counts()
    assert counts["delayed"] + counts["waiting"] == 2


def test_a_paused_queue_keeps_its_jobs(queue: Queue) -> None:
    queue.pause()
    queue.add("waits")
    worker = queue.work("ok")
    assert queue.is_paused()
    queue.resume()
    until(lambda: queue.counts()["completed"] == 1)
    assert worker.events("failed") == []


def test_a_job_logs_and_reports_progress(queue: Queue) -> None:
    job = queue.add("talk", {"lines": 4})
    worker = queue.work("log")
    until(lambda: queue.counts()["completed"] == 1)
    assert queue.logs(job)["logs"] == ["line 1", "line 2", "line 3", "line 4"]
    worker.close()
    job = queue.add("talk", {"progress": 70})
    queue.work("progress")
    until(lambda: queue.counts()["completed"] == 2)
    seen = queue.job(job)
    assert seen is not None
    assert seen["progress"] == 70


def test_metrics_are_kept_when_the_worker_is_told_to(queue: Queue) -> None:
    queue.add("counted")
    queue.work("ok", metrics={"maxDataPoints": 60})
    until(lambda: queue.counts()["completed"] == 1)
    if queue.library.name == "bull3":
        with pytest.raises(NotInLibrary):
            queue.metrics("completed")
    else:
        assert queue.metrics("completed")["meta"]["count"] == 1


def test_a_worker_is_seen_by_the_library_until_it_closes(queue: Queue) -> None:
    before = len(queue.workers())  # Bull 3 names every connection, so the one that asks counts itself
    worker = queue.work("ok")
    until(lambda: len(queue.workers()) > before)
    worker.close()
    until(lambda: len(queue.workers()) == before)


def test_a_flow_makes_its_parent_wait_for_its_children(queue: Queue) -> None:
    if queue.library.is_bull:
        with pytest.raises(NotInLibrary):
            queue.add_flow([])
        return
    tree = queue.add_flow([{"name": "one"}, {"name": "two"}], "whole")
    assert len(tree["children"]) == 2
    assert queue.counts()["waiting-children"] == 1
    assert len(queue.dependencies(tree["id"])["unprocessed"]) == 2


def test_a_killed_worker_leaves_its_job_active_and_its_lock_running_out(queue: Queue, valkey: Store) -> None:
    job = queue.add("doomed")
    watchers = len(queue.workers())
    worker = queue.work("hang", apart=True, lockDuration=1000)
    until(lambda: queue.counts()["active"] == 1)
    lock = queue.key(job, "lock")
    until(lambda: valkey.client.exists(lock))
    worker.kill()
    until(lambda: not valkey.client.exists(lock), what="nobody renews the lock")
    assert queue.counts()["active"] == 1
    assert len(queue.workers()) == watchers


def test_a_released_job_completes(queue: Queue) -> None:
    queue.add("held", {"result": "at last"})
    worker = queue.work("hang")
    until(worker.release)
    until(lambda: queue.counts()["completed"] == 1)


def test_a_suspended_worker_stays_connected_and_renews_nothing(queue: Queue, valkey: Store) -> None:
    job = queue.add("frozen")
    worker = queue.work("hang", apart=True, lockDuration=1000)
    until(lambda: valkey.client.exists(queue.key(job, "lock")))
    seen = len(queue.workers())
    worker.pause()
    until(lambda: not valkey.client.exists(queue.key(job, "lock")))
    assert len(queue.workers()) == seen


def test_an_obliterated_queue_is_gone(queue: Queue) -> None:
    queue.add("gone")
    queue.pause()
    queue.obliterate()
    assert sum(queue.counts().values()) == 0


def test_each_library_runs_on_both_stores(library: Library, store: Store) -> None:
    _runs(library.queue(store))


def test_each_library_runs_behind_sentinel(library: Library, sentinel: Sentinel) -> None:
    _runs(library.queue(sentinel))


def test_each_library_runs_in_a_cluster(library: Library, cluster: Cluster) -> None:
    _runs(library.queue(cluster, prefix="{bull}"))


def test_each_library_runs_over_tls(library: Library, serve: Callable[..., Store], certificates: Path) -> None:
    _runs(library.queue(serve("redis", tls=certificates)))


def _runs(queue: Queue) -> None:
    queue.add("send")
    queue.work("ok")
    until(lambda: queue.counts()["completed"] == 1)
