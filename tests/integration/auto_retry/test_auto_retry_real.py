"""Auto-retries with real workers of the real libraries: an upstream that comes back, a scheduler that dies."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import redis

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot
from recovery.domain.safety_limits.circuit_breaker import ENOUGH, BreakerStage
from recovery.models import ScanRun
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import BREAKER, SafetyLimitScope
from recovery.scanners.auto_retry.scanner import AutoRetry
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.stores.sql import database_clock
from tests.support.acting import Bench
from tests.support.processes.fleet import Fleet, Queue
from tests.support.processes.processes import spawn
from tests.support.processes.schedulers import migrate
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.stores import Store
from tests.support.stuck.auto_retrying import ARMED, AutoRetrying, auto_retrying, counted, done
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db

DOWN = "connect ECONNREFUSED 10.0.0.7:5432"
FAILED = 60
SOON = 30.0
PAUSE_OVER = 7 * 60_000  # ms: a breaker's first pause, with its jitter


class Upstream(AutoRetrying):
    """The scanner over a real queue. Its clock is the database's, set forward where a test waits for no pause."""

    def __init__(self, queues: Store, state: Store, jobs: Queue) -> None:
        super().__init__(queues, state)
        self.jobs, self.base, self.ref = jobs, jobs.base, QueueRef("main", jobs.base)
        self.ahead = 0
        self.roster = KnownQueues()

    def begin(self) -> AutoRetry:
        scanner = super().begin()
        scanner.now = lambda: database_clock.now() + self.ahead
        scanner.wait = scanner._stopping.wait
        return scanner

    def look(self, _flavour: object = None) -> Snapshot:
        stores = self.scanner.registry
        Discoverer(stores, self.roster, remembers=False).run(database_clock.now())
        collector = Collector(stores, self.roster)
        try:
            snapshot = collector.look(database_clock.now())
        finally:
            collector.close()
        self.forget()
        return snapshot

    def stages(self) -> dict[str, BreakerStage]:
        now = self.scanner.now()
        return {
            one.signature: one.stage(now)
            for one in limit_rows.values_by_key(BREAKER, SafetyLimitScope.of(self.ref)).values()
        }


@pytest.fixture(params=["bullmq6", "bullmq5", "bullmq3", "bull4"])
def jobs(request: pytest.FixtureRequest, libraries: Fleet, valkey: Store) -> Queue:
    return libraries[request.param].queue(valkey, f"up-{request.param}")


@pytest.fixture
def upstream(
    jobs: Queue, valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Upstream]:
    with auto_retrying(valkey, state_store, tmp_path, monkeypatch):
        yield Upstream(valkey, state_store, jobs)


@pytest.mark.parametrize("removes", [False, True])
def test_a_failing_upstream_is_left_alone_but_for_a_probe_and_goes_on_when_it_works_again(
    upstream: Upstream, removes: bool
) -> None:
    jobs = upstream.jobs
    ids = set(jobs.add_many(FAILED, "call", {"reason": DOWN}, removeOnComplete=removes))
    worker = jobs.work("fail")
    until(lambda: jobs.counts()["failed"] == FAILED, SOON, "all fail")
    counted(upstream.client, jobs.base, database_clock.now())
    upstream.ahead = 60_000  # their own pause is over

    first = upstream.run()
    assert ENOUGH <= len(done(first)) < 2 * ENOUGH, "twenty, and what went while they were judged"
    (said,) = [hold for hold in first.holds if "for “connect ECONNREFUSED #" in hold]
    assert "Open for" in said
    assert DOWN in said, "as a job said it"
    until(lambda: jobs.counts()["failed"] == FAILED, SOON)
    assert done(upstream.run()) == [], "and that is that"

    worker.close()
    upstream.ahead += PAUSE_OVER
    jobs.work("ok")
    probe = upstream.run()
    assert len(done(probe)) >= 1
    until(lambda: upstream.follow() == 0, SOON, "the probe has ended")
    assert set(upstream.stages().values()) == {BreakerStage.CLOSED}
    if len(done(probe)) == 1:  # it ended only when the run was over
        assert ScanRun.objects.filter(status="waiting", base=upstream.ref.slug).exists()

    def all_went() -> bool:
        upstream.ahead += 60_000
        upstream.run()
        upstream.follow()
        return jobs.counts()["failed"] == 0

    until(all_went, 4 * SOON, "the rest is retried")
    if not removes:
        assert {job["id"] for job in jobs.jobs("completed")} == ids


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("jobs", ["bullmq5"], indirect=True)
def test_no_minute_sees_more_than_the_budget_in_the_queues_own_stream(upstream: Upstream) -> None:
    """In real time, with a worker that completes what comes: more than three minutes' worth."""
    jobs = upstream.jobs
    jobs.add_many(200, "call", {"reason": DOWN})
    worker = jobs.work("fail")
    until(lambda: jobs.counts()["failed"] == 200, SOON, "all fail")
    worker.close()
    jobs.work("ok")
    counted(upstream.client, jobs.base, database_clock.now(), 36_000)
    upstream.ahead = 60_000
    upstream.run()
    times = [at for at, _ in _sent_off(upstream.client, jobs.base)]
    assert len(times) == 200
    assert max(sum(at <= other < at + 60_000 for other in times) for at in times) <= 60 * 1.01


