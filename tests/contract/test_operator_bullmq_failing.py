"""Fail against the real BullMQ 3 to 6: a worker gives a job up for good, or we do: the same keys are left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from recovery.backends.base import Target
from recovery.backends.bullmq import fail_plan
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.contract import golden
from tests.contract.desk import GENERATIONS, Desk, desk_of, now
from tests.support.hands import Hand
from tests.support.processes.fleet import Fleet, Queue
from tests.support.stores.cluster import Cluster
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired

OPERATOR = BullMQOperator()
MINUTE = 60_000

Scene = Callable[[Queue, Queue], None]  # what is prepared: the queue of the job that fails, and its parents'


def _flow(*, options: dict[str, Any], parent: dict[str, Any] | None = None, siblings: int = 0) -> Scene:
    """A parent with the child that fails, and others that do not run."""

    def prepare(queue: Queue, parents: Queue) -> None:
        child = {"name": "child", "queueName": queue.name, "opts": options}
        others = [{"name": "other", "queueName": f"{queue.name}-others", "opts": {}}] * siblings
        parents.add_flow([child, *others], **(parent or {}))

    return prepare


def _three(*, child: str, parent: str) -> Scene:
    """Child, parent and grandparent, each tied to the one above by an option."""

    def prepare(queue: Queue, parents: Queue) -> None:
        low = {"name": "child", "queueName": queue.name, "opts": {child: True}}
        middle = {"name": "middle", "queueName": parents.name, "opts": {parent: True}, "children": [low]}
        parents.add_flow([middle])

    return prepare


def _paused(prepare: Scene) -> Scene:
    def paused(queue: Queue, parents: Queue) -> None:
        prepare(queue, parents)
        parents.pause()

    return paused


def _alone(**options: Any) -> Scene:
    def prepare(queue: Queue, _: Queue) -> None:
        queue.add("alone", **options)

    return prepare


def _after_others(**options: Any) -> Scene:
    """Some have failed before."""

    def prepare(queue: Queue, _: Queue) -> None:
        hand = Hand.of(queue)
        for _ in range(3):
            queue.add("before")
            hand.fail(str(hand.take()))
        queue.add("after", **options)

    return prepare


def _with_more_waiting(queue: Queue, _: Queue) -> None:
    queue.add("first")
    queue.add("second")


OPTIONS = ("failParentOnFailure", "continueParentOnFailure", "ignoreDependencyOnFailure", "removeDependencyOnFailure")
SCENES: dict[str, Scene] = {
    "alone": _alone(),
    "prioritized": _alone(priority=7),
    "more waiting": _with_more_waiting,
    "removed": _alone(removeOnFail=True),
    "one kept": _after_others(removeOnFail=1),
    "two kept": _after_others(removeOnFail={"count": 2}),
    "none older": _after_others(removeOnFail={"age": 3600}),
    "deduplicated": _alone(deduplication={"id": "same"}),
    "deduplicated for a time": _alone(deduplication={"id": "same", "ttl": 600_000}),
    "a child": _flow(options={}),
    "a child that is removed": _flow(options={"removeOnFail": True}),
    "the last child is removed, prioritized parent": _flow(options={"removeOnFail": True}, parent={"priority": 3}),
    "a child with a sibling is removed": _flow(options={"removeOnFail": True}, siblings=1),
    **{option: _flow(options={option: True}) for option in OPTIONS},
    **{f"{option}, with a sibling": _flow(options={option: True}, siblings=1) for option in OPTIONS},
    **{f"{option}, delayed parent": _flow(options={option: True}, parent={"delay": 60_000}) for option in OPTIONS},
    **{f"{option}, prioritized parent": _flow(options={option: True}, parent={"priority": 3}) for option in OPTIONS},
    **{f"{option}, paused parent": _paused(_flow(options={option: True})) for option in OPTIONS},
    **{f"{option} above": _three(child="failParentOnFailure", parent=option) for option in OPTIONS},
}


@pytest.fixture(params=GENERATIONS)
def desk(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk
        Hand.close_all(desk.queue)


def _taken(desk: Desk, **options: Any) -> tuple[Hand, ExpectedJob]:
    hand = Hand.of(desk.queue, **options)
    job = hand.take()
    assert job
    return hand, desk.seen(job)


def _compare(desk: Desk, hand: Hand, seen: ExpectedJob) -> None:
    """The hand lets go of the job for good; then the same keys once more, and we do it."""
    before = golden.dump(desk.store)
    assert hand.fail(seen.id, "no more") == ""
    theirs = golden.dump(desk.store)
    desk.store.flush()
    golden.load(desk.store, {key: entry for key, entry in before.items() if not key.endswith(":lock")})
    _fail(desk, seen, _time_of(theirs, desk))
    ours = golden.compared(golden.dump(desk.store))
    assert ours == golden.compared(theirs)


def _fail(desk: Desk, seen: ExpectedJob, now: int) -> None:
    target = Target(desk.pipe, desk.ref, desk.known)
    options = ActionOptions(directly=True, is_late=True, message="no more", other_queues=True)
    (done,) = OPERATOR.on_jobs(Action.FAIL, target, [seen], options, now)
    assert done.outcome is Outcome.DONE, done
    assert (done.state is JobState.FAILED) == (seen.id in desk.zset("failed"))


def _time_of(keyspace: golden.Keyspace, desk: Desk) -> int:
    """When the library did it, as far as it has written that down."""
    scores = keyspace.get(desk.queue.key("failed"), {"v": ()})["v"][1::2]
    return max((int(float(score)) for score in scores), default=1_795_000_000_000)


@pytest.mark.parametrize("scene", SCENES)
def test_a_failure_is_what_a_worker_leaves(scene: str, desk: Desk) -> None:
    parents = desk.queue.library.queue(desk.store, f"{desk.queue.name}-parents")
    SCENES[scene](desk.queue, parents)
    _compare(desk, *_taken(desk))


@pytest.mark.parametrize("minutes", [0, 1, 5])
def test_it_is_counted_where_workers_count(minutes: int, desk: Desk) -> None:
    desk.queue.add_many(2)
    hand, first = _taken(desk, metrics={"maxDataPoints": 60})
    assert hand.fail(first.id) == ""
    key = desk.queue.key("metrics:failed")
    desk.store.client.hincrby(key, "prevTS", -minutes * MINUTE)
    second = desk.seen(str(hand.take()))
    before = desk.store.client.hgetall(key)
    _compare_metrics(desk, hand, second)
    assert before


def _compare_metrics(desk: Desk, hand: Hand, seen: ExpectedJob) -> None:
    """As `_compare`; but the list is cut to its length by the next worker, who alone knows it."""
    key = desk.queue.key("metrics:failed:data")
    before = golden.dump(desk.store)
    assert hand.fail(seen.id, "no more") == ""
    theirs = golden.dump(desk.store)
    desk.store.flush()
    golden.load(desk.store, {name: entry for name, entry in before.items() if not name.endswith(":lock")})
    _fail(desk, seen, _time_of(theirs, desk))
    ours = golden.dump(desk.store)
    kept = theirs.pop(key, {"v": []})["v"]
    assert ours.pop(key, {"v": []})["v"][: len(kept)] == kept
    assert golden.compared(ours) == golden.compared(theirs)


@pytest.mark.parametrize(
    "later", [{}, {"priority": 4}, {"delay": 60_000}, {"lifo": True}, {"jobId": "chosen"}], ids=repr
)
@pytest.mark.parametrize("generation", ["bullmq5", "bullmq6"])
def test_the_job_that_was_to_follow_is_made(
    generation: str, later: dict[str, Any], valkey: Store, libraries: Fleet
) -> None:
    with desk_of(generation, libraries, valkey) as desk:
        dedup = {"id": "same", "keepLastIfActive": True}
        desk.queue.add("first", deduplication=dedup)
        hand, seen = _taken(desk)
        desk.queue.add("second", {"n": 2}, deduplication=dedup, **later)
        assert desk.hash("dn:same")["name"] == "second"
        _compare(desk, hand, seen)
        Hand.close_all(desk.queue)


class TestByTheStalledCheck:
    """Without `directly` a job fails as the library's own check lets it fail; that differs most between the fives."""

    @pytest.fixture
    def five(self, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
        with desk_of("bullmq5", libraries, valkey) as desk:
            yield desk
            Hand.close_all(desk.queue)

    def _family(self, desk: Desk, option: str) -> tuple[ExpectedJob, Desk]:
        """An orphan, and the queue of its parent."""
        parents = desk.beside(desk.queue.library.queue(desk.store, f"{desk.queue.name}-parents"))
        _flow(options={option: True}, parent={"jobId": "parent"})(desk.queue, parents.queue)
        _, seen = _taken(desk)
        desk.store.client.delete(desk.queue.key(seen.id, "lock"))
        return seen, parents

    def _fail(self, desk: Desk, seen: ExpectedJob, version: str) -> ScriptOutcome:
        target = Target(desk.pipe, desk.ref, LibraryVersion(QueueLibrary.BULLMQ, 5, version))
        options = ActionOptions(other_queues=True)
        (done,) = OPERATOR.on_jobs(Action.FAIL, target, [replace(seen, token=None)], options, now())
        assert done.outcome is Outcome.DONE, done
        return done

    @pytest.mark.parametrize("version", ["5.0.0", "5.30.1", "5.45.2", "5.48.0", "5.53.1"])
    def test_up_to_5_53_1_it_fails_here(self, version: str, five: Desk) -> None:
        seen, _ = self._family(five, "failParentOnFailure")
        assert self._fail(five, seen, version).state is JobState.FAILED
        field = "stc" if version == "5.53.1" else "stalledCounter"
        assert five.hash(seen.id)[field] == "1"
        assert five.hash(seen.id)["failedReason"] == "job stalled more than allowable limit"
        assert five.events()[-1]["event"] == "failed"

    def test_before_5_7_2_the_parent_is_not_told_and_we_say_so(self, five: Desk) -> None:
        seen, parents = self._family(five, "failParentOnFailure")
        assert self._fail(five, seen, "5.6.0").why.startswith("Its parent still waits for it")
        assert parents.state("parent") == "waiting-children"

    @pytest.mark.parametrize(
        ("version", "is_listed", "is_pending"),
        [("5.30.1", False, True), ("5.45.2", True, True), ("5.48.0", True, False)],
    )
    def test_up_to_5_49_1_the_parent_fails_with_it(
        self, version: str, is_listed: bool, is_pending: bool, five: Desk
    ) -> None:
        seen, parents = self._family(five, "failParentOnFailure")
        assert self._fail(five, seen, version).why == ""
        assert parents.state("parent") == "failed"
        child = five.queue.key(seen.id)
        assert parents.hash("parent")["failedReason"] == f"child {child} failed"
        assert (child in parents.zset("parent:unsuccessful")) is is_listed
        assert bool(parents.store.client.sismember(parents.queue.key("parent", "dependencies"), child)) is is_pending

    def test_from_5_49_2_on_the_parent_is_left_to_a_worker(self, five: Desk) -> None:
        seen, parents = self._family(five, "failParentOnFailure")
        self._fail(five, seen, "5.50.0")
        assert parents.hash("parent")["defa"] == f"child {five.queue.key(seen.id)} failed"
        parents.failed("parent")

    @pytest.mark.parametrize("option", ["ignoreDependencyOnFailure", "removeDependencyOnFailure"])
    def test_a_parent_that_does_not_mind_goes_on(self, option: str, five: Desk) -> None:
        seen, parents = self._family(five, option)
        self._fail(five, seen, "5.30.1")
        parents.done("parent")

    def test_without_a_known_minor_version_nothing_is_left_to_a_worker(self, five: Desk) -> None:
        seen, parents = self._family(five, "failParentOnFailure")
        assert self._fail(five, seen, "").state is JobState.FAILED
        assert parents.state("parent") == "failed"
        assert five.hash(seen.id)["stc"] == "1"

    @pytest.mark.parametrize("generation", ["bullmq5", "bullmq6"])
    def test_from_5_53_2_on_the_next_worker_fails_it_unrun(
        self, generation: str, valkey: Store, libraries: Fleet
    ) -> None:
        with desk_of(generation, libraries, valkey) as desk:
            seen, parents = self._family(desk, "failParentOnFailure")
            done = desk.does(Action.FAIL, replace(seen, token=None), message="the machine is gone")
            assert done.state is JobState.WAITING
            assert done.why.startswith("It is in wait: the next worker")
            worker = desk.queue.work("ok")
            desk.ended(seen.id, JobState.FAILED)
            assert worker.events("completed") == []
            assert desk.hash(seen.id)["failedReason"] == "the machine is gone"
            parents.failed("parent")
            Hand.close_all(desk.queue)


class TestRefusal:
    def test_options_that_cannot_be_read(self, desk: Desk) -> None:
        desk.queue.add()
        _, seen = _taken(desk)
        desk.store.client.delete(desk.queue.key(seen.id, "lock"))
        desk.store.client.hset(desk.queue.key(seen.id), "opts", "{")
        done = self._refused(desk, seen)
        assert done.why.startswith("Its options cannot be read")

    def test_a_parent_that_was_changed_meanwhile(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        desk.queue.add()
        _, seen = _taken(desk)
        desk.store.client.delete(desk.queue.key(seen.id, "lock"))
        plans = fail_plan.plans

        def late(*given: Any, **named: Any) -> Any:
            found = plans(*given, **named)
            desk.store.client.hset(desk.queue.key(seen.id), "parentKey", "bull:another:1")
            return found

        monkeypatch.setattr(fail_plan, "plans", late)
        assert "try again" in self._refused(desk, seen).why

    def test_a_family_without_end(self, desk: Desk) -> None:
        """A parent that is its own parent: nobody can tell where its failure ends."""
        desk.queue.add()
        _, seen = _taken(desk)
        desk.store.client.delete(desk.queue.key(seen.id, "lock"))
        base, loop = desk.queue.base, json.dumps({"id": "1", "queueKey": "bull:loop", "fpof": True})
        tied = {"parentKey": "bull:loop:1", "parent": loop, "opts": json.dumps({"fpof": True})}
        for key in (f"{base}:{seen.id}", "bull:loop:1"):
            desk.store.client.hset(key, mapping=tied)
            desk.store.client.sadd("bull:loop:1:dependencies", key)
        if desk.queue.library.major < 5:
            assert "generations above" in self._refused(desk, seen).why
        else:
            assert (
                desk.act(Action.FAIL, replace(seen, token=None), directly=True, other_queues=True)[0].outcome
                is Outcome.DONE
            )

    def test_a_parent_on_another_node(self, cluster: Cluster) -> None:
        ref = QueueRef("main", "{a}:q")
        parent = {"parentKey": "{b}:p:1", "parent": json.dumps({"id": "1", "queueKey": "{b}:p", "fpof": True})}
        with wired(cluster.url) as wire:
            pairs = [part for pair in ({"name": "child", "opts": "{}"} | parent).items() for part in pair]
            wire.call([("HSET", "{a}:q:1", *pairs), ("LPUSH", "{a}:q:active", "1")])
            wire.call([("SADD", "{b}:p:1:dependencies", "{a}:q:1")])
            target = Target(wire, ref, LibraryVersion(QueueLibrary.BULLMQ, 6, "6.7.0"))
            (done,) = OPERATOR.on_jobs(
                Action.FAIL,
                target,
                [ExpectedJob("1", JobState.ACTIVE)],
                ActionOptions(directly=True, other_queues=True),
                now(),
            )
            assert (done.outcome, done.why.split(",")[0]) == (
                Outcome.REFUSED,
                "Its parent lives on another node of the cluster",
            )
            assert wire.call([("LRANGE", "{a}:q:active", 0, -1)]) == [[b"1"]]
            (done,) = OPERATOR.on_jobs(
                Action.REQUEUE, target, [ExpectedJob("1", JobState.ACTIVE)], ActionOptions(), now()
            )
            assert done.outcome is Outcome.DONE

    def _refused(self, desk: Desk, seen: ExpectedJob) -> ScriptOutcome:
        before = desk.hash(seen.id)
        (done,) = desk.act(Action.FAIL, replace(seen, token=None), directly=True, is_late=True, other_queues=True)
        assert done.outcome is Outcome.REFUSED, done
        after = desk.hash(seen.id)
        assert {**after, "parentKey": ""} == {**before, "parentKey": ""}
        assert desk.list("active") == [seen.id]
        return done


class TestBetterThanTheLibrary:
    """Where the library has a bug, on purpose we do not do as it does."""

    @pytest.mark.parametrize("generation", ["bullmq3", "bullmq4"])
    def test_removing_one_failed_job_leaves_the_others(self, generation: str, valkey: Store, libraries: Fleet) -> None:
        """With `removeOnFail: 0` its stalled check keeps none of all failed jobs of the queue."""
        with desk_of(generation, libraries, valkey) as desk:
            _after_others(removeOnFail=0)(desk.queue, desk.queue)
            _, seen = _taken(desk)
            desk.store.client.delete(desk.queue.key(seen.id, "lock"))
            done = desk.does(Action.FAIL, replace(seen, token=None), is_late=True)
            assert done.why.startswith("It failed, and was removed")
            assert desk.hash(seen.id) == {}
            assert len(desk.zset("failed")) == 3
            Hand.close_all(desk.queue)

    def test_the_deduplication_key_of_another_job_stays(self, valkey: Store, libraries: Fleet) -> None:
        """Before 5.50 a failing job took any key of its deduplication id for its own."""
        with desk_of("bullmq5", libraries, valkey) as desk:
            desk.queue.add(deduplication={"id": "same"})
            _, seen = _taken(desk)
            desk.store.client.delete(desk.queue.key(seen.id, "lock"))
            desk.store.client.set(desk.queue.key("de", "same"), "another")
            target = Target(desk.pipe, desk.ref, LibraryVersion(QueueLibrary.BULLMQ, 5, "5.30.1"))
            (done,) = OPERATOR.on_jobs(Action.FAIL, target, [replace(seen, token=None)], ActionOptions(), now())
            assert done.outcome is Outcome.DONE
            assert desk.store.client.get(desk.queue.key("de", "same")) == b"another"
            Hand.close_all(desk.queue)
