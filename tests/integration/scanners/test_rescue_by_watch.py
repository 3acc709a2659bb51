"""The same night with nobody awake: real workers are killed, and the orphan-watch puts their jobs right by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from recovery import shared_clock
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.stuck.types import StuckJob, VerdictKind
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners import last_runs
from recovery.reads.stuck import inbox_store
from tests.support.processes.fleet import Fleet, Queue, Worker
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.stuck.watching import bullmq, now_ms
from tests.support.waiting import until

SOON = 60.0  # seconds, on a machine that has other things to do
NEVER_MS = 600_000  # of a lock: longer than any test
STALLED_MS = 1_000  # whoever could run the library's own check is dead, or the lock has not ended
GENERATIONS = ("bullmq6", "bull4")  # proven at once, and after two looks
SETTINGS = """
[thresholds]
stalled_interval = 1

[[policies]]
queue = "bull:swift"
orphan_watch = { mode = "enabled", release = true }

[[policies]]
queue = "bull:paused"
orphan_watch = { mode = "enabled" }

[[policies]]
queue = "bull:toxic"
orphan_watch = { mode = "enabled", release = true }
""" + "".join(
    f'[[policies]]\nqueue = "bull:armed-{library}"\norphan_watch = {{ mode = "enabled" }}\n' for library in GENERATIONS
)


@pytest.fixture(scope="module")
def night() -> Iterator[Site]:
    """The queues of BullMQ are there before it starts, so that no test waits for the next search for queues."""
    with Store() as queues, Store() as state:
        for name in ("armed-bullmq6", "swift", "toxic", "calm", "paused"):
            bullmq(queues.client, f"bull:{name}")
        with Site(queues, state, settings=SETTINGS) as site:
            yield site


@pytest.mark.parametrize("library", GENERATIONS)
def test_a_killed_workers_job_runs_again_and_nobody_did_it(night: Site, libraries: Fleet, library: str) -> None:
    jobs = libraries[library].queue(night.queues, f"armed-{library}")
    holder = _work(jobs, "hang", lockDuration=2_000)
    job = jobs.add("digest")
    until(lambda: jobs.counts()["active"] == 1, what="the worker has it")
    holder.kill()
    until(lambda: jobs.counts()["waiting"] == 1, SOON, "it was put back to wait")
    live = _work(jobs, "ok")
    until(lambda: live.events("completed") == [("completed", job)], SOON)
    policy = f"Enabled, at most 500 jobs per run (in the file, for {jobs.base})."
    assert until(lambda: _acts(night, jobs), SOON) == [("scanner", "orphan-watch", "requeue", policy)]
    until(lambda: _resolved_by(night, jobs) == ["scanner"], SOON, "the incident is closed by it")


def test_a_named_workers_job_does_not_wait_for_its_lock(night: Site, libraries: Fleet) -> None:
    jobs = libraries["bullmq5"].queue(night.queues, "swift")
    holder = _work(jobs, "hang", name="one", lockDuration=NEVER_MS)
    _work(jobs, "hang", name="two", lockDuration=NEVER_MS)
    jobs.add("a")
    jobs.add("b")
    until(lambda: jobs.counts()["active"] == 2, what="each has one")
    (mine,) = [job for job in ("1", "2") if night.queues.client.hget(jobs.key(job), "pb") == b"one"]
    _wait_until_watched(night, jobs, "one", "two")
    holder.kill()
    until(lambda: jobs.counts()["waiting"] == 1, SOON, "it was put back to wait, long before its lock ends")
    assert night.queues.client.lrange(jobs.key("wait"), 0, -1) == [mine.encode()]
    assert jobs.counts()["active"] == 1, "the one whose worker lives is left alone"
    assert [told[2] for told in until(lambda: _acts(night, jobs), SOON)] == ["release"]


def test_a_quarantined_job_takes_three_workers_and_then_waits_for_a_person(night: Site, libraries: Fleet) -> None:
    jobs = libraries["bullmq5"].queue(night.queues, "toxic")
    jobs.add("toxic")
    for number in (1, 2, 3):
        victim = _work(jobs, "hang", name=f"w{number}", lockDuration=NEVER_MS)
        until(lambda: jobs.counts()["active"] == 1, SOON, f"worker {number} has it")
        _wait_until_watched(night, jobs, f"w{number}")
        victim.kill()
        if number < 3:
            until(lambda: jobs.counts()["waiting"] == 1, SOON, f"it came back from worker {number}")
    until(
        lambda: (found := _verdict(night, jobs)) and found.verdict.is_quarantined, SOON, "it is known to be quarantined"
    )
    _look_thrice(night)
    assert jobs.counts()["active"] == 1
    assert len(_acts(night, jobs)) == 2


def test_a_watch_that_only_observes_does_nothing(night: Site, libraries: Fleet) -> None:
    jobs = libraries["bullmq5"].queue(night.queues, "calm")
    holder = _work(jobs, "hang", lockDuration=1_000)
    jobs.add("digest")
    until(lambda: jobs.counts()["active"] == 1, what="the worker has it")
    holder.kill()
    until(lambda: (found := _verdict(night, jobs)) and found.verdict.kind is VerdictKind.ABANDONED, SOON)
    _look_thrice(night)
    assert jobs.counts()["active"] == 1
    assert _acts(night, jobs) == []


def test_a_paused_watch_looks_on_and_does_nothing_until_it_may_go_on(night: Site, libraries: Fleet) -> None:
    jobs = libraries["bullmq5"].queue(night.queues, "paused")
    night.web.change("INSERT INTO recovery_scannerpause VALUES ('orphan-watch', 'ada', 1, 'a migration')")
    try:
        holder = _work(jobs, "hang", lockDuration=1_000)
        jobs.add("digest")
        until(lambda: jobs.counts()["active"] == 1, what="the worker has it")
        holder.kill()
        until(lambda: (found := _verdict(night, jobs)) and found.verdict.kind is VerdictKind.ABANDONED, SOON)
        _look_thrice(night)
        assert jobs.counts()["active"] == 1
        assert _acts(night, jobs) == []
    finally:
        night.web.change("DELETE FROM recovery_scannerpause")
    until(lambda: jobs.counts()["waiting"] == 1, SOON, "it was put back to wait")


def test_a_run_that_is_ordered_begins_by_itself_and_is_kept(night: Site) -> None:
    night.web.change(
        "INSERT INTO recovery_scanrun (scanner, status, dry_run, deployment, base, actor, reason, wanted_at, looked, "
        "found, acted, refused, holds, trouble) VALUES ('stale-check', 'waiting', 1, '', '', '', 'now', ?, 0, 0, 0, 0, "
        "'[]', '')",
        shared_clock.now(),
    )
    told = "SELECT status, epoch > 0, started_at >= wanted_at FROM recovery_scanrun WHERE reason = 'now'"
    until(lambda: night.web.ask(told) == [("ended", 1, 1)], SOON, "it has run")


def test_the_health_of_a_web_process_tells_when_each_scanner_last_succeeded(night: Site) -> None:
    def told() -> dict[str, Any]:
        scanners: dict[str, Any] = json.loads(night.web.get("/healthz").body)["scanners"] or {}
        return scanners

    names = {"collect", "discover", "orphan-watch", "stale-check"}
    found = until(lambda: (now := told()).keys() >= names and now, SOON)
    assert 0 <= found["collect"]["succeeded_ms_ago"] < SOON * 1000


def _work(jobs: Queue, processor: str, **options: Any) -> Worker:
    return jobs.work(processor, apart=True, stalledInterval=STALLED_MS, **options)


def _wait_until_watched(night: Site, jobs: Queue, *workers: str) -> None:
    """Until a look has found the jobs held and known these workers as connected, so that it will notice who goes."""
    until(lambda: set(workers) <= _connected(night, jobs), SOON, "a snapshot has the workers")
    since = now_ms()
    until(lambda: _looked_at(night) > since and _held(night, jobs) == len(workers), SOON, "a later look has the jobs")


def _connected(night: Site, jobs: Queue) -> set[str]:
    snapshot = snapshot_store.fetch(night.state.client)
    return {worker.name for worker in snapshot.workers if worker.queue.base == jobs.base} if snapshot else set()


def _held(night: Site, jobs: Queue) -> int:
    inbox = inbox_store.fetch(night.state.client)
    tally = inbox.tally(QueueRef("main", jobs.base)) if inbox else None
    return tally.kinds.get(VerdictKind.RUNNING, 0) if tally else 0


def _looked_at(night: Site) -> int:
    pulse = last_runs.read(night.state.client).get(ScannerKind.ORPHAN_WATCH)
    return pulse.started_at if pulse else 0


def _look_thrice(night: Site) -> None:
    before = _looked_at(night)
    until(lambda: _looked_at(night) > before + 3_000, SOON, "the watch has looked again and again")


def _verdict(night: Site, jobs: Queue) -> StuckJob | None:
    inbox = inbox_store.fetch(night.state.client)
    rows = inbox.rows if inbox else ()
    return next((row for row in rows if row.job.queue.base == jobs.base), None)


def _acts(night: Site, jobs: Queue) -> list[tuple[str, ...]]:
    """What was done to the queue: kind and name of whoever did it, act and reason."""
    found = (
        "SELECT actor_kind, actor, act, reason FROM recovery_auditentry WHERE base = ? AND phase = 'outcome' ORDER BY 1"
    )
    return list(night.web.ask(found, jobs.base))


def _resolved_by(night: Site, jobs: Queue) -> list[str]:
    found = "SELECT resolved_by FROM recovery_incident WHERE base = ? AND closed_at IS NOT NULL"
    return [row[0] for row in night.web.ask(found, jobs.base)]
