"""Retry, promote and cancel on queues of the real Bull 3 and 4: jobs go where the library would put them, once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from recovery.domain.actions.types import Action, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from tests.contract.bull_jobs import HOUR, desk, failed, held, unchanged
from tests.contract.desk import Desk
from tests.support.waiting import until

__all__ = ["desk"]


class TestRetry:
    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETED])
    def test_a_live_worker_takes_it_again(self, desk: Desk, state: JobState) -> None:
        job = desk.queue.add("again")
        (desk.failed if state is JobState.FAILED else desk.done)(job)
        desk.does(Action.RETRY, job)
        assert {"finishedOn", "processedOn", "failedReason"}.isdisjoint(desk.hash(job))
        worker = desk.queue.work("ok")
        until(lambda: ("completed", job) in worker.events())

    def test_it_keeps_its_priority(self, desk: Desk) -> None:
        """The library puts it behind all others."""
        job = failed(desk, priority=2)
        first, last = desk.queue.add("urgent", priority=1), desk.queue.add("slow", priority=3)
        desk.does(Action.RETRY, job)
        assert desk.list("wait") == [last, job, first]
        assert desk.zset("priority") == {first: 1, job: 2, last: 3}

    def test_lifo_runs_next(self, desk: Desk) -> None:
        job, waiting = failed(desk, lifo=True), desk.queue.add("waits")
        desk.does(Action.RETRY, job)
        assert desk.list("wait") == [waiting, job]

    def test_a_paused_queue_stays_paused(self, desk: Desk) -> None:
        job = failed(desk)
        desk.queue.pause()
        desk.does(Action.RETRY, job)
        assert (desk.list("paused"), desk.list("wait")) == ([job], [])

    def test_stalls_and_attempts_can_be_forgotten(self, desk: Desk) -> None:
        job = failed(desk)
        desk.store.client.hset(desk.queue.key(job), mapping={"stalledCounter": 2, "attemptsMade": 3})
        desk.does(Action.RETRY, job, reset_stalls=True, reset_attempts=True)
        assert {"stalledCounter", "attemptsMade"}.isdisjoint(desk.hash(job))

    def test_one_that_was_retried_already_keeps_its_fields(self, desk: Desk) -> None:
        """The library wipes them first and looks for the job afterwards."""
        job = failed(desk)
        seen = desk.seen(job)
        desk.does(Action.RETRY, job)
        desk.store.client.hset(desk.queue.key(job), "processedOn", str(seen.processed_at))
        (done,) = unchanged(desk, Action.RETRY, seen)
        assert (done.state, done.why) == (JobState.WAITING, "It is waiting now, not failed any more.")

    def test_a_locked_one_is_refused(self, desk: Desk) -> None:
        job = failed(desk)
        desk.store.client.set(desk.queue.key(job, "lock"), "somebody", px=60_000)
        assert "locked" in unchanged(desk, Action.RETRY, desk.seen(job))[0].why

    def test_one_that_failed_again_since_is_refused(self, desk: Desk) -> None:
        job = failed(desk)
        older = replace(desk.seen(job), processed_at=2)
        assert "since it was shown" in unchanged(desk, Action.RETRY, older)[0].why

    def test_a_waiting_one_is_refused(self, desk: Desk) -> None:
        job = desk.queue.add("waits")
        assert "It was waiting" in unchanged(desk, Action.RETRY, desk.seen(job))[0].why

    def test_hundreds_go_in_one_call(self, desk: Desk) -> None:
        jobs = [failed(desk) for _ in range(300)]
        done = desk.act(Action.RETRY, *(ExpectedJob(job, JobState.FAILED, processed_at=1) for job in jobs))
        assert {one.outcome for one in done} == {Outcome.DONE}
        assert desk.list("wait") == jobs[::-1]


class TestPromote:
    def test_a_live_worker_takes_it_at_once(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        desk.does(Action.PROMOTE, job)
        desk.queue.work("ok")
        desk.ended(job)
        assert desk.hash(job)["delay"] == "0"

    def test_it_goes_among_its_equals(self, desk: Desk) -> None:
        job, first = desk.queue.add("later", delay=HOUR, priority=2), desk.queue.add("urgent", priority=1)
        last = desk.queue.add("slow", priority=3)
        desk.does(Action.PROMOTE, job)
        assert desk.list("wait") == [last, job, first]

    def test_a_paused_queue_stays_paused_even_when_it_is_empty(self, desk: Desk) -> None:
        """Bull 3 asks whether `paused` has jobs, and else pushes to `wait`."""
        job = desk.queue.add("later", delay=HOUR)
        desk.queue.pause()
        desk.does(Action.PROMOTE, job)
        assert (desk.list("paused"), desk.list("wait")) == ([job], [])

    def test_one_that_came_due_is_refused(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        seen = desk.seen(job)
        desk.queue.call_job(job, "promote")
        assert unchanged(desk, Action.PROMOTE, seen)[0].state is JobState.WAITING

    def test_one_that_is_gone_is_missing(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        seen = desk.seen(job)
        desk.queue.call_job(job, "remove")
        assert [done.outcome for done in desk.act(Action.PROMOTE, seen)] == [Outcome.MISSING]


class TestCancel:
    def test_the_wish_is_published(self, desk: Desk) -> None:
        job = held(desk)
        listener = desk.store.connect().pubsub(ignore_subscribe_messages=False)
        listener.subscribe(f"unstall:cancel:{desk.queue.base}")
        until(lambda: (listener.get_message(timeout=1) or {}).get("type") == "subscribe")
        done = desk.does(Action.CANCEL, job)
        heard = until(lambda: listener.get_message(timeout=1))
        listener.close()
        assert done.why.startswith("1 listener was notified")
        assert json.loads(heard["data"]) == job

    def test_when_nobody_listens_it_says_so(self, desk: Desk) -> None:
        job = held(desk)
        (done,) = unchanged(desk, Action.CANCEL, desk.seen(job))
        assert done.why.startswith("No worker listens")

    def test_another_holder_is_not_told(self, desk: Desk) -> None:
        job = held(desk)
        seen = replace(desk.seen(job), token="another")
        assert "Its lock is not the one" in unchanged(desk, Action.CANCEL, seen)[0].why

    def test_a_job_that_nobody_holds_is_refused(self, desk: Desk) -> None:
        job = held(desk)
        desk.store.client.delete(desk.queue.key(job, "lock"))
        assert "no longer has a lock" in unchanged(desk, Action.CANCEL, desk.seen(job))[0].why
