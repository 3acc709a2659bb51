"""Ids and names of any bytes, colons and patterns in them; and versions that are known more or less exactly."""

from __future__ import annotations

import pytest

from recovery.backends.base import Target
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.backends.bullmq.reader import BullMQReader
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

NOW = 1_795_000_000_000
OPERATOR = BullMQOperator()
READER = BullMQReader(may_have_markers=False)
IDS = (
    b"plain",
    b"with:colons:in:it",
    b"\xff\xfe\x00bytes",
    b"[glob]*?",
    "größer 🐂".encode(),
    b"repeat:x:1",
    b"-1",
    b" ",
)
BASES = (b"bull:q", b"a:b:c", b"bull:\xff[*]")


def _target(pipe: Pipe, base: bytes = b"bull:q", version: str = "6.7.0") -> Target:
    return Target(
        pipe, QueueRef("main", decode_name(base)), LibraryVersion(QueueLibrary.BULLMQ, int(version[0]), version)
    )


def _put(store: Store, base: bytes, id: bytes, place: bytes, **fields: object) -> None:
    store.client.hset(base + b":" + id, mapping={"name": "job", "data": "{}", "timestamp": NOW, **fields})
    store.client.zadd(base + b":" + place, {id: NOW})
    store.client.setnx(base + b":id", 1)


def _seen(target: Target, id: bytes) -> ExpectedJob:
    return ExpectedJob.of(READER.row(target.wire, target.ref, decode_name(id)))


@pytest.mark.parametrize("base", BASES)
def test_any_bytes_may_be_in_an_id_and_in_a_base(store: Store, pipe: Pipe, base: bytes) -> None:
    target = _target(pipe, base)
    for id in IDS:
        _put(store, base, id, b"failed")
    dones = OPERATOR.on_jobs(Action.RETRY, target, [_seen(target, id) for id in IDS], ActionOptions(), NOW)
    assert {done.outcome for done in dones} == {Outcome.DONE}
    assert store.client.lrange(base + b":wait", 0, -1) == list(reversed(IDS))

    gone = OPERATOR.on_jobs(Action.REMOVE, target, [_seen(target, id) for id in IDS], ActionOptions(), NOW)
    assert store.client.exists(*(base + b":" + id for id in IDS), base + b":wait") == 0
    for done in reversed(gone):
        assert done.kept is not None
        assert OPERATOR.put_back(target, done.kept, NOW).outcome is Outcome.DONE
    assert store.client.lrange(base + b":wait", 0, -1) == list(reversed(IDS))

    step = OPERATOR.take_away(Action.DRAIN, target, ActionOptions(), NOW, budget=100)
    assert (step.removed, step.skipped, step.is_finished) == (len(IDS), 0, True)


@pytest.mark.parametrize("parent", [b"P", b"with:colons", b"\xff:P"])
def test_a_parent_is_found_whatever_its_id(store: Store, pipe: Pipe, parent: bytes) -> None:
    """The library takes what follows the last colon for the id, and looks in the wrong queue."""
    target, key = _target(pipe), b"bull:par:" + parent
    _put(store, b"bull:par", parent, b"waiting-children")
    _put(store, b"bull:q", b"C", b"delayed", parentKey=key)
    store.client.sadd(key + b":dependencies", b"bull:q:C")
    (done,) = OPERATOR.on_jobs(Action.REMOVE, target, [_seen(target, b"C")], ActionOptions(other_queues=True), NOW)
    assert done.outcome is Outcome.DONE
    assert store.client.lrange(b"bull:par:wait", 0, -1) == [parent]


def test_a_parent_of_no_known_queue_refuses_it(store: Store, pipe: Pipe) -> None:
    _put(store, b"bull:q", b"C", b"delayed", parentKey="nowhere:to:be:found")
    store.client.hset("nowhere:to:be:found", "name", "parent")
    target = _target(pipe)
    (refused,) = OPERATOR.on_jobs(Action.REMOVE, target, [_seen(target, b"C")], ActionOptions(), NOW)
    assert refused.outcome is Outcome.REFUSED
    assert "belongs to no known queue" in refused.why


def test_a_parent_that_is_gone_is_no_hindrance(store: Store, pipe: Pipe) -> None:
    _put(store, b"bull:q", b"C", b"delayed", parentKey="nowhere:to:be:found")
    target = _target(pipe)
    (done,) = OPERATOR.on_jobs(Action.REMOVE, target, [_seen(target, b"C")], ActionOptions(), NOW)
    assert done.outcome is Outcome.DONE


@pytest.mark.parametrize("key", ["bull:par:P:dependencies", "bull:par:wait", "bull:q:C:failed"])
def test_relatives_with_foreign_types_refuse_it(store: Store, pipe: Pipe, key: str) -> None:
    target = _target(pipe)
    _put(store, b"bull:par", b"P", b"waiting-children")
    _put(store, b"bull:q", b"C", b"delayed", parentKey="bull:par:P")
    store.client.set(key, "something else")
    (refused,) = OPERATOR.on_jobs(Action.REMOVE, target, [_seen(target, b"C")], ActionOptions(), NOW)
    assert (refused.outcome, "unexpected type" in refused.why) == (Outcome.REFUSED, True)
    assert store.client.zscore("bull:q:delayed", "C") == NOW