# -- a scheduler that is killed

_RUNS = """
import sys, time
import django
django.setup()
from recovery.stores.registry import registry
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.scanners.auto_retry import queue_run
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.auto_retry.scanner import AutoRetry
from recovery.scanners.discovery.known_queues import KnownQueues
queue_run.STEP = 5  # small steps: there is much to be cut off
stores, roster = registry(), KnownQueues()
discoverer, collector = Discoverer(stores, roster, remembers=False), Collector(stores, roster)
scanner = AutoRetry(stores, lambda: collector.newest, LeaderToken(int(sys.argv[1]), always_leader), lambda _: ())
while True:
    now = int(time.time() * 1000)
    discoverer.run(now)
    collector.look(now)
    scanner.run(now)
    scanner.follow(now)
"""


def test_a_scheduler_that_is_killed_sends_nothing_off_twice(
    libraries: Fleet, valkey: Store, state_store: Store, tmp_path: Path
) -> None:
    """With real processes and SIGKILL, again and again: each job runs once more, and no past counts less than that."""
    bench = Bench(valkey, state_store)
    bench.client.hset("bull:mail:meta", mapping={"version": "bullmq:5.81.5", "opts.maxLenEvents": "100000"})
    ids = [f"job{number}" for number in range(120)]
    bench.failed(*ids, at=now_ms() - 3_600_000)
    counted(bench.client, "bull:mail", now_ms())
    (tmp_path / "unstall.toml").write_text(ARMED)
    environ = environ_of(tmp_path, {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url})
    environ |= {"DJANGO_SETTINGS_MODULE": "dashboard.settings", "UNSTALL_CONFIG": str(tmp_path / "unstall.toml")}
    migrate(tmp_path, environ)
    libraries["bullmq5"].queue(valkey, "mail").work("ok")
    for epoch, share in enumerate((0.1, 0.3, 0.5, 0.7), 1):
        _kill_at(environ, tmp_path, epoch, partial(_have_gone, bench, share * len(ids)))
    _kill_at(environ, tmp_path, 9, lambda: not bench.client.zcard("bull:mail:failed"))
    sent = Counter(id for _, id in _sent_off(bench.client, bench.base))
    assert sent == dict.fromkeys(ids, 1)
    with closing(sqlite3.connect(tmp_path / "unstall.sqlite3", timeout=10)) as database:
        query = "SELECT key, state FROM recovery_brakestate WHERE kind = 'past'"
        made = {key: json.loads(state)["made"] for key, state in database.execute(query)}
    assert {id: made.get(id, 0) >= count for id, count in sent.items()} == dict.fromkeys(ids, True)


def _kill_at(environ: dict[str, str], directory: Path, epoch: int, condition: Callable[[], bool]) -> None:
    with (directory / "log").open("ab") as log:
        command = [sys.executable, "-c", _RUNS, str(epoch)]
        process = spawn(command, stdout=log, stderr=log, environ=environ, directory=ROOT)
        try:
            until(lambda: condition() or process.poll() is not None, 2 * SOON, "it has come so far")
            assert process.poll() is None, (directory / "log").read_text()
        finally:
            process.kill()
            process.wait(10)


def _have_gone(bench: Bench, count: float) -> bool:
    return len(_sent_off(bench.client, bench.base)) >= count


def _sent_off(client: redis.Redis, base: str) -> list[tuple[int, str]]:
    """When which job went from failed to wait, as the queue's own events tell."""
    return [
        (int(number.partition(b"-")[0]), event[b"jobId"].decode())
        for number, event in client.xrange(f"{base}:events")
        if event[b"event"] == b"waiting" and event.get(b"prev") == b"failed"
    ]
