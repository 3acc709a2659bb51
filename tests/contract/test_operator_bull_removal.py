"""Remove, clean and drain on queues of the real Bull 3 and 4, and back again."""

from __future__ import annotations

import pytest

from recovery.domain.actions.types import Action, ActionOptions, Outcome
from recovery.domain.jobs import JobState
from recovery.errors import WrongType
from tests.contract.bull_jobs import HOUR, desk, failed, unchanged
from tests.contract.desk import Desk, now

__all__ = ["desk"]


class TestRemove:
    @pytest.mark.parametrize("options", [{}, {"priority": 3}, {"delay": HOUR}, {"lifo": True}])
    def test_it_is_gone_and_can_come_back(self, desk: Desk, options: dict[str, int]) -> None:
        desk.queue.add("before")
        job = desk.queue.add("gone", {"to": "me"}, **options)
        desk.queue.add("after")
        desk.store.client.rpush(desk.queue.key(job, "logs"), "line")
        before = desk.all_keys()
        removed = desk.does(Action.REMOVE, job)
        assert desk.state(job) == "gone"
        assert not desk.store.client.exists(desk.queue.key(job, "logs"))
        assert removed.kept is not None
        assert desk.put_back(removed.kept).outcome is Outcome.DONE
        assert desk.all_keys() == before

    def test_neighbours_come_back_in_their_order(self, desk: Desk) -> None:
        jobs = desk.queue.add_many(6)
        for taken in (jobs[1:4], jobs[:2], jobs[4:], jobs):
            done = desk.act(Action.REMOVE, *taken)
            for one in reversed(done):
                assert one.kept is not None
                desk.put_back(one.kept)
            assert desk.list("wait") == jobs[::-1]

    def test_jobs_of_a_queue_that_was_paused_since_are_found(self, desk: Desk) -> None:
        job = desk.queue.add("waits")
        seen = desk.seen(job)
        desk.queue.pause()
        (done,) = desk.act(Action.REMOVE, seen)
        assert done.outcome is Outcome.DONE
        assert desk.list("paused") == []
        assert done.kept is not None
        desk.queue.resume()
        assert desk.put_back(done.kept).state is JobState.WAITING
        assert desk.list("wait") == [job]

    @pytest.mark.parametrize("outcome", [JobState.FAILED, JobState.COMPLETED])
    def test_a_finished_one_comes_back_where_it_was(self, desk: Desk, outcome: JobState) -> None:
        job = failed(desk) if outcome is JobState.FAILED else desk.queue.add("done")
        if outcome is JobState.COMPLETED:
            desk.done(job)
        before = desk.all_keys()
        removed = desk.does(Action.REMOVE, job)
        assert removed.kept is not None
        desk.put_back(removed.kept)
        assert desk.all_keys() == before

    def test_the_limiters_books_are_closed(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        key = desk.queue.key
        desk.store.client.sadd(key("limiter", "limited"), job, "other")
        desk.store.client.hset(key("limiter", "index"), job, key("limiter", "limited"))
        desk.does(Action.REMOVE, job)
        assert desk.store.client.smembers(key("limiter", "limited")) == {b"other"}
        assert not desk.store.client.exists(key("limiter", "index"))

    @pytest.mark.parametrize(("holder", "is_kept"), [("own", False), ("other", True)])
    def test_doubles_are_let_in_again_unless_the_key_is_another_jobs(
        self, desk: Desk, holder: str, is_kept: bool
    ) -> None:
        job = desk.queue.add("once")
        desk.store.client.hset(desk.queue.key(job), "deid", "same")
        desk.store.client.set(desk.queue.key("de", "same"), job if holder == "own" else "999", px=60_000)
        desk.does(Action.REMOVE, job)
        assert bool(desk.store.client.exists(desk.queue.key("de", "same"))) == is_kept

    def test_one_that_is_too_large_is_gone_for_good(self, desk: Desk) -> None:
        job = desk.queue.add("big", {"blob": "x" * 1_100_000})
        assert desk.does(Action.REMOVE, job).kept is None

    def test_a_hash_that_is_nowhere_is_removed_only_while_it_is_nowhere(self, desk: Desk) -> None:
        desk.queue.add("first")
        job = desk.queue.add("lost")
        desk.store.client.lrem(desk.queue.key("wait"), 1, job)
        seen = desk.seen(job)
        assert seen.state is JobState.UNKNOWN
        desk.store.client.lpush(desk.queue.key("wait"), job)
        assert unchanged(desk, Action.REMOVE, seen)[0].state is JobState.WAITING
        desk.store.client.lrem(desk.queue.key("wait"), 1, job)
        desk.does(Action.REMOVE, seen)
        assert desk.state(job) == "gone"

    def test_an_id_that_is_used_again_is_not_overwritten(self, desk: Desk) -> None:
        job = desk.queue.add("mine", jobId="mine")
        removed = desk.does(Action.REMOVE, job)
        desk.queue.add("mine", jobId="mine")
        before = desk.all_keys()
        assert removed.kept is not None
        done = desk.put_back(removed.kept)
        assert (done.outcome, desk.all_keys()) == (Outcome.REFUSED, before)
        assert "in use again" in done.why


class TestCleanAndDrain:
    def test_a_drain_takes_all_that_wait_and_leaves_the_pause(self, desk: Desk) -> None:
        """The library's own takes the pause off, and leaves hashes, logs and keys against doubles."""
        key = desk.queue.key
        jobs = [desk.queue.add("plain"), desk.queue.add("urgent", priority=1), desk.queue.add("later", delay=HOUR)]
        desk.queue.pause()
        for job in jobs:
            desk.store.client.rpush(key(job, "logs"), "line")
        first = desk.take_away(Action.DRAIN, budget=1)
        assert (first.removed, first.is_finished) == (1, False)
        rest = desk.take_away(Action.DRAIN, budget=10, delayed=True)
        assert (rest.removed, rest.is_finished) == (2, True)
        assert desk.queue.is_paused()
        left = {name.removeprefix(key("")) for name in desk.all_keys()}
        assert left == {"id", "meta", "meta-paused"}

    def test_delayed_jobs_stay_unless_they_are_meant(self, desk: Desk) -> None:
        desk.queue.add("later", delay=HOUR)
        assert desk.take_away(Action.DRAIN).removed == 0

    def test_the_next_run_of_a_schedule_stays(self, desk: Desk) -> None:
        """Without it the schedule would never run again."""
        desk.queue.schedule("nightly", {"pattern": "0 3 * * *"}, "tick")
        desk.queue.add("later", delay=HOUR)
        removed = desk.take_away(Action.DRAIN, delayed=True)
        assert (removed.removed, removed.skipped) == (1, 1)
        assert len(desk.zset("delayed")) == 1

    def test_many_go_in_steps_and_come_back_in_their_order(self, desk: Desk) -> None:
        jobs = desk.queue.add_many(1250)
        steps = []
        while not steps or not steps[-1].is_finished:
            steps.append(desk.take_away(Action.DRAIN, budget=400))
        assert [step.removed for step in steps] == [400, 400, 400, 50]
        assert desk.store.client.keys(desk.queue.key("*")) == [desk.queue.key("id").encode()]
        for one in reversed([one for step in steps for one in step.jobs]):
            desk.put_back(one)
        assert desk.list("wait") == jobs[::-1]

    @pytest.mark.parametrize("state", [JobState.FAILED, JobState.DELAYED, JobState.WAITING])
    def test_a_clean_takes_what_is_old_enough(self, desk: Desk, state: JobState) -> None:
        jobs = [_in(desk, state) for _ in range(4)]
        for job in jobs[:2]:
            _age(desk, state, job, 2 * HOUR)
        desk.store.client.set(desk.queue.key(jobs[0], "lock"), "somebody")
        removed = desk.take_away(Action.CLEAN, state=state, older_than=HOUR)
        assert ([one.id for one in removed.jobs], removed.is_finished) == ([jobs[1]], True)
        assert sorted(desk.zset(state) or desk.list("wait")) == sorted([jobs[0], *jobs[2:]])

    def test_a_clean_stops_at_its_limit(self, desk: Desk) -> None:
        jobs = [failed(desk) for _ in range(5)]
        removed = desk.take_away(Action.CLEAN, state=JobState.FAILED, limit=2)
        assert (removed.removed, removed.is_finished) == (2, True)
        assert set(desk.zset("failed")) == set(jobs[2:])

    def test_active_jobs_are_cleaned_only_when_they_are_proven_nobodys(self, desk: Desk) -> None:
        desk.queue.add("orphan")
        desk.store.client.rpoplpush(desk.queue.key("wait"), desk.queue.key("active"))
        assert desk.take_away(Action.CLEAN, state=JobState.ACTIVE).removed == 0
        assert desk.take_away(Action.CLEAN, state=JobState.ACTIVE, is_late=True).removed == 1

    def test_a_list_that_is_none_is_told(self, desk: Desk) -> None:
        desk.queue.add("later", delay=HOUR)
        target = desk.target
        desk.store.client.set(desk.queue.key("wait"), "not a list")
        with pytest.raises(WrongType):
            desk.operator.take_away(Action.DRAIN, target, ActionOptions(), now(), budget=5)


def _in(desk: Desk, state: JobState) -> str:
    if state is JobState.FAILED:
        return failed(desk)
    return desk.queue.add("job", delay=HOUR if state is JobState.DELAYED else 0)


def _age(desk: Desk, state: JobState, job: str, ms: int) -> None:
    desk.store.client.hset(desk.queue.key(job), "timestamp", now() - ms)
    if state is JobState.FAILED:
        desk.store.client.zadd(desk.queue.key("failed"), {job: now() - ms})
