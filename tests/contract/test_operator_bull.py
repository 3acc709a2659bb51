"""Requeue, fail and release on queues of the real Bull 3 and 4: nothing is done to a job that may be somebody's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from recovery.backends.bull.n8n_detection import is_n8n
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import Unsupported, WrongType
from tests.contract import golden
from tests.contract.bull_jobs import N8N, desk, held, taken, unchanged
from tests.contract.desk import BULL, Desk, now
from tests.support.waiting import until

__all__ = ["desk"]
ORPHAN_ACTS = (Action.REQUEUE, Action.FAIL, Action.REMOVE)


class TestRequeue:
    def test_a_live_worker_takes_the_job_and_completes_it(self, desk: Desk) -> None:
        (job,) = desk.orphaned()
        desk.does(Action.REQUEUE, job, is_late=True)
        worker = desk.queue.work("ok")
        desk.ended(job)
        until(lambda: ("completed", job) in worker.events())
        assert desk.hash(job)["stalledCounter"] == "1"

    def test_it_runs_before_those_that_wait(self, desk: Desk) -> None:
        (job,) = taken(desk)
        waiting = desk.queue.add("later")
        desk.does(Action.REQUEUE, job, is_late=True)
        assert desk.list("wait") == [waiting, job]

    def test_a_paused_queue_stays_paused(self, desk: Desk) -> None:
        (job,) = taken(desk)
        desk.queue.pause()
        desk.does(Action.REQUEUE, job, is_late=True)
        assert (desk.list("paused"), desk.list("wait")) == ([job], [])

    def test_stalls_can_be_forgotten(self, desk: Desk) -> None:
        (job,) = taken(desk)
        desk.store.client.hset(desk.queue.key(job), "stalledCounter", 3)
        desk.does(Action.REQUEUE, job, is_late=True, reset_stalls=True)
        assert "stalledCounter" not in desk.hash(job)

    def test_it_need_not_count_as_a_stall(self, desk: Desk) -> None:
        (job,) = taken(desk)
        desk.does(Action.REQUEUE, job, is_late=True, counts_as_stall=False)
        assert "stalledCounter" not in desk.hash(job)

    def test_the_library_does_not_recover_it_a_second_time(self, desk: Desk) -> None:
        (job,) = taken(desk)
        desk.store.client.sadd(desk.queue.key("stalled"), job)
        desk.does(Action.REQUEUE, job, is_late=True)
        assert not desk.store.client.exists(desk.queue.key("stalled"))

    def test_many_go_in_one_call_and_each_has_its_answer(self, desk: Desk) -> None:
        jobs = taken(desk, 5)
        desk.store.client.set(desk.queue.key(jobs[2], "lock"), "somebody", px=60_000)
        done = desk.act(Action.REQUEUE, *(replace(desk.seen(job), token=None) for job in jobs), is_late=True)
        assert [one.id for one in done] == jobs
        assert [one.outcome for one in done] == [
            Outcome.DONE,
            Outcome.DONE,
            Outcome.REFUSED,
            Outcome.DONE,
            Outcome.DONE,
        ]
        assert desk.list("active") == [jobs[2]]

    def test_a_job_of_n8n_takes_consent(self, desk: Desk) -> None:
        (job,) = taken(desk)
        desk.store.client.hset(desk.queue.key(job), "data", json.dumps(N8N))
        (refused,) = unchanged(desk, Action.REQUEUE, desk.seen(job), is_late=True)
        assert "second time" in refused.why
        desk.does(Action.REQUEUE, job, is_late=True, consent=True)


class TestFail:
    def test_whoever_waits_for_the_job_is_told(self, desk: Desk) -> None:
        """The text is what n8n's main looks for: it learns of the failure from nothing else."""
        (job,) = taken(desk)
        with golden.publishing(desk.store) as published:
            desk.does(Action.FAIL, job, is_late=True, message="its host is gone")
        text = f'{{"jobId":"{job}", "val": "job stalled more than maxStalledCount"}}'
        assert published == [(desk.queue.key("failed"), text)]
        assert desk.hash(job)["failedReason"] == "its host is gone"

    def test_the_library_shows_it_as_failed(self, desk: Desk) -> None:
        (job,) = desk.orphaned()
        desk.does(Action.FAIL, job, is_late=True)
        theirs = desk.queue.job(job)
        assert theirs is not None
        assert (theirs["state"], theirs["failedReason"]) == ("failed", "job stalled more than allowable limit")
        assert abs(theirs["finishedOn"] - now()) < 10_000

    @pytest.mark.parametrize(
        ("wish", "left"),
        [
            (None, ["old-1", "old-2", "job"]),
            (False, ["old-1", "old-2", "job"]),
            (True, ["old-1", "old-2"]),
            (0, ["old-1", "old-2"]),
            (1, ["job"]),
            (2, ["old-2", "job"]),
            (-1, ["old-1", "old-2", "job"]),
            ({"count": 0}, ["old-1", "old-2"]),
            ({"count": 2}, ["old-2", "job"]),
            ({"age": 60}, ["old-2", "job"]),
            ({"age": 60, "count": 1}, ["job"]),
            ("nonsense", ["old-1", "old-2", "job"]),
        ],
    )
    def test_its_options_say_how_many_failed_ones_are_kept(self, desk: Desk, wish: object, left: list[str]) -> None:
        """`0` and `{"count": 0}` keep all others: the library wipes them, or keeps this one for ever."""
        (job,) = taken(desk)
        key = desk.queue.key
        options = json.loads(desk.hash(job)["opts"])
        options.pop("removeOnFail", None)
        desk.store.client.hset(key(job), "opts", json.dumps(options | ({} if wish is None else {"removeOnFail": wish})))
        for name, age in (("old-1", 120_000), ("old-2", 30_000)):
            desk.store.client.hset(key(name), mapping={"name": "old", "data": "{}", "timestamp": 1})
            desk.store.client.rpush(key(name, "logs"), "a line")
            desk.store.client.zadd(key("failed"), {name: now() - age})
        desk.does(Action.FAIL, job, is_late=True)
        wanted = [job if name == "job" else name for name in left]
        assert list(desk.zset("failed")) == wanted
        for name in ("old-1", "old-2", job):
            assert bool(desk.store.client.exists(key(name))) == (name in wanted)
            assert bool(desk.store.client.exists(key(name, "logs"))) == (name in wanted and name != job)

    def test_a_priority_left_behind_goes(self, desk: Desk) -> None:
        """A worker that died before it locked the job left it there: it would skew where later jobs are put."""
        (job,) = taken(desk)
        desk.store.client.zadd(desk.queue.key("priority"), {job: 5})
        desk.does(Action.FAIL, job, is_late=True)
        assert desk.zset("priority") == {}

    @pytest.mark.parametrize(
        ("holder", "ttl", "is_kept"), [("own", 0, False), ("own", 60_000, True), ("other", 0, True)]
    )
    def test_doubles_are_let_in_again(self, desk: Desk, holder: str, ttl: int, is_kept: bool) -> None:
        """Not while the key has time to live, and not when it is another job's: the library deletes that one too."""
        (job,) = taken(desk)
        key = desk.queue.key("de", "same")
        desk.store.client.hset(desk.queue.key(job), "deid", "same")
        desk.store.client.set(key, job if holder == "own" else "999", px=ttl or None)
        desk.does(Action.FAIL, job, is_late=True)
        assert bool(desk.store.client.exists(key)) == is_kept

    def test_an_id_with_a_quote_in_it_does_not_break_the_message(self, desk: Desk) -> None:
        name = 'say "no"'
        desk.queue.add("odd", jobId=name)
        desk.store.client.rpoplpush(desk.queue.key("wait"), desk.queue.key("active"))
        with golden.publishing(desk.store) as published:
            desk.does(Action.FAIL, name, is_late=True)
        assert json.loads(published[0][1])["jobId"] == name


