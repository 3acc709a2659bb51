"""Requeue, fail and release on queues of the real BullMQ 3 to 6: every lost job runs once more, and only once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.jobs import JobState
from recovery.errors import Unsupported, WrongType
from tests.contract.desk import GENERATIONS, Desk, desk_of
from tests.support.hands import Hand
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.waiting import until

LATE: dict[str, Any] = {"is_late": True}
DEFERRING = ("bullmq5", "bullmq6")
COUNTERS = {"bullmq3": "stalledCounter", "bullmq4": "stalledCounter", "bullmq5": "stc", "bullmq6": "stc"}


@pytest.fixture(params=GENERATIONS)
def desk(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk
        Hand.close_all(desk.queue)


@pytest.fixture(params=DEFERRING)
def newer(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk
        Hand.close_all(desk.queue)


def held(desk: Desk, **options: Any) -> tuple[str, Hand]:
    """A job that a worker holds."""
    desk.queue.add("held", **options)
    hand = Hand.of(desk.queue)
    job = hand.take()
    assert job
    return job, hand


def unlock(desk: Desk, job: str) -> ExpectedJob:
    """Its holder is gone for good; the job as it is seen then."""
    desk.store.client.delete(desk.queue.key(job, "lock"))
    return desk.seen(job)


def orphan(desk: Desk, **options: Any) -> ExpectedJob:
    return unlock(desk, held(desk, **options)[0])


def refusal(desk: Desk, act: Action, seen: ExpectedJob, **options: Any) -> ScriptOutcome:
    """It is refused, and nothing has changed: no key but those that expire by themselves."""
    before = desk.all_keys()
    (done,) = desk.act(act, seen, **(LATE | options))
    assert done.outcome is Outcome.REFUSED, done
    assert desk.all_keys() == before
    return done


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_job_of_a_killed_worker_is_completed_once_by_another(
    generation: str, store: Store, libraries: Fleet
) -> None:
    with desk_of(generation, libraries, store) as desk:
        job = desk.queue.add("lost")
        killed = desk.queue.work("hang", apart=True, lockDuration=60_000)
        desk.running()
        killed.kill()
        refused = refusal(desk, Action.REQUEUE, desk.seen(job))
        assert "It is locked (expires in " in refused.why
        done = desk.does(Action.REQUEUE, unlock(desk, job), **LATE)
        assert (done.state, done.why) == (JobState.WAITING, "")
        worker = desk.queue.work("ok")
        desk.ended(job)
        assert worker.events("active") == [("active", job)]
        until(lambda: worker.events("completed") == [("completed", job)])


class TestRequeue:
    def test_it_counts_as_a_stall_and_says_so(self, desk: Desk) -> None:
        seen = orphan(desk)
        desk.does(Action.REQUEUE, seen, **LATE)
        assert desk.hash(seen.id)[COUNTERS[desk.queue.library.name]] == "1"
        assert desk.events()[-2:] == [
            {"event": "waiting", "jobId": seen.id, "prev": "active"},
            {"event": "stalled", "jobId": seen.id},
        ]

    def test_it_runs_next(self, desk: Desk) -> None:
        seen = orphan(desk)
        others = [desk.queue.add() for _ in range(3)]
        desk.does(Action.REQUEUE, seen, **LATE)
        hand = Hand.of(desk.queue)
        assert [hand.take() for _ in range(4)] == [seen.id, *others]

    def test_an_idle_worker_takes_it_at_once(self, desk: Desk) -> None:
        seen = orphan(desk)
        worker = desk.queue.work("ok", drainDelay=60, stalledInterval=60_000)
        desk.done(desk.queue.add())  # it is up, and idle again
        desk.does(Action.REQUEUE, seen, **LATE)
        desk.ended(seen.id)
        assert worker.events("completed").count(("completed", seen.id)) <= 1

    def test_stalls_and_a_deferred_failure_are_forgotten_when_asked(self, desk: Desk) -> None:
        job, _ = held(desk)
        desk.store.client.hset(desk.queue.key(job), mapping={"stalledCounter": 1, "stc": 1, "defa": "too often"})
        desk.does(Action.REQUEUE, unlock(desk, job), reset_stalls=True, **LATE)
        assert not {"stc", "stalledCounter", "defa"} & set(desk.hash(job))
        desk.done(job)

    def test_without_counting_it_is_put_before_the_others_of_its_priority(self, desk: Desk) -> None:
        job, _ = held(desk, priority=5)
        later, first, last = (desk.queue.add(priority=priority) for priority in (5, 1, 9))
        done = desk.does(Action.REQUEUE, unlock(desk, job), counts_as_stall=False, **LATE)
        expected = JobState.WAITING if desk.queue.library.major < 4 else JobState.PRIORITIZED
        assert done.state is expected
        assert not {"stc", "stalledCounter"} & set(desk.hash(job))
        hand = Hand.of(desk.queue)
        assert [hand.take() for _ in range(4)] == [first, job, later, last]

    def test_a_prioritized_job_is_recovered_before_all_others_as_the_library_does(self, desk: Desk) -> None:
        job, _ = held(desk, priority=5)
        desk.queue.add(priority=1)
        assert desk.does(Action.REQUEUE, unlock(desk, job), **LATE).state is JobState.WAITING
        assert Hand.of(desk.queue).take() == job

    def test_a_paused_queue_stays_paused(self, desk: Desk) -> None:
        seen = orphan(desk)
        desk.queue.pause()
        done = desk.does(Action.REQUEUE, seen, **LATE)
        assert done.state is (JobState.WAITING if desk.queue.library.major >= 6 else JobState.PAUSED)
        assert not desk.zset("marker")
        desk.queue.resume()
        desk.done(seen.id)

    def test_a_queue_at_its_limit_wakes_nobody(self, newer: Desk) -> None:
        job, hand = held(newer)
        newer.queue.add()
        second = hand.take()
        newer.queue.call("setGlobalConcurrency", 1)
        newer.store.client.delete(newer.queue.key("marker"))
        newer.does(Action.REQUEUE, unlock(newer, job))
        assert newer.zset("marker") == {}
        assert hand.take() is None
        assert second is not None
        newer.does(Action.REQUEUE, unlock(newer, second))
        assert newer.zset("marker") == {"0": 0}, "now there is room"

    def test_a_rate_limited_queue_keeps_its_limit(self, newer: Desk) -> None:
        seen = orphan(newer)
        newer.queue.call("setGlobalRateLimit", 1, 60_000)
        newer.queue.call("rateLimit", 60_000)
        newer.does(Action.REQUEUE, seen)
        assert newer.queue.call("getRateLimitTtl") > 0
        assert newer.state(seen.id) == "waiting"

    def test_many_at_once_are_answered_one_by_one(self, desk: Desk) -> None:
        seen = [orphan(desk) for _ in range(5)]
        locked = held(desk)[0]
        done = desk.act(Action.REQUEUE, *seen[:3], desk.seen(locked), *seen[3:], **LATE)
        outcomes = [one.outcome for one in done]
        assert outcomes == [Outcome.DONE] * 3 + [Outcome.REFUSED] + [Outcome.DONE] * 2
        assert [one.id for one in done] == [one.id for one in (*seen[:3],)] + [locked] + [one.id for one in seen[3:]]
        assert desk.list("active") == [locked]

    def test_a_job_named_twice_is_done_once(self, desk: Desk) -> None:
        seen = orphan(desk)
        assert [one.outcome for one in desk.act(Action.REQUEUE, seen, seen, **LATE)] == [Outcome.DONE] * 2
        assert desk.list("wait") == [seen.id]

    def test_it_is_taken_out_of_the_stalled_set(self, desk: Desk) -> None:
        seen = orphan(desk)
        desk.store.client.sadd(desk.queue.key("stalled"), seen.id, "another")
        desk.does(Action.REQUEUE, seen, **LATE)
        assert desk.store.client.smembers(desk.queue.key("stalled")) == {b"another"}


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
class TestRefusal:
    def test_one_look_is_not_enough_where_workers_lock_late(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        (done,) = desk.act(act, seen)
        if desk.queue.library.major < 5:
            assert done.outcome is Outcome.REFUSED
            assert "must be seen without one twice" in done.why
        else:
            assert done.outcome is Outcome.DONE

    def test_a_locked_job_is_left_alone(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        desk.store.client.set(desk.queue.key(seen.id, "lock"), "another", px=60_000)
        assert refusal(desk, act, seen).why == "It is locked again (expires in 60 s)."

    def test_a_lock_that_never_ends_is_a_lock(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        desk.store.client.set(desk.queue.key(seen.id, "lock"), "another")
        assert refusal(desk, act, seen).why == "It is locked again (its lock never expires)."

    def test_a_job_that_was_taken_once_more_is_left_alone(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        desk.does(Action.REQUEUE, seen, **LATE)
        Hand.of(desk.queue).take()
        done = refusal(desk, act, seen)
        assert done.why.startswith("Another worker has started it since, and holds it (expires in ")
        unlock(desk, seen.id)
        assert refusal(desk, act, seen).why == "Another worker has started it since."

    def test_another_stall_counter_is_another_run(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        desk.store.client.hincrby(desk.queue.key(seen.id), COUNTERS[desk.queue.library.name], 1)
        assert refusal(desk, act, seen).why.startswith("It was recovered and taken by a worker again")

    def test_a_job_that_waits_already_is_not_pushed_again(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        desk.does(Action.REQUEUE, seen, **LATE)
        again = replace(seen, stalls=1)
        done = refusal(desk, act, again)
        assert (done.why, done.state) == ("It is in wait now (waiting), not active any more.", JobState.WAITING)

    def test_a_job_that_was_completed_meanwhile_stays_so(self, act: Action, desk: Desk) -> None:
        job, hand = held(desk)
        seen = replace(desk.seen(job), token=None)
        assert hand.finish(job) == ""
        done = refusal(desk, act, seen)
        assert (done.why, done.state) == ("It is completed now, not active any more.", JobState.COMPLETED)

    def test_a_job_that_was_removed_is_missing(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        desk.queue.call_job(seen.id, "remove")
        before = desk.all_keys()
        (done,) = desk.act(act, seen, **LATE)
        assert (done.outcome, desk.all_keys()) == (Outcome.MISSING, before)

    def test_a_key_of_another_kind_stops_it_before_the_first_write(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        desk.store.client.delete(desk.queue.key("failed"), desk.queue.key("wait"))
        desk.store.client.set(desk.queue.key("wait"), "mine")
        before = desk.all_keys()
        with pytest.raises(WrongType):
            desk.act(act, seen, **LATE)
        assert desk.all_keys() == before

    def test_a_version_nobody_knows_is_left_alone(self, act: Action, desk: Desk) -> None:
        seen = orphan(desk)
        unknown = replace(desk.target, flavour=desk.known._replace(read_only="Too new."))
        with pytest.raises(Unsupported, match="Too new"):
            desk.operator.on_jobs(act, unknown, [seen], ActionOptions(), 0)


class TestGhost:
    """An id in the list of active jobs, without a job."""

    @pytest.fixture
    def ghost(self, desk: Desk) -> ExpectedJob:
        seen = orphan(desk)
        desk.store.client.delete(desk.queue.key(seen.id))
        desk.store.client.hset(desk.queue.key(seen.id), "stc", 1)  # what a stalled check leaves of it
        return replace(desk.seen(seen.id), processed_at=None)

    def test_it_is_not_requeued(self, desk: Desk, ghost: ExpectedJob) -> None:
        done = refusal(desk, Action.REQUEUE, ghost)
        assert done.why.startswith("Its job data is missing")

    @pytest.mark.parametrize("directly", [False, True])
    def test_failing_it_takes_the_id_away(self, desk: Desk, ghost: ExpectedJob, directly: bool) -> None:
        done = desk.does(Action.FAIL, ghost, directly=directly, **LATE)
        assert done.why.startswith("Its job data was missing")
        assert desk.list("active") == desk.list("wait") == []
        assert desk.zset("failed") == {}


class TestRelease:
    def test_only_the_lock_goes(self, desk: Desk) -> None:
        job, hand = held(desk)
        before = desk.all_keys()
        done = desk.does(Action.RELEASE, job)
        assert done.state is JobState.ACTIVE
        assert desk.all_keys() == {key: dump for key, dump in before.items() if not key.endswith(":lock")}
        assert hand.finish(job) != "", "the library lets the old holder finish nothing"

    def test_with_a_requeue_it_runs_once_more_at_once(self, desk: Desk) -> None:
        job, hand = held(desk)
        done = desk.does(Action.RELEASE, job, requeue=True)
        assert done.state is JobState.WAITING
        assert hand.finish(job) != ""
        desk.done(job)

    def test_another_token_is_not_touched(self, desk: Desk) -> None:
        job, _ = held(desk)
        seen = replace(desk.seen(job), token="somebody else's")  # no secret
        assert refusal(desk, Action.RELEASE, seen, requeue=True).why == "It has another lock now (expires in 60 s)."

    def test_a_lock_that_ended_by_itself_is_what_was_wanted(self, desk: Desk) -> None:
        job, _ = held(desk)
        seen = desk.seen(job)
        unlock(desk, job)
        (done,) = desk.act(Action.RELEASE, seen)
        assert done.outcome is Outcome.UNCHANGED
        assert refusal(desk, Action.RELEASE, seen, requeue=True).why.startswith("Its lock has expired since")

    def test_a_job_that_was_finished_is_not_released(self, desk: Desk) -> None:
        job, hand = held(desk)
        seen = desk.seen(job)
        assert hand.finish(job) == ""
        assert refusal(desk, Action.RELEASE, seen).why == "It is completed now, not active any more."

    def test_a_job_that_was_shown_without_a_lock_has_none_to_release(self, desk: Desk) -> None:
        assert refusal(desk, Action.RELEASE, orphan(desk)).why.startswith("It was shown without a lock")
