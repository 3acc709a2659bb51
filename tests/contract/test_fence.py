"""Whoever leads no more changes nothing: each script of both libraries refuses an older epoch than it has met."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from recovery.backends.base import ACTIVE_CHUNK
from recovery.backends.redis_common import fencing
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from recovery.domain.scheduler.consoles import LIFE
from recovery.errors import Fenced, WrongType
from recovery.stores.redis.scripts import script
from tests.support.stores.fences import ATTEMPTS, FLAVOURS, NOW, Attempt, Overtaken, Queue, hold, put_back, turn
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

BACKENDS = Path(__file__).parents[2] / "recovery" / "backends"
SCRIPTS = sorted(BACKENDS.glob("*/lua/write/*.lua"))
WEEK = 7 * 24 * 3600
OLD, NEW, NEWER = 1_795_000_100, 1_795_000_200, 1_795_000_300
OURS, THEIRS = "0" * 31 + "1", "b" * 32


@pytest.fixture
def pipe(valkey: Store) -> Iterator[Pipe]:
    pipe = Pipe(valkey.client)
    yield pipe
    pipe.close()


@pytest.fixture(params=FLAVOURS)
def queue(request: pytest.FixtureRequest, valkey: Store) -> Queue:
    queue = Queue(valkey.client, request.param)
    queue.seed()
    return queue


# -- one act


def each(queue: Queue) -> Iterator[tuple[str, Attempt]]:
    """Every act, each on the queue as it was at first."""
    for name, attempt in ATTEMPTS.items():
        queue.client.flushall()
        queue.seed()
        yield name, attempt


def test_an_older_epoch_is_refused_and_changes_nothing(queue: Queue, pipe: Pipe) -> None:
    for name, attempt in each(queue):
        hold(queue.client, queue.base, NEW)
        before = queue.dump()
        assert attempt(queue.target(pipe, OLD)) == NEW, name
        assert queue.dump() == before, name
        assert queue.met() == NEW, name
        assert queue.client.ttl(fencing.epoch_key_of(queue.base)) <= 60, f"{name}: its time was not lengthened"


def test_a_later_epoch_is_let_in_and_remembered_for_a_week(queue: Queue, pipe: Pipe) -> None:
    for name, attempt in each(queue):
        hold(queue.client, queue.base, NEW)
        before = queue.dump()
        assert attempt(queue.target(pipe, NEWER)) is None, name
        assert (queue.dump() == before) == (name == "lead"), name
        assert queue.met() == NEWER, name
        assert WEEK - 100 < queue.client.ttl(fencing.epoch_key_of(queue.base)) <= WEEK, name


def test_the_same_epoch_goes_on(queue: Queue, pipe: Pipe) -> None:
    for name, attempt in each(queue):
        hold(queue.client, queue.base, NEW)
        assert attempt(queue.target(pipe, NEW)) is None, name
        assert queue.met() == NEW, name


@pytest.mark.parametrize("met", [None, NEW])
def test_who_acts_by_hand_touches_no_fence(met: int | None, queue: Queue, pipe: Pipe) -> None:
    for name, attempt in each(queue):
        if met:
            hold(queue.client, queue.base, met)
        assert attempt(queue.target(pipe, None)) is None, name
        assert queue.met() == met, name
        assert queue.client.ttl(fencing.epoch_key_of(queue.base)) <= 60, name


def test_what_was_removed_is_restored_under_no_older_epoch(queue: Queue, pipe: Pipe) -> None:
    attempt = put_back(queue.target(pipe, None))
    hold(queue.client, queue.base, NEW)
    before = queue.dump()
    assert attempt(queue.target(pipe, OLD)) == NEW
    assert queue.dump() == before
    assert attempt(queue.target(pipe, NEWER)) is None
    assert (queue.met(), queue.client.exists(f"{queue.base}:waits")) == (NEWER, 1)


def test_a_paused_queue_is_resumed_under_no_older_epoch(queue: Queue, pipe: Pipe) -> None:
    ATTEMPTS["pause"](queue.target(pipe, NEW))
    before = queue.dump()
    assert turn(Action.RESUME)(queue.target(pipe, OLD)) == NEW
    assert queue.dump() == before
    assert turn(Action.RESUME)(queue.target(pipe, NEWER)) is None
    assert queue.met() == NEWER


def test_every_script_asks_before_all_else(store: Store) -> None:
    """Whatever else it is given: here it is given nothing else."""
    queue = Queue(store.client, "bullmq5")
    queue.seed()
    hold(queue.client, queue.base, NEW)
    before = queue.dump()
    with closing(Pipe(store.client)) as pipe:
        for path in SCRIPTS:
            with pytest.raises(redis.ResponseError) as told:
                script(path).run(pipe, [queue.fence, fencing.epoch_key_of(queue.base)], [fencing.stamp(OLD, "")])
            assert fencing.rival_in(told.value) == NEW, path
            assert (queue.dump(), queue.met()) == (before, NEW), path


def test_a_wish_to_cancel_is_not_told_either(queue: Queue, pipe: Pipe) -> None:
    hold(queue.client, queue.base, NEW)
    with queue.client.pubsub() as listener:
        listener.subscribe(f"unstall:cancel:{queue.base}")
        listener.get_message(timeout=5)
        seen = ExpectedJob("locked", JobState.ACTIVE, token="t:1")
        (done,) = operator(queue.flavour).on_jobs(Action.CANCEL, queue.target(pipe, OLD), [seen], ActionOptions(), NOW)
        assert (done.outcome, done.fenced) == (Outcome.REFUSED, NEW)
        (done,) = operator(queue.flavour).on_jobs(Action.CANCEL, queue.target(pipe, NEW), [seen], ActionOptions(), NOW)
        assert done.outcome is Outcome.DONE
        message = listener.get_message(timeout=5)
        assert message is not None
        assert message["data"] == b'"locked"'
        assert listener.get_message(timeout=0) is None


def test_while_another_installation_holds_the_queue_nothing_is_changed(queue: Queue, pipe: Pipe) -> None:
    for name, attempt in each(queue):
        hold(queue.client, queue.base, OLD, THEIRS)
        before = queue.dump()
        assert attempt(queue.target(pipe, NEW, OURS)) == THEIRS, name
        assert queue.dump() == before, name
        assert queue.client.get(queue.fence) == THEIRS.encode(), name
        assert queue.client.get(fencing.epoch_key_of(queue.base, OURS)) is None, name


def test_when_the_other_installation_is_silent_its_epoch_disarms_nobody(queue: Queue, pipe: Pipe) -> None:
    for name, attempt in each(queue):
        hold(queue.client, queue.base, NEWER, THEIRS, ms=0)
        assert attempt(queue.target(pipe, NEW, OURS)) is None, name
        assert queue.client.get(queue.fence) == OURS.encode(), name
        assert 0 < queue.client.pttl(queue.fence) <= LIFE, name


def test_an_older_epoch_of_ours_is_refused_also_behind_another_installation(queue: Queue, pipe: Pipe) -> None:
    """It is remembered for a week, whoever held the queue since."""
    ours = operator(queue.flavour)
    for epoch, installation in ((NEW, OURS), (OLD, THEIRS)):
        ours.fence(queue.target(pipe, epoch, installation))
        queue.client.delete(queue.fence)  # its time is over
    with pytest.raises(Fenced) as told:
        ours.fence(queue.target(pipe, OLD, OURS))
    assert told.value.met == NEW


def test_the_number_of_a_version_that_knew_one_installation_disarms_nobody(queue: Queue, pipe: Pipe) -> None:
    queue.client.set(queue.fence, NEWER)
    operator(queue.flavour).fence(queue.target(pipe, NEW, OURS))
    assert queue.client.get(queue.fence) == OURS.encode()


@pytest.mark.parametrize("value", [b"gone", b""])
def test_what_is_no_epoch_is_somebody_else_s_and_stays(value: bytes, queue: Queue, pipe: Pipe) -> None:
    queue.client.set(queue.fence, value)
    before = queue.dump()
    with pytest.raises(WrongType, match="holds something else"):
        operator(queue.flavour).fence(queue.target(pipe, NEW))
    assert (queue.dump(), queue.client.get(queue.fence)) == (before, value)


# -- many at once, and another one begins to lead in their midst


def test_of_many_jobs_what_was_done_until_then_is_told(queue: Queue, valkey: Store, pipe: Pipe) -> None:
    jobs = [ExpectedJob(str(number), JobState.FAILED) for number in range(200)]
    queue.failed(*(job.id for job in jobs))
    wire = Overtaken(pipe, valkey.client, queue.base, behind=2, epoch=NEW)
    told = operator(queue.flavour).on_jobs(Action.RETRY, queue.target(wire, OLD), jobs, ActionOptions(), NOW)
    done = [one.id for one in told if one.outcome is Outcome.DONE]
    assert [one.id for one in told] == [job.id for job in jobs]
    assert {one.fenced for one in told if one.id not in done} == {NEW}
    assert 0 < len(done) < 200
    kept = {id.decode() for id in valkey.client.lrange(f"{queue.base}:wait", 0, -1)} - {"waits", "0:0"}
    assert kept == set(done)


@pytest.mark.parametrize("options", [{"state": JobState.FAILED}, {"state": JobState.FAILED, "limit": 90}])
def test_what_a_step_took_away_until_then_is_kept(
    options: dict[str, Any], queue: Queue, valkey: Store, pipe: Pipe
) -> None:
    queue.failed(*(str(number) for number in range(100)))
    wire = Overtaken(pipe, valkey.client, queue.base, behind=3, epoch=NEW)
    step = operator(queue.flavour).take_away(
        Action.CLEAN,
        queue.target(wire, OLD),
        ActionOptions(**options),
        NOW,
        budget=100,
    )
    assert (step.fenced, step.is_finished, step.skipped) == (NEW, False, 0)
    assert step.removed == len(step.jobs) == 100 - valkey.client.zcard(f"{queue.base}:failed")
    assert 0 < step.removed < 90


def test_a_removal_that_is_overtaken_says_of_each_job_what_came_of_it(queue: Queue, valkey: Store, pipe: Pipe) -> None:
    jobs = [ExpectedJob(str(number), JobState.FAILED) for number in range(ACTIVE_CHUNK)]
    queue.failed(*(job.id for job in jobs))
    wire = Overtaken(pipe, valkey.client, queue.base, behind=2, epoch=NEW)
    told = operator(queue.flavour).on_jobs(Action.REMOVE, queue.target(wire, OLD), jobs, ActionOptions(), NOW)
    done = [one.id for one in told if one.outcome is Outcome.DONE]
    assert {one.fenced for one in told if one.id not in done} == {NEW}
    assert all(one.kept for one in told if one.id in done)
    left = {id.decode() for id in valkey.client.zrange(f"{queue.base}:failed", 0, -1)}
    assert left == {job.id for job in jobs} - set(done)
    assert 0 < len(done) < len(jobs)