class TestRelease:
    def test_the_lock_goes_and_the_rest_is_left_to_the_library(self, desk: Desk) -> None:
        job = held(desk)
        desk.store.client.sadd(desk.queue.key("stalled"), job)
        before = desk.all_keys()
        desk.does(Action.RELEASE, job)
        lock = desk.queue.key(job, "lock")
        assert desk.all_keys() == {name: value for name, value in before.items() if name != lock}

    def test_with_requeue_a_worker_takes_it_at_once(self, desk: Desk) -> None:
        job = held(desk)
        desk.does(Action.RELEASE, job, requeue=True)
        desk.queue.work("ok")
        desk.ended(job)

    def test_another_token_is_not_touched(self, desk: Desk) -> None:
        job = held(desk)
        seen = replace(desk.seen(job), token="not-this-one")
        (refused,) = unchanged(desk, Action.RELEASE, seen, requeue=True)
        assert "Its lock is not the one" in refused.why

    def test_the_same_process_on_a_later_attempt_is_not_touched(self, desk: Desk) -> None:
        """All jobs of a process have one token: only the time of the start tells attempts apart."""
        job = held(desk)
        seen = replace(desk.seen(job), processed_at=1)
        (refused,) = unchanged(desk, Action.RELEASE, seen)
        assert "started again" in refused.why

    def test_a_job_without_a_lock_has_none_to_release(self, desk: Desk) -> None:
        (job,) = taken(desk)
        assert "No lock" in unchanged(desk, Action.RELEASE, desk.seen(job))[0].why
        assert "no longer has a lock" in unchanged(desk, Action.RELEASE, replace(desk.seen(job), token="gone"))[0].why

    def test_a_workflow_does_not_run_twice_without_consent(self, desk: Desk) -> None:
        job = held(desk)
        desk.store.client.hset(desk.queue.key(job), "data", json.dumps(N8N))
        assert "second time" in unchanged(desk, Action.RELEASE, desk.seen(job), requeue=True)[0].why
        desk.does(Action.RELEASE, job)


