"""Ids of any bytes, keys of foreign types, fields that are no numbers: no job is lost, no act dies half-way."""

from __future__ import annotations

import pytest

from recovery.backends.base import Target
from recovery.backends.bull.operator import BullOperator
from recovery.backends.bull.reader import BullReader
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.processes.fleet import Fleet
from tests.support.stores.cluster import Cluster
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until

NOW = 1_795_000_000_000
OPERATOR = BullOperator()
READER = BullReader()
BULL = LibraryVersion(QueueLibrary.BULL, 4)
IDS = (b"plain", b"with:colons", b"\xff\xfe\x00bytes", b"[glob]*?", "größer 🐂".encode(), b"-1", b" ", b'"q\\"')


@pytest.mark.parametrize("base", [b"bull:q", b"a:b:c", b"bull:\xff[*]"])
def test_any_bytes_may_be_in_an_id_and_in_a_base(store: Store, pipe: Pipe, base: bytes) -> None:
    target = _target(pipe, base)
    for id in IDS:
        _active(store, id, base=base)
    assert _outcomes(_act(target, Action.FAIL, *IDS)) == {Outcome.DONE}
    assert _outcomes(_act(target, Action.RETRY, *IDS)) == {Outcome.DONE}
    wait = store.client.lrange(base + b":wait", 0, -1)
    assert sorted(wait) == sorted(IDS)
    gone = _act(target, Action.REMOVE, *IDS)
    assert not store.client.exists(*(base + b":" + id for id in IDS), base + b":wait")
    for done in reversed(gone):
        assert done.kept is not None
        assert OPERATOR.put_back(target, done.kept, NOW).outcome is Outcome.DONE
    assert store.client.lrange(base + b":wait", 0, -1) == wait
    step = OPERATOR.take_away(Action.DRAIN, target, ActionOptions(), NOW, budget=100)
    assert (step.removed, step.skipped, step.is_finished) == (len(IDS), 0, True)


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL, Action.REMOVE])
def test_one_job_of_a_foreign_type_does_not_stop_the_others(store: Store, pipe: Pipe, act: Action) -> None:
    for id in (b"1", b"2", b"3"):
        _active(store, id)
    store.client.delete("bull:q:2")
    store.client.set("bull:q:2", "not a job")
    seen = [ExpectedJob(id, JobState.ACTIVE, processed_at=NOW) for id in ("1", "2", "3")]
    done = OPERATOR.on_jobs(act, _target(pipe), seen, ActionOptions(is_late=True), NOW)
    assert [one.outcome for one in done] == [Outcome.DONE, Outcome.REFUSED, Outcome.DONE]
    assert "does not hold a job but a string" in done[1].why
    assert store.client.lrange("bull:q:active", 0, -1) == [b"2"]


@pytest.mark.parametrize("suffix", ["de:same", "1:logs", "limiter:limited"])
def test_what_hangs_on_a_job_may_be_anything(store: Store, pipe: Pipe, suffix: str) -> None:
    for act in (Action.FAIL, Action.REMOVE):
        store.flush()
        _active(store, b"1", deid="same", opts='{"removeOnFail":true}')
        store.client.hset("bull:q:limiter:index", "1", "bull:q:limiter:limited")
        store.client.xadd(f"bull:q:{suffix}", {"not": "expected"})
        assert _outcomes(_act(_target(pipe), act, b"1")) == {Outcome.DONE}
        assert not store.client.exists("bull:q:1", "bull:q:active")


@pytest.mark.parametrize("counter", ["1.5", "many", " 1", "9223372036854775807", ""])
def test_a_counter_that_is_none_never_costs_a_job(store: Store, pipe: Pipe, counter: str) -> None:
    _active(store, b"1", stalledCounter=counter)
    (done,) = _act(_target(pipe), Action.REQUEUE, b"1")
    places = (store.client.llen("bull:q:active"), store.client.llen("bull:q:wait"))
    assert places == ((0, 1) if done.outcome is Outcome.DONE else (1, 0))


@pytest.mark.parametrize("priority", ["nan", "inf", "-3", "1e400", "high", "99999999999999999999"])
def test_a_priority_that_is_none_never_costs_a_job(store: Store, pipe: Pipe, priority: str) -> None:
    store.client.hset("bull:q:1", mapping={"name": "j", "data": "{}", "timestamp": NOW, "priority": priority})
    store.client.zadd("bull:q:delayed", {"1": NOW * 4096})
    assert _outcomes(_act(_target(pipe), Action.PROMOTE, b"1")) == {Outcome.DONE}
    assert store.client.lrange("bull:q:wait", 0, -1) == [b"1"]


@pytest.mark.parametrize(
    "options", ["{", "null", "[]", '{"removeOnFail":null}', '{"removeOnFail":{"age":"x"}}', "x" * 99_999]
)
def test_options_that_say_nothing_keep_the_job(store: Store, pipe: Pipe, options: str) -> None:
    _active(store, b"1", opts=options)
    assert _outcomes(_act(_target(pipe), Action.FAIL, b"1")) == {Outcome.DONE}
    assert store.client.zrange("bull:q:failed", 0, -1) == [b"1"]


def test_scripts_the_server_has_forgotten_are_sent_again(store: Store, pipe: Pipe) -> None:
    for number in range(40):
        _active(store, str(number).encode())
    target = _target(pipe)
    _act(target, Action.REQUEUE, *(str(number).encode() for number in range(20)))
    store.client.script_flush()
    assert _outcomes(_act(target, Action.REQUEUE, *(str(number).encode() for number in range(20, 40)))) == {
        Outcome.DONE
    }
    assert store.client.llen("bull:q:wait") == 40


def test_a_queue_in_a_cluster_is_changed(libraries: Fleet, cluster: Cluster) -> None:
    queue = libraries["bull4"].queue(cluster, prefix="{bull}")
    with wired(cluster.url) as wire:
        target = Target(wire, QueueRef("main", queue.base), BULL)
        job = queue.add("later", delay=3_600_000)
        assert OPERATOR.on_queue(Action.PAUSE, target, ActionOptions(), NOW).outcome is Outcome.DONE
        assert _outcomes(_act(target, Action.PROMOTE, job.encode())) == {Outcome.DONE}
        (removed,) = _act(target, Action.REMOVE, job.encode())
        assert removed.kept is not None
        assert OPERATOR.put_back(target, removed.kept, NOW).outcome is Outcome.DONE
        assert OPERATOR.on_queue(Action.RESUME, target, ActionOptions(), NOW).outcome is Outcome.DONE
        queue.work("ok")
        until(lambda: queue.counts()["completed"] == 1)


def _target(pipe: Pipe, base: bytes = b"bull:q") -> Target:
    return Target(pipe, QueueRef("main", decode_name(base)), BULL)


def _active(store: Store, id: bytes, *, base: bytes = b"bull:q", **fields: object) -> None:
    known = {"name": "job", "data": "{}", "opts": "{}", "timestamp": NOW, "processedOn": NOW}
    store.client.hset(base + b":" + id, mapping=known | fields)
    store.client.lpush(base + b":active", id)


def _act(target: Target, act: Action, *ids: bytes) -> tuple[ScriptOutcome, ...]:
    seen = [ExpectedJob.of(READER.row(target.wire, target.ref, decode_name(id))) for id in ids]
    return OPERATOR.on_jobs(act, target, seen, ActionOptions(is_late=True), NOW)


def _outcomes(done: tuple[ScriptOutcome, ...]) -> set[Outcome]:
    return {one.outcome for one in done}
