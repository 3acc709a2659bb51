"""The deep look at what has been stuck for long, over a real store, a real state store and a real database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.backends.detection import identify
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.context import QUARANTINE_AFTER
from recovery.domain.time_units import MINUTE
from recovery.models import AuditEntry, Incident
from recovery.scanners.stale_check import scanner, stale_jobs
from recovery.stores import registry
from tests.support.processes.fleet import Library as Generation
from tests.support.stores.stores import Store
from tests.support.stuck.stale import Deep, done, said
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db

RELEASES = "[policy.stale_check]\nrelease = true"


def test_jobs_without_a_lock_for_a_quarter_of_an_hour_go_back_to_wait(deep: Deep) -> None:
    deep.orphan("1", "2")
    deep.watched(16)
    report = deep.run()
    assert done(report) == [("1", Action.REQUEUE), ("2", Action.REQUEUE)], report
    assert (report.looked, deep.ids(JobState.ACTIVE), sorted(deep.ids(JobState.WAITING))) == (2, [], ["1", "2"])
    entry = AuditEntry.objects.get(phase="intent")
    assert (entry.actor_kind, entry.actor) == ("scanner", "stale-check")
    assert "Enabled after 15 min" in entry.reason
    assert "by default" in entry.reason


def test_what_is_younger_is_left_to_the_library(deep: Deep) -> None:
    deep.orphan("1")
    deep.watched(10)
    before = deep.dump()
    report = deep.run()
    assert (report.finds, report.looked, deep.dump()) == ((), 1, before)


def test_what_is_held_is_not_touched(deep: Deep) -> None:
    deep.held("1", "2")
    deep.watched(30)
    before = deep.dump()
    report = deep.run()
    assert (report.finds, report.looked, deep.dump().keys()) == ((), 2, before.keys())


def test_without_the_watchs_marks_its_own_first_look_counts(deep: Deep) -> None:
    deep.orphan("1")
    assert done(deep.run()) == []
    assert done(deep.run(later=14)) == []
    assert done(deep.run(later=16)) == [("1", Action.REQUEUE)]


def test_a_job_that_was_started_anew_begins_anew(deep: Deep) -> None:
    deep.orphan("1")
    deep.watched(16)
    deep.client.hset("bull:mail:1", mapping={"ats": 2, "processedOn": deep.now - 1000})
    assert deep.run().finds == ()
    deep.watched(0)
    assert done(deep.run(later=13)) == []
    assert done(deep.run(later=16)) == [("1", Action.REQUEUE)]


def test_also_where_nothing_is_marked(deep: Deep) -> None:
    deep.orphan("1")
    deep.run()
    deep.client.hset("bull:mail:1", mapping={"ats": 2, "processedOn": deep.now - 1000})
    assert deep.run(later=16).finds == ()
    assert done(deep.run(later=32)) == [("1", Action.REQUEUE)]


def test_older_libraries_are_acted_on_when_two_sightings_prove_it(deep: Deep) -> None:
    deep.flavour = LibraryVersion(QueueLibrary.BULLMQ, 4, "4.18.3")
    deep.client.hset("bull:mail:meta", "version", "bullmq:4.18.3")
    deep.orphan("1", ats=None, attemptsMade=1)
    deep.watched(16)
    assert done(deep.run()) == [("1", Action.REQUEUE)]


def test_older_libraries_without_proof_are_only_told_of(deep: Deep) -> None:
    deep.flavour = LibraryVersion(QueueLibrary.BULLMQ, 4, "4.18.3")
    deep.orphan("1", ats=None, attemptsMade=1)
    deep.run()
    report = deep.run(later=16)
    assert (done(report), said(report)) == ([], {"1": scanner.UNPROVEN})


def test_an_id_without_a_job_is_removed(deep: Deep) -> None:
    deep.client.lpush("bull:mail:active", "1")
    deep.watched(16)
    assert done(deep.run()) == [("1", Action.REMOVE)]
    assert deep.ids(JobState.ACTIVE) == []


def test_an_endless_lock_is_taken_only_where_the_policy_says_so(deep: Deep) -> None:
    deep.connected("other")
    deep.held("1", ttl=None)
    deep.client.hset("bull:mail:1", "pb", "gone")
    deep.watched(16)
    assert said(deep.run()) == {"1": scanner.ENDLESS}
    assert deep.client.get("bull:mail:1:lock") == b"worker:1"


def test_an_endless_lock_of_a_worker_that_is_gone_is_released_and_its_job_requeued(make: Callable[..., Deep]) -> None:
    deep = make(RELEASES)
    deep.connected("other")
    deep.held("1", ttl=None)
    deep.client.hset("bull:mail:1", "pb", "gone")
    deep.watched(16)
    assert done(deep.run()) == [("1", Action.RELEASE)]
    assert (deep.ids(JobState.WAITING), deep.client.exists("bull:mail:1:lock")) == (["1"], 0)
    assert Incident.objects.get().proven_at, "it counts as orphaned"


def test_a_lock_that_is_not_taken_after_all_proves_nothing(make: Callable[..., Deep]) -> None:
    deep = make(RELEASES)
    deep.connected("other")
    deep.held("1", ttl=None)
    deep.client.hset("bull:mail:1", "pb", "gone")
    deep.watched(16)
    deep.paused = ("The store was started 3 s ago.",)
    assert done(deep.run()) == []
    assert Incident.objects.get().proven_at is None


@pytest.mark.parametrize("name", ["here", ""])
def test_an_endless_lock_of_one_that_may_be_there_waits_for_a_person(make: Callable[..., Deep], name: str) -> None:
    deep = make(RELEASES)
    deep.connected("here")
    deep.held("1", ttl=None)
    deep.client.hset("bull:mail:1", "pb", name)
    deep.watched(16)
    assert said(deep.run()) == {"1": scanner.UNNAMED}


def test_quarantined_and_malformed_jobs_wait_for_a_person(make: Callable[..., Deep], tmp_path: Path) -> None:
    (tmp_path / "mail.json").write_text('{"type": "object", "required": ["to"]}')
    deep = make(f'[[queues]]\nname = "main/bull:mail"\nschema = "{tmp_path / "mail.json"}"')
    deep.orphan("1", data='{"to": "ada"}')
    deep.orphan("2")
    for number in range(QUARANTINE_AFTER):
        at = deep.now - (number + 2) * 60 * MINUTE
        place = {"deployment": "main", "base": deep.ref.slug, "job": "1", "kind": "orphan"}
        Incident.objects.create(**place, opened_at=at, proven_at=at, closed_at=at + 1)
    deep.watched(16)
    report = deep.run()
    assert (done(report), said(report)) == ([], {"1": scanner.QUARANTINED, "2": scanner.MALFORMED})


def test_a_quarantined_job_behind_an_endless_lock_waits_too(make: Callable[..., Deep]) -> None:
    deep = make(RELEASES)
    deep.connected("other")
    deep.held("1", ttl=None)
    deep.client.hset("bull:mail:1", "pb", "gone")
    for number in range(QUARANTINE_AFTER):
        at = deep.now - (number + 2) * 60 * MINUTE
        place = {"deployment": "main", "base": deep.ref.slug, "job": "1", "kind": "orphan"}
        Incident.objects.create(**place, opened_at=at, proven_at=at, closed_at=at + 1)
    deep.watched(16)
    report = deep.run()
    assert (done(report), said(report)) == ([], {"1": scanner.QUARANTINED})


def test_n8n_waits_for_a_person(deep: Deep) -> None:
    deep.base, deep.ref, deep.flavour = (
        "bull:jobs",
        QueueRef("main", "bull:jobs"),
        LibraryVersion(QueueLibrary.BULL, 4, "4.16.4"),
    )
    deep.client.set("bull:jobs:id", 1)
    deep.orphan("1", ats=None, opts='{"attempts":1}')
    deep.watched(16)
    report = deep.run()
    assert (done(report), said(report)) == ([], {"1": scanner.N8N})


def test_a_policy_may_wait_longer_and_the_list_says_how_long(make: Callable[..., Deep]) -> None:
    deep = make("[policy.stale_check]\nafter = 3600")
    deep.orphan("1")
    deep.watched(16)
    assert said(deep.run()) in [{"1": f"Its policy waits {minutes} min more."} for minutes in (43, 44)]


def test_a_policy_may_act_sooner(make: Callable[..., Deep]) -> None:
    deep = make("[policy.stale_check]\nafter = 120")
    deep.orphan("1")
    deep.watched(3)
    assert done(deep.run()) == [("1", Action.REQUEUE)]


def test_asked_to_look_only_it_changes_nothing_anywhere(deep: Deep) -> None:
    deep.orphan("1")
    deep.watched(16)
    before, incidents = deep.dump(), list(Incident.objects.values())
    report = deep.run(dry_run=True)
    assert [(find.job.id, find.outcome) for find in report.finds] == [("1", None)]
    assert (deep.dump(), list(Incident.objects.values()), deep.called) == (before, incidents, [])


def test_where_the_policy_observes_it_tells_what_it_found(make: Callable[..., Deep]) -> None:
    deep = make('[policy.stale_check]\nmode = "dry-run"')
    deep.orphan("1")
    deep.watched(16)
    report = deep.run()
    assert done(report) == []
    assert "Dry run" in said(report)["1"]


def test_a_deployment_that_is_read_only_is_only_looked_at(make: Callable[..., Deep]) -> None:
    deep = make("read_only = true")
    deep.orphan("1")
    deep.watched(16)
    report = deep.run()
    assert (done(report), report.faults) == ([], ())
    assert "read only" in said(report)["1"]


def test_a_redis_pause_holds_it(deep: Deep) -> None:
    deep.orphan("1")
    deep.watched(16)
    deep.paused = ("The store was started 3 s ago.",)
    report = deep.run()
    assert (done(report), report.holds) == ([], deep.paused)


def test_one_run_takes_no_more_than_its_policy_says(make: Callable[..., Deep]) -> None:
    deep = make("[policy.stale_check]\nmost = 3")
    deep.orphan(*map(str, range(9)))
    deep.watched(16)
    assert [id for id, _ in done(deep.run())] == ["0", "1", "2"], "the oldest first"


def test_more_than_one_run_can_judge_is_said(deep: Deep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_jobs, "JUDGED", 2)
    deep.orphan(*map(str, range(5)))
    deep.watched(16)
    report = deep.run()
    assert len(done(report)) == 2
    assert report.finds[-1].what == "3 more jobs without a lock"


def test_many_held_jobs_cost_one_short_command_each(deep: Deep) -> None:
    pipeline = deep.client.pipeline(transaction=False)
    for number in range(2_500):
        pipeline.hset(f"bull:mail:{number}", mapping={"name": "mail", "data": "{}", "timestamp": 1, "processedOn": 1})
        pipeline.set(f"bull:mail:{number}:lock", "w:1", px=60_000)
        pipeline.lpush("bull:mail:active", number)
    pipeline.execute()
    deep.orphan("last")
    deep.watched(16)
    report = deep.run()
    assert (report.looked, done(report)) == (2_501, [("last", Action.REQUEUE)])


def test_only_the_queue_that_was_asked_for_is_looked_at(deep: Deep) -> None:
    deep.orphan("1")
    deep.watched(16)
    assert deep.run(queue=QueueRef("main", "bull:other")).looked == 0
    assert deep.run(queue=deep.ref).looked == 1


def test_a_store_that_does_not_answer_is_a_fault(deep: Deep) -> None:
    deep.orphan("1")
    deep.watched(16)
    deep.snapshot = deep.taken()
    deep.queues.pause()
    report = deep.check.run(deep.now)
    deep.queues.resume()
    assert (done(report), len(report.faults)) == ([], 1)


# -- real workers


def test_a_killed_workers_job_that_nobody_rescued_is_requeued_and_completed(
    library: Generation, make: Callable[..., Deep], valkey: Store
) -> None:
    """Of all generations: nobody was left to run the stalled check."""
    deep, jobs = make(), library.queue(valkey, f"stale-{library.name}")
    deep.base, deep.ref = jobs.base, QueueRef("main", jobs.base)
    job = jobs.add("digest")
    holder = jobs.work("hang", apart=True, lockDuration=1_000)
    until(lambda: jobs.counts()["active"] == 1, 30, "the worker has it")
    holder.kill()
    until(lambda: not valkey.client.exists(f"{jobs.base}:{job}:lock"), 30, "its lock ends")
    deep.now = now_ms()
    (found,) = identify(registry.registry().wire("main"), [jobs.base], {})
    assert found is not None
    deep.flavour = found
    deep.watched(16)
    report = deep.run()
    assert done(report) == [(job, Action.REQUEUE)], report
    jobs.work("ok")
    until(lambda: jobs.counts()["completed"] == 1, 30, "another worker completes it")
