"""Clean and drain on queues of the real BullMQ 3 to 6: in bounded steps, and only what may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from recovery.backends.bullmq import clean_drain
from recovery.domain.actions.types import Action, Outcome, RemovalStep
from recovery.domain.jobs import JobState
from recovery.errors import Unsupported
from tests.contract.desk import GENERATIONS, Desk, desk_of
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store

HOUR = 3_600_000


@pytest.fixture(params=GENERATIONS)
def desk(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk


def _steps(desk: Desk, act: Action, *, budget: int, **options: object) -> list[RemovalStep]:
    """All steps, one after the other, each from where the last one ended."""
    steps = [desk.take_away(act, budget=budget, **options)]
    while not steps[-1].is_finished:
        assert len(steps) < 100
        steps.append(desk.take_away(act, budget=budget, **options | {"cursor": steps[-1].next}))
    return steps


class TestClean:
    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETED])
    def test_finished_jobs_go_in_steps_the_oldest_first(self, desk: Desk, state: JobState) -> None:
        jobs = desk.queue.add_many(7)
        desk.failed(*jobs) if state is JobState.FAILED else desk.done(*jobs)
        steps = _steps(desk, Action.CLEAN, budget=3, state=state)
        assert [step.removed for step in steps] == [3, 3, 1]
        assert [kept.id for step in steps for kept in step.jobs] == jobs
        assert desk.queue.counts()[state.value] == 0
        assert not [key for key in desk.all_keys() if key.rpartition(":")[2] in jobs]
        assert [event["count"] for event in desk.events() if event["event"] == "cleaned"] == ["3", "3", "1"]

    def test_without_the_cursor_it_comes_to_its_end_as_well(self, desk: Desk) -> None:
        jobs = desk.queue.add_many(5)
        desk.failed(*jobs)
        steps = [desk.take_away(Action.CLEAN, budget=2, state=JobState.FAILED) for _ in range(3)]
        assert [(step.removed, step.is_finished) for step in steps] == [(2, False), (2, False), (1, True)]

    def test_what_is_too_young_stays(self, desk: Desk) -> None:
        jobs = desk.queue.add_many(3)
        desk.done(*jobs)
        scores = desk.store.client.zrange(desk.queue.key("completed"), 0, 0, withscores=True)
        oldest = scores[0][0].decode()
        desk.store.client.zincrby(desk.queue.key("completed"), -HOUR, oldest)
        (step,) = _steps(desk, Action.CLEAN, budget=10, state=JobState.COMPLETED, older_than=HOUR // 2)
        assert [kept.id for kept in step.jobs] == [oldest]
        assert desk.queue.counts()["completed"] == 2

    @pytest.mark.parametrize("state", [JobState.WAITING, JobState.DELAYED, JobState.PRIORITIZED])
    def test_jobs_that_did_not_run_go_by_their_age(self, desk: Desk, state: JobState) -> None:
        if state is JobState.PRIORITIZED and desk.queue.library.major < 4:
            pytest.skip("no such state")
        options = {JobState.DELAYED: {"delay": HOUR}, JobState.PRIORITIZED: {"priority": 2}}.get(state, {})
        jobs = [desk.queue.add("job", **options) for _ in range(4)]
        for job in jobs[1:3]:
            desk.store.client.hincrby(desk.queue.key(job), "timestamp", -HOUR)
        steps = _steps(desk, Action.CLEAN, budget=1, state=state, older_than=HOUR // 2)
        assert sorted(kept.id for step in steps for kept in step.jobs) == jobs[1:3]
        assert [desk.state(job) == "gone" for job in jobs] == [False, True, True, False]
        assert max(step.removed for step in steps) == 1

    def test_the_script_looks_at_the_age_itself(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """A job may have been retried since its age was read."""
        monkeypatch.setattr(clean_drain, "_age", lambda state, reply: 0)
        desk.queue.add("young")
        (step,) = _steps(desk, Action.CLEAN, budget=10, state=JobState.WAITING, older_than=HOUR)
        assert (step.removed, step.skipped) == (0, 1)

    def test_active_jobs_go_only_without_a_lock(self, desk: Desk) -> None:
        (orphan,) = desk.orphaned()
        held = desk.queue.add("long")
        worker = desk.queue.work("hang")
        desk.running_beside(orphan)
        (step,) = _steps(desk, Action.CLEAN, budget=10, state=JobState.ACTIVE)
        assert [kept.id for kept in step.jobs] == [orphan]
        assert step.skipped == 1
        worker.release()
        desk.ended(held)

    def test_whoever_is_passed_over_is_passed_over_once(self, desk: Desk) -> None:
        young = desk.queue.add_many(5)
        old = desk.queue.add_many(5)
        for job in old:
            desk.store.client.hincrby(desk.queue.key(job), "timestamp", -HOUR)
        steps = _steps(desk, Action.CLEAN, budget=2, state=JobState.WAITING, older_than=HOUR // 2)
        assert sum(step.skipped for step in steps) == len(young)
        assert sum(step.removed for step in steps) == len(old)

    def test_no_more_than_the_limit(self, desk: Desk) -> None:
        jobs = desk.queue.add_many(7)
        desk.failed(*jobs)
        first = desk.take_away(Action.CLEAN, budget=3, state=JobState.FAILED, limit=5)
        second = desk.take_away(Action.CLEAN, budget=3, state=JobState.FAILED, limit=2, cursor=first.next)
        assert [(step.removed, step.is_finished) for step in (first, second)] == [(3, False), (2, True)]
        assert desk.queue.counts()["failed"] == 2

    def test_the_next_run_of_a_scheduler_stays(self, desk: Desk) -> None:
        """Before 5.16 the library takes it away, and the schedule ends without a word."""
        desk.queue.schedule("yearly", {"pattern": "0 0 1 1 *"})
        other = desk.queue.add("later", delay=HOUR)
        (step,) = _steps(desk, Action.CLEAN, budget=10, state=JobState.DELAYED)
        assert [kept.id for kept in step.jobs] == [other]
        assert desk.queue.counts()["delayed"] == 1

    def test_what_was_taken_away_can_be_put_back(self, desk: Desk) -> None:
        job = desk.fail()
        before = desk.hash(job)
        (step,) = _steps(desk, Action.CLEAN, budget=10, state=JobState.FAILED)
        assert desk.put_back(step.jobs[0]).outcome is Outcome.DONE
        assert desk.hash(job) == before
        assert desk.state(job) == "failed"

    @pytest.mark.parametrize("state", [None, JobState.WAITING_CHILDREN, JobState.UNKNOWN])
    def test_a_state_that_the_library_does_not_clean_is_refused(self, desk: Desk, state: JobState | None) -> None:
        desk.queue.add()
        with pytest.raises(Unsupported, match="Clean takes one of these states"):
            desk.take_away(Action.CLEAN, state=state)

    def test_the_library_would_leave_the_same(self, desk: Desk) -> None:
        theirs = desk.beside(desk.queue.library.queue(desk.store))
        for one in (desk, theirs):
            one.failed(*one.queue.add_many(3))
            one.queue.add("waits")
        theirs.queue.call("clean", 0, 100, "failed")
        desk.take_away(Action.CLEAN, state=JobState.FAILED)
        assert desk.hash("meta") == theirs.hash("meta")
        assert desk.queue.counts() == theirs.queue.counts()
        assert desk.events()[-1] == theirs.events()[-1]


class TestDrain:
    def test_all_that_waits_goes_and_the_rest_stays(self, desk: Desk) -> None:
        failed, done = desk.fail(), desk.queue.add("done")
        desk.done(done)
        held = desk.queue.add("held")
        worker = desk.queue.work("hang")
        desk.running()
        desk.queue.add_many(5)
        desk.queue.add("urgent", priority=3)
        later = desk.queue.add("later", delay=HOUR)
        steps = _steps(desk, Action.DRAIN, budget=2)
        assert sum(step.removed for step in steps) == 6
        assert max(step.removed for step in steps) == 2
        assert [desk.state(job) for job in (failed, done, held, later)] == ["failed", "completed", "active", "delayed"]
        counts = desk.queue.counts()
        assert (counts["waiting"], counts.get("prioritized", 0)) == (0, 0)
        worker.release()
        desk.ended(held)

    def test_delayed_jobs_go_when_asked(self, desk: Desk) -> None:
        desk.queue.add("later", delay=HOUR)
        _steps(desk, Action.DRAIN, budget=10, delayed=True)
        assert desk.queue.counts()["delayed"] == 0

    def test_a_paused_queue_stays_paused(self, desk: Desk) -> None:
        desk.queue.add_many(3)
        desk.queue.pause()
        _steps(desk, Action.DRAIN, budget=10)
        assert desk.queue.is_paused()
        assert sum(desk.queue.counts().values()) == 0

    def test_schedulers_go_on(self, desk: Desk) -> None:
        desk.queue.schedule("yearly", {"pattern": "0 0 1 1 *"})
        desk.queue.add("later", delay=HOUR)
        _steps(desk, Action.DRAIN, budget=10, delayed=True)
        assert [job["name"] for job in desk.queue.jobs("delayed")] == ["tick"]

    def test_a_parent_of_another_queue_is_let_go(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}] * 2)
        _steps(children, Action.DRAIN, budget=10, other_queues=True)
        desk.done(tree["id"])

    def test_a_parent_of_the_same_queue_goes_with_its_last_child_and_both_come_back(self, desk: Desk) -> None:
        tree = desk.queue.add_flow([{"name": "child"}])
        (step,) = _steps(desk, Action.DRAIN, budget=10)
        assert step.removed == 1
        assert [kept.state for kept in step.jobs] == [JobState.WAITING, JobState.WAITING_CHILDREN]
        assert not [key for key in desk.all_keys() if tree["id"] in key]
        for kept in step.jobs:
            assert desk.put_back(kept).outcome is Outcome.DONE
        worker = desk.queue.work("ok")
        desk.ended(tree["id"])
        assert [id for _, id in worker.events("completed")] == [tree["children"][0]["id"], tree["id"]]

    def test_workers_take_what_comes_after_it(self, desk: Desk) -> None:
        desk.queue.add_many(3)
        _steps(desk, Action.DRAIN, budget=10)
        job = desk.queue.add("next")
        desk.done(job)

    def test_each_job_is_a_script_of_its_own_so_that_others_are_served_in_between(self, desk: Desk) -> None:
        desk.queue.add_many(600)
        desk.pipe.reset()
        (step,) = _steps(desk, Action.DRAIN, budget=1000)
        assert (step.removed, desk.pipe.commands.count("EVALSHA")) == (600, 600)
        assert desk.pipe.trips < 20


def test_an_unknown_act_takes_nothing_away(valkey: Store, libraries: Fleet) -> None:
    with desk_of("bullmq6", libraries, valkey) as desk:
        desk.queue.add()
        with pytest.raises(Unsupported):
            desk.take_away(Action.REMOVE)
        assert replace(desk.take_away(Action.DRAIN), jobs=()).removed == 1
