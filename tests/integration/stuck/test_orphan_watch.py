"""The orphan-watch against the real libraries: workers that die, stop and come back."""

from __future__ import annotations

import pytest

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.types import LossCause, VerdictKind
from recovery.models import BulkRun
from recovery.reads.stuck import incidents
from tests.support.processes.fleet import Fleet, Queue
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

# Half of it is left after a kill: time enough to be seen on a busy machine.
SLOW = {"lockDuration": 4_000, "stalledInterval": 1_000, "maxStalledCount": 5}
FAST = {"lockDuration": 2_000, "stalledInterval": 1_000, "maxStalledCount": 5}


def ref_of(queue: Queue) -> QueueRef:
    return QueueRef("main", queue.base)


@pytest.mark.parametrize("generation", ["bullmq6", "bullmq4", "bull4"])
def test_a_killed_worker_leaves_a_job_that_is_doomed_then_abandoned(
    watch_bench: Make, libraries: Fleet, valkey: Store, generation: str
) -> None:
    queue = libraries[generation].queue(valkey)
    job, ref = queue.add("mail"), ref_of(queue)
    named = {"name": "mail-3"} if generation == "bullmq6" else {}
    worker = queue.work("hang", apart=True, **SLOW, **named)
    until(lambda: queue.counts()["active"] == 1)
    one = watch_bench(valkey)
    one.discover()
    assert one.kinds(ref) == {VerdictKind.RUNNING: 1}
    worker.kill()
    doomed = one.sees(ref, VerdictKind.WORKER_LOST)
    assert doomed.job.id == job
    assert doomed.verdict.suggests is Action.RELEASE
    assert "then it is never recovered: no worker is connected, so no stalled check runs" in doomed.verdict.fate
    abandoned = one.sees(ref, VerdictKind.ABANDONED)
    assert abandoned.name == "mail"
    assert abandoned.since == doomed.since, "it is stuck since then, whatever that is called meanwhile"
    assert abandoned.verdict.cause is LossCause.UNKNOWN, "another may still take its place"
    assert abandoned.verdict.fate.startswith("Never recovered: no worker is connected, so no stalled check runs.")
    assert abandoned.verdict.needs_a_person
    (incident,) = incidents.incidents_of_job(ref.job(job))
    assert (incident.kind, incident.closed_at, incident.number) == ("abandoned", None, abandoned.incident)
    assert incident.opened_at <= doomed.since
    (later,) = one.look(later=60_000).rows
    assert later.verdict.cause is LossCause.CRASHED
    assert incidents.incidents_of_job(ref.job(job))[0].cause == "crashed", "written down once it is known"


@pytest.mark.parametrize("generation", ["bullmq6", "bullmq4", "bull4"])
def test_what_the_librarys_own_watchdog_rescues_is_closed_as_its_work(
    watch_bench: Make, libraries: Fleet, valkey: Store, generation: str
) -> None:
    queue = libraries[generation].queue(valkey)
    job, ref = queue.add("mail"), ref_of(queue)
    worker = queue.work("hang", apart=True, **FAST)
    until(lambda: queue.counts()["active"] == 1)
    one = watch_bench(valkey)
    one.discover()
    one.look()
    worker.kill()
    one.sees(ref, VerdictKind.ABANDONED)
    queue.work("ok", **FAST)
    until(lambda: queue.counts()["completed"] == 1)
    until(lambda: one.look().stuck == 0)
    (incident,) = incidents.incidents_of_job(ref.job(job))
    assert incident.resolved_by == "stalled-check"
    assert incident.closed_at is not None
    assert incident.took is not None
    assert incidents.recovery_times(now=incident.closed_at).count == 1


def test_a_named_worker_that_dies_beside_others_dooms_its_own_job_only(
    watch_bench: Make, libraries: Fleet, valkey: Store
) -> None:
    queue = libraries["bullmq5"].queue(valkey)
    ref = ref_of(queue)
    alive = queue.work("hang", name="mail-1", **SLOW)
    first = queue.add("kept")
    until(lambda: alive.events("active"))
    dying = queue.work("hang", name="mail-2", apart=True, **SLOW)
    second = queue.add("lost")
    until(lambda: dying.events("active"))
    one = watch_bench(valkey)
    one.discover()
    assert one.kinds(ref) == {VerdictKind.RUNNING: 2}
    dying.kill()
    doomed = one.sees(ref, VerdictKind.WORKER_LOST)
    assert (doomed.job.id, doomed.holder) == (second, "mail-2")
    assert doomed.verdict.why.startswith("Worker mail-2 lost its connection")
    assert "then a worker's stalled check picks it up" in doomed.verdict.fate
    assert all(found.job.id != first for found in one.look().rows)


def test_a_stopped_worker_is_still_connected(watch_bench: Make, libraries: Fleet, valkey: Store) -> None:
    queue = libraries["bullmq6"].queue(valkey)
    ref = ref_of(queue)
    # Its own check stops with it: with a longer interval that is noticed later than the orphan.
    one = watch_bench(valkey, "[thresholds]\nstalled_interval = 30\n")
    queue.add("mail")
    worker = queue.work("hang", name="mail-3", apart=True, **SLOW)
    until(lambda: queue.counts()["active"] == 1)
    one.discover()
    one.look()
    worker.pause()
    try:
        one.until_kind(ref, VerdictKind.LATE)
        orphan = one.sees(ref, VerdictKind.ORPHAN)
        assert orphan.verdict.cause is LossCause.UNKNOWN
        assert "worker mail-3 is still connected" in orphan.verdict.cause_evidence
    finally:
        worker.resume()


def test_a_queue_under_a_bulk_run_is_left_to_the_run(watch_bench: Make, libraries: Fleet, valkey: Store) -> None:
    """What was found there last is shown until the run is over, or nobody works on it any more."""
    queue = libraries["bullmq6"].queue(valkey)
    job, ref = queue.add("mail"), ref_of(queue)
    worker = queue.work("hang", apart=True, **FAST)
    until(lambda: queue.counts()["active"] == 1)
    one = watch_bench(valkey)
    one.discover()
    worker.kill()
    one.sees(ref, VerdictKind.ABANDONED)
    facts = {"act": "requeue", "deployment": "main", "base": ref.slug, "actor": "{}", "reason": "x"}
    run = BulkRun.objects.create(created_at=0, status="running", beat_at=now_ms(), **facts)
    valkey.client.lrem(queue.key("active"), 1, job)
    assert one.look().stuck == 1
    assert incidents.incidents_of_job(ref.job(job))[0].closed_at is None
    BulkRun.objects.filter(pk=run.pk).update(trouble="the store does not answer")
    assert one.look().stuck == 0
    assert incidents.incidents_of_job(ref.job(job))[0].closed_at is not None
