"""Retry and promote on queues of the real BullMQ 3 to 6: jobs go where the library would put them, and run once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from recovery.errors import WrongType
from tests.contract.desk import GENERATIONS, OPERATOR, Desk, desk_of, now
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.waiting import until

HOUR = 3_600_000
# An idle worker looks by itself after five seconds at the earliest: whoever is sooner was woken.
WOKEN = 4.0


@pytest.fixture(params=GENERATIONS)
def desk(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk


class TestRetry:
    def test_a_failed_job_runs_once_more(self, desk: Desk) -> None:
        job = desk.fail()
        worker = desk.queue.work("ok")
        warm = desk.queue.add("warm")
        desk.ended(warm)
        done = desk.does(Action.RETRY, job)
        assert done.state is JobState.WAITING
        desk.ended(job, seconds=WOKEN)
        until(lambda: worker.events("completed") == [("completed", warm), ("completed", job)])

    def test_a_completed_job_runs_once_more(self, desk: Desk) -> None:
        job = desk.queue.add()
        desk.done(job)
        desk.does(Action.RETRY, job)
        assert desk.state(job) == "waiting"
        assert not {"returnvalue", "finishedOn", "processedOn"} & set(desk.hash(job))
        desk.done(job)

    def test_it_leaves_no_trace_of_the_failure_but_its_attempts(self, desk: Desk) -> None:
        job = desk.fail()
        before = desk.hash(job)
        desk.does(Action.RETRY, job)
        gone = set(before) - set(desk.hash(job))
        assert gone == {"failedReason", "finishedOn", "processedOn"}
        assert desk.events()[-1] == {"event": "waiting", "jobId": job, "prev": "failed"}

    def test_attempts_are_forgotten_when_asked(self, desk: Desk) -> None:
        job = desk.fail()
        desk.does(Action.RETRY, job, reset_attempts=True)
        assert not {"atm", "ats", "attemptsMade"} & set(desk.hash(job))
        assert desk.queue.job(job)["attemptsMade"] == 0  # type: ignore[index] # it is there

    def test_stalls_and_a_deferred_failure_are_forgotten_when_asked(self, desk: Desk) -> None:
        job = desk.fail()
        desk.store.client.hset(desk.queue.key(job), mapping={"stc": 3, "defa": "stalled too often"})
        desk.does(Action.RETRY, job, reset_stalls=True)
        assert not {"stc", "stalledCounter", "defa"} & set(desk.hash(job))
        desk.done(job)

    def test_a_priority_is_kept(self, desk: Desk) -> None:
        """The library's own retry forgets it before 6.3.5: the job would overtake all others."""
        job = desk.fail(priority=7)
        urgent = desk.queue.add("urgent", priority=1)
        done = desk.does(Action.RETRY, job)
        assert done.state is (JobState.WAITING if desk.queue.library.major == 3 else JobState.PRIORITIZED)
        assert desk.state(job) == done.state
        worker = desk.queue.work("ok")
        desk.ended(job)
        until(lambda: [id for _, id in worker.events("completed")] == [urgent, job])

    def test_last_in_first_out_is_kept(self, desk: Desk) -> None:
        job = desk.fail(lifo=True)
        desk.queue.add("other")
        desk.does(Action.RETRY, job)
        assert desk.list("wait")[-1] == job

    def test_in_a_paused_queue_it_waits_for_the_end_of_the_pause(self, desk: Desk) -> None:
        job = desk.fail()
        desk.queue.pause()
        worker = desk.queue.work("ok")
        done = desk.does(Action.RETRY, job)
        assert done.state is (JobState.WAITING if desk.queue.library.major == 6 else JobState.PAUSED)
        assert desk.list("wait" if desk.queue.library.major == 6 else "paused") == [job]
        assert desk.zset("marker") == {}
        desk.queue.resume()
        desk.ended(job)
        until(lambda: worker.events("completed") == [("completed", job)])

    def test_many_at_once_keep_their_order_and_their_priorities(self, desk: Desk) -> None:
        jobs = [desk.queue.add("bulk", priority=priority) for priority in (0, 3, 0, 1)]
        desk.failed(*jobs)
        answers = desk.act(Action.RETRY, *jobs)
        assert [answer.id for answer in answers] == jobs
        assert {answer.outcome for answer in answers} == {Outcome.DONE}
        assert desk.queue.counts()["failed"] == 0
        if desk.queue.library.major > 3:
            assert [id for id in desk.list("wait") if not id.startswith("0:")] == [jobs[2], jobs[0]]
            assert list(desk.zset("prioritized")) == [jobs[3], jobs[1]]
        desk.done(*jobs)

    def test_one_that_ran_meanwhile_is_refused_and_the_others_are_done(self, desk: Desk) -> None:
        stale, fresh = desk.fail(), desk.fail()
        seen = desk.seen(stale)
        desk.queue.call_job(stale, "retry")
        desk.failed(stale)
        refused, done = desk.act(Action.RETRY, seen, fresh)
        assert (refused.outcome, refused.state) == (Outcome.REFUSED, JobState.FAILED)
        assert "ran since it was shown" in refused.why
        assert done.outcome is Outcome.DONE

    def test_one_that_waits_already_is_refused_with_its_state(self, desk: Desk) -> None:
        job = desk.fail()
        seen = desk.seen(job)
        desk.queue.call_job(job, "retry")
        before = desk.all_keys()
        (refused,) = desk.act(Action.RETRY, seen)
        assert refused.outcome is Outcome.REFUSED
        assert refused.state is JobState.WAITING
        assert desk.all_keys() == before

    def test_one_that_is_gone_is_missing(self, desk: Desk) -> None:
        job = desk.fail()
        seen = desk.seen(job)
        desk.queue.call_job(job, "remove")
        (answer,) = desk.act(Action.RETRY, seen)
        assert answer.outcome is Outcome.MISSING

    @pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.WAITING, JobState.DELAYED, JobState.WAITING_CHILDREN])
    def test_only_finished_jobs_are_retried(self, desk: Desk, state: JobState) -> None:
        (refused,) = desk.act(Action.RETRY, ExpectedJob(desk.queue.add(), state))
        assert refused.outcome is Outcome.REFUSED
        assert "Only failed and completed jobs are retried" in refused.why

    def test_the_same_job_twice_is_retried_once(self, desk: Desk) -> None:
        job = desk.fail()
        seen = desk.seen(job)
        first, second = desk.act(Action.RETRY, seen, seen)
        assert {first.outcome, second.outcome} <= {Outcome.DONE, Outcome.REFUSED}
        assert [id for id in desk.list("wait") if not id.startswith("0:")] == [job]

    def test_a_key_of_a_foreign_type_stops_it_before_anything_is_written(self, desk: Desk) -> None:
        job = desk.fail()
        seen, target = desk.seen(job), desk.target
        desk.store.client.delete(desk.queue.key("wait"))
        desk.store.client.set(desk.queue.key("wait"), "not a list")
        before = desk.all_keys()
        with pytest.raises(WrongType):
            OPERATOR.on_jobs(Action.RETRY, target, [seen], ActionOptions(), now())
        assert desk.all_keys() == before