def test_what_is_no_job_under_its_name_is_left_alone(store: Store, pipe: Pipe) -> None:
    store.client.set("bull:q:1", "something else")
    store.client.zadd("bull:q:failed", {"1": NOW})
    target = _target(pipe)
    for act in (Action.RETRY, Action.REMOVE):
        (done,) = OPERATOR.on_jobs(act, target, [ExpectedJob("1", JobState.FAILED)], ActionOptions(), NOW)
        assert done.outcome is not Outcome.DONE
    assert store.client.get("bull:q:1") == b"something else"
    assert store.client.zcard("bull:q:failed") == 1


def test_options_that_are_no_json_make_no_difference(store: Store, pipe: Pipe) -> None:
    target = _target(pipe)
    for id, opts in {b"1": "{", b"2": "null", b"3": '"lifo"', b"4": '{"lifo":1}', b"5": "x" * 100_000}.items():
        _put(store, b"bull:q", id, b"failed", opts=opts)
        (done,) = OPERATOR.on_jobs(Action.RETRY, target, [_seen(target, id)], ActionOptions(), NOW)
        assert done.state is JobState.WAITING
    assert store.client.lrange(b"bull:q:wait", 0, -1) == [b"5", b"4", b"3", b"2", b"1"]


@pytest.mark.parametrize(("version", "goes_back"), [("5.58.1", False), ("5.58.2", True), ("6.0.0", True)])
def test_a_child_goes_back_to_its_parent_where_the_library_does_so(
    store: Store, pipe: Pipe, version: str, goes_back: bool
) -> None:
    target = _target(pipe, version=version)
    _put(store, b"bull:q", b"C", b"completed", parentKey="bull:par:P")
    store.client.hset("bull:par:P", "name", "parent")
    store.client.hset("bull:par:P:processed", "bull:q:C", "1")
    OPERATOR.on_jobs(Action.RETRY, target, [_seen(target, b"C")], ActionOptions(), NOW)
    assert store.client.exists("bull:par:P:dependencies") == goes_back


@pytest.mark.parametrize(("version", "scripts", "trips"), [("3.16.2", 25, 25), ("6.7.0", 5, 3)])
def test_many_jobs_are_moved_by_several_scripts_of_which_none_is_long(
    store: Store, pipe: Pipe, version: str, scripts: int, trips: int
) -> None:
    target, ids = _target(pipe, version=version), [str(at).encode() for at in range(250)]
    for id in ids:
        _put(store, b"bull:q", id, b"delayed", priority=1)
    seen = [ExpectedJob(id.decode(), JobState.DELAYED) for id in ids]
    OPERATOR.on_jobs(Action.PROMOTE, target, seen[:1], ActionOptions(), NOW)
    pipe.reset()
    dones = OPERATOR.on_jobs(Action.PROMOTE, target, seen[1:], ActionOptions(), NOW)
    assert {done.outcome for done in dones} == {Outcome.DONE}
    assert pipe.commands.count("EVALSHA") == scripts
    assert pipe.trips == trips, "those that search a list go one at a time: others are served in between"


def test_no_more_jobs_are_taken_at_once_than_is_promised(pipe: Pipe) -> None:
    target = _target(pipe)
    for act in (Action.RETRY, Action.PROMOTE, Action.REMOVE, Action.CANCEL):
        many = [ExpectedJob(str(at), JobState.FAILED) for at in range(OPERATOR.chunk(act) + 1)]
        with pytest.raises(ValueError, match="at most"):
            OPERATOR.on_jobs(act, target, many, ActionOptions(), NOW)


_ODD = {"stc": "x", "stalledCounter": "x", "atm": "x", "attemptsMade": "1.5", "priority": "nan"}


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL, Action.RETRY, Action.RELEASE])
@pytest.mark.parametrize("version", ["4.17.0", "5.81.5"])
def test_a_number_that_is_none_loses_no_job(store: Store, pipe: Pipe, act: Action, version: str) -> None:
    """It has left its list by the time it is counted, and a script does not roll back."""
    for number, field in enumerate((*_ODD, "pc", "metrics")):
        base = f"bull:q{number}"
        target, place = _target(pipe, base.encode(), version), b"failed" if act is Action.RETRY else b"odd"
        _put(store, base.encode(), b"1", place, **({field: _ODD[field]} if field in _ODD else {"priority": 3}))
        store.client.set(f"{base}:pc", "x" if field == "pc" else 1)
        store.client.hset(f"{base}:metrics:failed", "count", "x" if field == "metrics" else 1)
        if act is not Action.RETRY:
            store.client.lpush(f"{base}:active", "1")
        if act is Action.RELEASE:
            store.client.set(f"{base}:1:lock", "token")
        options = ActionOptions(is_late=True, requeue=True, directly=True)
        (done,) = OPERATOR.on_jobs(act, target, [_seen(target, b"1")], options, NOW)
        places = [store.client.lrange(f"{base}:{name}", 0, -1) for name in ("wait", "active")]
        places += [store.client.zrange(f"{base}:{name}", 0, -1) for name in ("prioritized", "failed")]
        assert [id for found in places for id in found if id == b"1"] == [b"1"], (field, done)
        assert done.outcome is Outcome.DONE, (field, done)
