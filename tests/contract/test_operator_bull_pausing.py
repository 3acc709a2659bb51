"""Pause and resume on queues of the real Bull 3 and 4: no job is lost, and twice is once."""

from __future__ import annotations

import pytest

from recovery.domain.actions.types import Action, Outcome
from tests.contract.bull_jobs import N8N, desk
from tests.contract.desk import Desk

__all__ = ["desk"]


class TestPauseAndResume:
    def test_workers_heed_it(self, desk: Desk) -> None:
        first = desk.queue.add("first")
        assert desk.turn(Action.PAUSE).outcome is Outcome.DONE
        assert desk.queue.is_paused()
        job = desk.queue.add("waits")
        assert desk.list("paused") == [job, first]
        assert desk.turn(Action.RESUME).outcome is Outcome.DONE
        desk.queue.work("ok")
        desk.ended(job)

    def test_twice_is_once(self, desk: Desk) -> None:
        desk.queue.add("waits")
        desk.turn(Action.PAUSE)
        for act in (Action.PAUSE, Action.RESUME, Action.RESUME):
            before = desk.all_keys()
            is_new = act is Action.RESUME and desk.store.client.exists(desk.queue.key("meta-paused")) == 1
            assert desk.turn(act).outcome is (Outcome.DONE if is_new else Outcome.UNCHANGED)
            assert is_new or desk.all_keys() == before

    @pytest.mark.parametrize("act", [Action.PAUSE, Action.RESUME])
    @pytest.mark.parametrize(("strays", "settled"), [(2, 3), (3, 2), (2500, 3), (3, 2500)])
    def test_no_job_is_lost_where_both_lists_have_some(
        self, desk: Desk, act: Action, strays: int, settled: int
    ) -> None:
        """The library renames one onto the other."""
        desk.queue.add("first")
        desk.store.client.delete(desk.queue.key("wait"))
        source, destination = ("wait", "paused") if act is Action.PAUSE else ("paused", "wait")
        moving = [f"a{number}" for number in range(strays)]
        there = [f"b{number}" for number in range(settled)]
        desk.store.client.rpush(desk.queue.key(source), *moving)
        desk.store.client.rpush(desk.queue.key(destination), *there)
        desk.store.client.set(desk.queue.key("meta-paused"), 1)
        assert desk.turn(act).outcome is Outcome.DONE
        assert desk.list(destination) == there + moving
        assert desk.list(source) == []

    def test_a_queue_of_n8n_is_not_paused(self, desk: Desk) -> None:
        """It takes the executions of a paused queue for crashed."""
        desk.queue.add("job", N8N)
        before = desk.all_keys()
        done = desk.turn(Action.PAUSE)
        assert (done.outcome, desk.all_keys()) == (Outcome.REFUSED, before)
        assert "n8n" in done.why
        assert desk.turn(Action.RESUME).outcome is Outcome.UNCHANGED