class TestPromote:
    def test_a_delayed_job_runs_now(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        worker = desk.queue.work("ok")
        warm = desk.queue.add("warm")
        desk.ended(warm)
        desk.does(Action.PROMOTE, job)
        desk.ended(job, seconds=WOKEN)
        until(lambda: worker.events("completed") == [("completed", warm), ("completed", job)])

    def test_a_prioritized_one_wakes_an_idle_worker_as_well(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR, priority=3)
        worker = desk.queue.work("ok")
        warm = desk.queue.add("warm")
        desk.ended(warm)
        desk.does(Action.PROMOTE, job)
        desk.ended(job, seconds=WOKEN)
        until(lambda: worker.events("completed") == [("completed", warm), ("completed", job)])

    def test_its_delay_is_over_in_its_hash_too(self, desk: Desk) -> None:
        """The library's promoteJobs leaves it there: an event of the parent's would delay the job again."""
        job = desk.queue.add("later", delay=HOUR)
        desk.does(Action.PROMOTE, job)
        assert desk.hash(job)["delay"] == "0"
        assert desk.events()[-1] == {"event": "waiting", "jobId": job, "prev": "delayed"}

    def test_priorities_are_kept(self, desk: Desk) -> None:
        """The library's promoteJobs forgets them."""
        low = desk.queue.add("low", delay=HOUR, priority=9)
        high = desk.queue.add("high", delay=HOUR, priority=2)
        desk.act(Action.PROMOTE, low, high)
        worker = desk.queue.work("ok")
        desk.ended(low)
        until(lambda: [id for _, id in worker.events("completed")] == [high, low])

    def test_in_a_paused_queue_it_waits_for_the_end_of_the_pause(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        desk.queue.pause()
        desk.does(Action.PROMOTE, job)
        desk.queue.work("ok")
        desk.queue.resume()
        desk.ended(job)

    def test_only_delayed_jobs_are_promoted(self, desk: Desk) -> None:
        job = desk.queue.add()
        (refused,) = desk.act(Action.PROMOTE, job)
        assert refused.outcome is Outcome.REFUSED
        assert "Only delayed jobs are promoted" in refused.why

    def test_one_that_came_due_meanwhile_is_refused(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        seen = desk.seen(job)
        desk.queue.call_job(job, "promote")
        (refused,) = desk.act(Action.PROMOTE, seen)
        assert (refused.outcome, refused.state) == (Outcome.REFUSED, JobState.WAITING)

    def test_one_that_is_gone_is_missing(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        seen = desk.seen(job)
        desk.queue.call_job(job, "remove")
        assert [answer.outcome for answer in desk.act(Action.PROMOTE, seen)] == [Outcome.MISSING]


class TestFamilies:
    """A child that is retried is one its parent waits for again, from BullMQ 5.58.2 on."""

    @pytest.fixture(params=["bullmq5", "bullmq6"])
    def desk(self, request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
        with desk_of(request.param, libraries, valkey) as desk:
            yield desk

    @pytest.mark.parametrize(
        ("option", "book"),
        [
            ("ignoreDependencyOnFailure", "failed"),
            ("continueParentOnFailure", "failed"),
            ("failParentOnFailure", "unsuccessful"),
        ],
    )
    def test_a_failed_child_goes_back_whatever_kind_of_book_it_is_in(self, desk: Desk, option: str, book: str) -> None:
        """Up to 5.79.1 the library takes the hash for a sorted set and dies half-way."""
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name, "opts": {option: True}}])
        (child,) = (branch["id"] for branch in tree["children"])
        children.failed(child)
        parent = desk.queue.key(tree["id"])
        assert desk.store.client.exists(f"{parent}:{book}")
        children.does(Action.RETRY, child)
        assert not desk.store.client.exists(f"{parent}:{book}")
        assert desk.store.client.smembers(f"{parent}:dependencies") == {children.queue.key(child).encode()}
        children.done(child)
        assert desk.store.client.hexists(f"{parent}:processed", children.queue.key(child))

    def test_a_completed_child_goes_back(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}, {"queueName": "elsewhere"}])
        child = tree["children"][0]["id"]
        children.done(child)
        children.does(Action.RETRY, child)
        parent = desk.queue.key(tree["id"])
        assert children.queue.key(child).encode() in desk.store.client.smembers(f"{parent}:dependencies")
        assert not desk.store.client.exists(f"{parent}:processed")

    def test_books_of_a_foreign_type_refuse_it(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}])
        child = tree["children"][0]["id"]
        children.failed(child)
        desk.store.client.set(desk.queue.key(tree["id"], "unsuccessful"), "not a sorted set")
        before = desk.all_keys()
        (refused,) = children.act(Action.RETRY, child)
        assert refused.outcome is Outcome.REFUSED
        assert "unexpected type" in refused.why
        assert desk.all_keys() == before


def test_a_view_that_is_older_than_the_last_attempt_is_refused(valkey: Store, libraries: Fleet) -> None:
    with desk_of("bullmq6", libraries, valkey) as desk:
        job = desk.fail()
        older = replace(desk.seen(job), starts=0)
        assert [answer.outcome for answer in desk.act(Action.RETRY, older)] == [Outcome.REFUSED]
