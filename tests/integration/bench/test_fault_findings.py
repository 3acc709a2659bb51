"""What the fault benchmark finds wrong with the jobs of a run: else each fault would be called held."""

from __future__ import annotations

from typing import Any

import pytest

from bench.faults import FaultSampler, RunUnderFault, _places
from tests.support.processes.fleet import Queue
from tests.support.stores.stores import Store

DONE = {"1": "done", "2": "done"}
_NOTHING: Any = None


@pytest.fixture
def queue(valkey: Store) -> Queue:
    """Two jobs that were put back."""
    made = Queue(_NOTHING, valkey.url, "bull", "mail")
    for id in DONE:
        valkey.client.hset(made.key(id), "stc", 1)
        valkey.client.rpush(made.key("wait"), id)
    return made


def wrong(store: Store, queue: Queue, outcomes: dict[str, str] = DONE, *, loses_all: bool = False) -> list[str]:
    return list(_places(store.client, queue, len(DONE), outcomes, loses_all=loses_all))


def test_jobs_that_are_back_once_are_right(valkey: Store, queue: Queue) -> None:
    assert wrong(valkey, queue) == []


def test_a_job_that_is_there_twice(valkey: Store, queue: Queue) -> None:
    valkey.client.rpush(queue.key("wait"), "1")
    assert "1 jobs are there twice" in wrong(valkey, queue)


def test_a_job_that_is_gone(valkey: Store, queue: Queue) -> None:
    valkey.client.lrem(queue.key("wait"), 0, "2")
    assert "1 jobs are in no list" in wrong(valkey, queue)


def test_a_job_that_was_left_is_right_only_where_its_outcome_is_unknown(valkey: Store, queue: Queue) -> None:
    valkey.client.lmove(queue.key("wait"), queue.key("active"))
    valkey.client.hdel(queue.key("1"), "stc")
    assert wrong(valkey, queue) == ["1 jobs are not put back"]
    assert wrong(valkey, queue, {"1": "unknown", "2": "done"}) == []


def test_a_job_that_was_put_back_and_is_said_not_to_be(valkey: Store, queue: Queue) -> None:
    assert wrong(valkey, queue, {"1": "refused", "2": "done"}) == ["1 jobs are put back and not said to be"]


def test_a_job_that_was_put_back_twice_though_it_is_there_once(valkey: Store, queue: Queue) -> None:
    valkey.client.hset(queue.key("2"), "stc", 2)
    assert wrong(valkey, queue) == ["1 jobs have another stalled counter than their runs"]


def test_a_job_that_is_there_after_its_store_lost_all(valkey: Store, queue: Queue) -> None:
    assert wrong(valkey, queue, loses_all=True) == ["2 jobs were invented"]
    valkey.flush()
    assert wrong(valkey, queue, loses_all=True) == []


def test_a_run_rests_from_its_last_step_to_the_next() -> None:
    run: RunUnderFault = _NOTHING
    sampler = FaultSampler(run)
    sampler.steps = [(0.0, 10), (1.0, 20), (2.0, 20), (9.0, 20), (9.5, 30), (10.0, 40)]
    assert sampler.rest_after(1.5) == 8.0
