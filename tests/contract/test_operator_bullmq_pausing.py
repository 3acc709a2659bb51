"""Pause, resume and cancel on queues of the real BullMQ 3 to 6."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from recovery.backends.base import Target
from recovery.backends.bullmq.pause_cancel import cancel_channel
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.jobs import JobState
from recovery.errors import Unsupported, WrongType
from tests.contract.desk import GENERATIONS, Desk, desk_of
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.waiting import until

HOUR = 3_600_000


@pytest.fixture(params=GENERATIONS)
def desk(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk


class TestPause:
    def test_no_worker_takes_another_job(self, desk: Desk) -> None:
        first = desk.queue.add("first")
        assert desk.turn(Action.PAUSE).outcome is Outcome.DONE
        worker = desk.queue.work("ok")
        second = desk.queue.add("second")
        assert desk.queue.is_paused()
        assert worker.events() == []
        assert desk.turn(Action.RESUME).outcome is Outcome.DONE
        desk.ended(first)
        desk.ended(second)

    def test_the_library_would_leave_the_same(self, desk: Desk) -> None:
        """The same jobs in two queues, one paused and resumed by the library, one by us."""
        theirs = desk.beside(desk.queue.library.queue(desk.store))
        for queue in (desk.queue, theirs.queue):
            queue.add("plain", jobId="a")
            queue.add("urgent", jobId="b", priority=2)
            queue.add("later", jobId="c", delay=HOUR)
        desk.turn(Action.PAUSE)
        theirs.queue.pause()
        assert _state(desk) == _state(theirs)
        desk.turn(Action.RESUME)
        theirs.queue.resume()
        assert _state(desk) == _state(theirs)

    def test_twice_is_once(self, desk: Desk) -> None:
        desk.queue.add()
        desk.turn(Action.PAUSE)
        before = desk.all_keys()
        done = desk.turn(Action.PAUSE)
        assert (done.outcome, done.why) == (Outcome.UNCHANGED, "The queue is paused already.")
        assert desk.all_keys() == before

    def test_jobs_that_stand_in_both_lists_are_all_kept(self, desk: Desk) -> None:
        """The library renames one list over the other: what was in it is lost."""
        if desk.queue.library.major == 6:
            pytest.skip("6 has one list")
        jobs = [desk.queue.add("job") for _ in range(3)]
        stray = desk.queue.add("stray")
        desk.store.client.lrem(desk.queue.key("wait"), 0, stray)
        desk.store.client.lpush(desk.queue.key("paused"), stray)
        desk.turn(Action.PAUSE)
        assert desk.list("paused") == [stray, *reversed(jobs)]
        assert desk.list("wait") == []
        desk.turn(Action.RESUME)
        desk.done(*jobs, stray)

    def test_a_long_stray_list_is_kept_in_order(self, desk: Desk) -> None:
        if desk.queue.library.major == 6:
            pytest.skip("6 has one list")
        strays, target = desk.queue.add_many(12_000), desk.target
        desk.store.client.rename(desk.queue.key("wait"), desk.queue.key("paused"))
        jobs = desk.queue.add_many(6_000)
        desk.turn(Action.PAUSE, target)
        assert [id for id in desk.list("paused") if id[:2] != "0:"] == [*reversed(strays), *reversed(jobs)]
        desk.store.client.rename(desk.queue.key("paused"), desk.queue.key("wait"))
        desk.store.client.rpush(desk.queue.key("paused"), "next")
        desk.turn(Action.RESUME, target)
        assert desk.list("wait")[-2:] == [jobs[0], "next"]

    def test_a_key_of_a_foreign_type_stops_it_before_anything_is_written(self, desk: Desk) -> None:
        desk.queue.add()
        target = desk.target
        desk.store.client.set(desk.queue.key("paused"), "not a list")
        before = desk.all_keys()
        with pytest.raises(WrongType):
            desk.turn(Action.PAUSE, target)
        assert desk.all_keys() == before


class TestResume:
    def test_an_idle_worker_wakes(self, desk: Desk) -> None:
        """Long before its own patience of ten seconds ends."""
        worker = desk.queue.work("ok")
        warm = desk.queue.add("warm")
        desk.ended(warm)
        desk.turn(Action.PAUSE)
        job, urgent = desk.queue.add("job"), desk.queue.add("urgent", priority=1)
        desk.turn(Action.RESUME)
        until(lambda: len(worker.events("completed")) == 3, seconds=4)
        assert {id for _, id in worker.events("completed")} == {warm, job, urgent}

    def test_a_queue_that_is_not_paused_is_left_alone(self, desk: Desk) -> None:
        desk.queue.add()
        before = desk.all_keys()
        done = desk.turn(Action.RESUME)
        assert (done.outcome, done.why) == (Outcome.UNCHANGED, "The queue is not paused.")
        assert desk.all_keys() == before

    def test_a_delayed_job_runs_when_it_is_due(self, desk: Desk) -> None:
        job = desk.queue.add("soon", delay=300)
        desk.turn(Action.PAUSE)
        desk.turn(Action.RESUME)
        desk.queue.work("ok")
        desk.ended(job)

    def test_jobs_left_in_the_list_of_paused_ones_are_brought_back(self, desk: Desk) -> None:
        """No worker of any version looks there while the queue is not paused."""
        job = desk.queue.add("lost")
        desk.store.client.rename(desk.queue.key("wait"), desk.queue.key("paused"))
        assert desk.turn(Action.RESUME).outcome is Outcome.DONE
        desk.done(job)

    def test_jobs_of_both_lists_are_brought_back(self, desk: Desk) -> None:
        """A resume of version 5 would rename over what a producer of version 6 has added meanwhile."""
        first, target = desk.queue.add("paused"), desk.target
        desk.queue.pause()
        if desk.queue.library.major == 6:
            desk.store.client.rename(desk.queue.key("wait"), desk.queue.key("paused"))
        late = desk.queue.add("late")
        desk.store.client.lrem(desk.queue.key("paused"), 0, late)
        desk.store.client.lrem(desk.queue.key("wait"), 0, late)
        desk.store.client.lpush(desk.queue.key("wait"), late)
        desk.turn(Action.RESUME, target)
        desk.done(first, late)


@pytest.mark.parametrize("act", [Action.PAUSE, Action.RESUME])
def test_two_generations_at_work_refuse_it(valkey: Store, libraries: Fleet, act: Action) -> None:
    with desk_of("bullmq6", libraries, valkey) as desk:
        desk.queue.add()
        mixed = Target(desk.pipe, desk.ref, desk.flavour._replace(mixed=True, major=5))
        before = desk.all_keys()
        with pytest.raises(Unsupported, match="two BullMQ generations"):
            desk.turn(act, mixed)
        assert desk.all_keys() == before


class TestCancel:
    def test_whoever_listens_is_told_which_job(self, desk: Desk) -> None:
        job = _held(desk)
        listener = desk.store.client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe(cancel_channel(desk.queue.base))
        until(lambda: desk.store.client.pubsub_numsub(cancel_channel(desk.queue.base))[0][1])
        done = desk.does(Action.CANCEL, job)
        assert done.why == "1 listener was notified; the worker that runs it stops it."
        message = until(lambda: listener.get_message(timeout=1))
        assert json.loads(message["data"]) == job
        listener.close()

    def test_nobody_listens_and_it_says_so(self, desk: Desk) -> None:
        job = _held(desk)
        (refused,) = desk.act(Action.CANCEL, job)
        assert refused.outcome is Outcome.REFUSED
        assert refused.why.startswith("No worker listens for it")
        assert desk.state(job) == "active"

    def test_a_job_that_nobody_holds_is_refused(self, desk: Desk) -> None:
        job = _held(desk)
        seen = desk.seen(job)
        desk.store.client.delete(desk.queue.key(job, "lock"))
        (refused,) = desk.act(Action.CANCEL, seen)
        assert "No worker holds it" in refused.why

    def test_a_job_that_another_worker_took_meanwhile_is_refused(self, desk: Desk) -> None:
        job = _held(desk)
        (refused,) = desk.act(Action.CANCEL, replace(desk.seen(job), token="another:1"))
        assert "Another worker holds it now" in refused.why

    def test_a_job_that_does_not_run_is_refused(self, desk: Desk) -> None:
        (refused,) = desk.act(Action.CANCEL, desk.queue.add())
        assert (refused.outcome, refused.state) == (Outcome.REFUSED, JobState.WAITING)


def _held(desk: Desk) -> str:
    job = desk.queue.add("long")
    desk.queue.work("hang")
    desk.running()
    return job


def _state(desk: Desk) -> dict[str, object]:
    """What decides what happens next. Times differ by milliseconds, so marks of time are only counted."""
    return {
        "wait": [id if id[:2] != "0:" else "0:" for id in desk.list("wait")],
        "paused": [id if id[:2] != "0:" else "0:" for id in desk.list("paused")],
        "marker": list(desk.zset("marker")),
        "prioritized": desk.zset("prioritized"),
        "delayed": list(desk.zset("delayed")),
        "meta": desk.hash("meta"),
        "events": desk.events()[-1],
    }