@pytest.mark.parametrize("act", ORPHAN_ACTS)
class TestRefusals:
    """None of them writes a byte."""

    def test_a_job_that_is_locked_again(self, desk: Desk, act: Action) -> None:
        job = held(desk)
        seen = replace(desk.seen(job), token=None)
        assert "locked again (expires in " in unchanged(desk, act, seen, is_late=True)[0].why

    def test_a_lock_without_an_end(self, desk: Desk, act: Action) -> None:
        job = held(desk)
        desk.store.client.persist(desk.queue.key(job, "lock"))
        seen = replace(desk.seen(job), token=None)
        assert "it never expires" in unchanged(desk, act, seen, is_late=True)[0].why

    def test_one_look_proves_nothing(self, desk: Desk, act: Action) -> None:
        """A worker of Bull moves a job to active, and locks it a moment later."""
        (job,) = taken(desk)
        assert "is not proof" in unchanged(desk, act, desk.seen(job))[0].why

    @pytest.mark.parametrize(("field", "value"), [("processed_at", 17), ("attempts", 9), ("stalls", 9)])
    def test_a_job_that_ran_again_since(self, desk: Desk, act: Action, field: str, value: int) -> None:
        (job,) = taken(desk)
        seen = replace(desk.seen(job), **{field: value})
        assert "since it was shown" in unchanged(desk, act, seen, is_late=True)[0].why

    def test_a_job_that_went_on(self, desk: Desk, act: Action) -> None:
        (job,) = taken(desk)
        seen = desk.seen(job)
        desk.does(Action.REQUEUE, job, is_late=True, counts_as_stall=False)
        assert "It is waiting now" in unchanged(desk, act, seen, is_late=True)[0].why
        (done,) = desk.act(act, seen, is_late=True)
        assert done.state is JobState.WAITING

    def test_a_job_that_is_gone(self, desk: Desk, act: Action) -> None:
        (job,) = taken(desk)
        seen = desk.seen(job)
        desk.does(Action.REMOVE, job, is_late=True)
        before = desk.all_keys()
        (done,) = desk.act(act, seen, is_late=True)
        assert (done.outcome, desk.all_keys()) == (Outcome.MISSING, before)

    def test_a_foreign_key_stops_all_of_it(self, desk: Desk, act: Action) -> None:
        """Found before the first write: a script that dies between two writes loses the job."""
        jobs = taken(desk, 2)
        seen = [desk.seen(job) for job in jobs]
        target = desk.target
        desk.store.client.set(desk.queue.key("wait"), "not a list")
        before = desk.all_keys()
        with pytest.raises(WrongType):
            BULL.on_jobs(act, target, seen, ActionOptions(is_late=True), now())
        assert desk.all_keys() == before

    def test_a_queue_that_is_read_only(self, desk: Desk, act: Action) -> None:
        (job,) = taken(desk)
        target = replace(desk.target, flavour=LibraryVersion(QueueLibrary.BULL, 4, mixed=True))
        with pytest.raises(Unsupported, match="workers both use"):
            BULL.on_jobs(act, target, [desk.seen(job)], ActionOptions(is_late=True), now())


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
def test_an_id_without_a_job_is_not_run(desk: Desk, act: Action) -> None:
    """The library would: with no name and no data. Here it can be removed."""
    desk.queue.add("other")
    desk.store.client.lpush(desk.queue.key("active"), "ghost")
    desk.store.client.hset(desk.queue.key("ghost"), "stalledCounter", 1)
    seen = desk.seen("ghost")
    before = desk.all_keys()
    (done,) = desk.act(act, seen, is_late=True)
    assert (done.outcome, desk.all_keys()) == (Outcome.MISSING, before)
    desk.does(Action.REMOVE, "ghost")
    assert desk.list("active") == []
    assert not desk.store.client.exists(desk.queue.key("ghost"))


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL, Action.RELEASE])
def test_only_active_jobs_are_recovered(desk: Desk, act: Action) -> None:
    job = desk.queue.add("waits")
    (refused,) = unchanged(
        desk, act, replace(desk.seen(job), token="x" if act is Action.RELEASE else None), is_late=True
    )
    assert "It was waiting" in refused.why


def test_more_than_a_chunk_is_refused(desk: Desk) -> None:
    desk.queue.add("one")
    seen = [ExpectedJob(str(number), JobState.ACTIVE) for number in range(BULL.chunk(Action.REQUEUE) + 1)]
    with pytest.raises(ValueError, match=f"at most {len(seen) - 1}"):
        BULL.on_jobs(Action.REQUEUE, desk.target, seen, ActionOptions(), now())


@pytest.mark.parametrize(
    ("data", "is_its"),
    [
        (json.dumps(N8N), True),
        (json.dumps(N8N).encode(), True),
        ('{"workflowId": 1}', False),
        ("[]", False),
        ("not JSON", False),
        (None, False),
        (json.dumps(N8N | {"more": "x" * 20_000}), False),
    ],
)
def test_a_job_of_n8n_is_known_by_its_data(data: str | bytes | None, is_its: bool) -> None:
    assert is_n8n(data) is is_its
