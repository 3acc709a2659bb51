"""What somebody who may write to one queue only plants there: no act on it reaches a job that does not point back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from recovery.backends.base import Target
from recovery.backends.bullmq import fail_plan, relatives
from recovery.domain.actions.types import (
    Action,
    ActionOptions,
    ExpectedJob,
    JobSideEffect,
    Outcome,
    RelativeChange,
    ScriptOutcome,
)
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.contract.desk import GENERATIONS, OPERATOR, Desk, desk_of, now
from tests.support.hands import Hand
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store

BOOKS = {"dependencies": "set", "processed": "hash", "failed": "hash", "unsuccessful": "zset"}
WHOLE = {"children": True, "other_queues": True}


@pytest.fixture(params=GENERATIONS)
def evil(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk
        Hand.close_all(desk.queue)


@pytest.fixture
def payments(evil: Desk) -> Desk:
    """The queue of somebody else, with four jobs."""
    desk = evil.beside(evil.queue.library.queue(evil.store))
    for _ in range(4):
        desk.queue.add("payment")
    return desk


def write_down(desk: Desk, job: str, children: Sequence[str], book: str = "dependencies") -> None:
    """As whoever may write to the queue of the job does it."""
    key, client = desk.queue.key(job, book), desk.store.client
    for child in children:
        if BOOKS[book] == "set":
            client.sadd(key, child)
        elif BOOKS[book] == "zset":
            client.zadd(key, {child: 1})
        else:
            client.hset(key, child, "1")


def keys_of(desk: Desk, other: Desk) -> dict[str, Any]:
    """All keys of the other queue."""
    return {key: value for key, value in desk.all_keys().items() if key.startswith(other.queue.base)}


def ref(desk: Desk, id: str) -> JobRef:
    return desk.ref.job(id)


class TestRemove:
    @pytest.mark.parametrize("book", BOOKS)
    def test_planted_children_stay(self, evil: Desk, payments: Desk, book: str) -> None:
        job = evil.queue.add("bait")
        write_down(evil, job, [payments.queue.key(id) for id in payments.list("wait")], book)
        before = keys_of(evil, payments)
        done = evil.does(Action.REMOVE, job, **WHOLE)
        assert keys_of(evil, payments) == before
        assert (evil.state(job), done.affected) == ("gone", ())

    def test_planted_children_of_the_same_queue_stay_as_well(self, evil: Desk) -> None:
        bait, other = evil.queue.add("bait"), evil.queue.add("other")
        write_down(evil, bait, [evil.queue.key(other)])
        evil.does(Action.REMOVE, bait, **WHOLE)
        assert evil.state(other) == "waiting"

    def test_a_planted_child_of_a_true_child_stays(self, evil: Desk, payments: Desk) -> None:
        tree = evil.queue.add_flow([{"name": "child"}])
        (child,) = (branch["id"] for branch in tree["children"])
        write_down(evil, child, [payments.queue.key(payments.list("wait")[0])])
        before = keys_of(evil, payments)
        done = evil.does(Action.REMOVE, tree["id"], **WHOLE)
        assert keys_of(evil, payments) == before
        assert done.affected == (JobSideEffect(ref(evil, child), RelativeChange.REMOVED),)

    def test_a_child_that_is_not_written_down_with_its_parent_stays(self, evil: Desk) -> None:
        tree = evil.queue.add_flow([{"name": "child"}])
        evil.store.client.delete(evil.queue.key(tree["id"], "dependencies"))
        evil.does(Action.REMOVE, tree["id"], **WHOLE)
        assert evil.state(tree["children"][0]["id"]) == "waiting"

    def test_children_in_other_queues_stay_by_default(self, evil: Desk, payments: Desk) -> None:
        tree = evil.queue.add_flow([{"queueName": payments.queue.name}, {"opts": {"jobId": "own"}}])
        before = keys_of(evil, payments)
        done = evil.does(Action.REMOVE, tree["id"], children=True)
        assert keys_of(evil, payments) == before
        assert evil.state("own") == "gone"
        assert done.affected == (JobSideEffect(ref(evil, "own"), RelativeChange.REMOVED),)

    def test_a_planted_parent_is_not_touched(self, evil: Desk, payments: Desk) -> None:
        tree = payments.queue.add_flow([{"queueName": "elsewhere"}])
        job = evil.queue.add("bait")
        evil.store.client.hset(evil.queue.key(job), "parentKey", payments.queue.key(tree["id"]))
        before = keys_of(evil, payments)
        evil.does(Action.REMOVE, job, other_queues=True)
        assert keys_of(evil, payments) == before

    def test_a_parent_in_another_queue_is_not_let_go_by_default(self, evil: Desk, payments: Desk) -> None:
        tree = payments.queue.add_flow([{"queueName": evil.queue.name}])
        (child,) = (branch["id"] for branch in tree["children"])
        before = evil.all_keys()
        (refused,) = evil.act(Action.REMOVE, child)
        assert (refused.outcome, refused.why.endswith("This needs other_queues.")) == (Outcome.REFUSED, True)
        assert evil.all_keys() == before
        done = evil.does(Action.REMOVE, child, other_queues=True)
        assert done.affected == (JobSideEffect(ref(payments, tree["id"]), RelativeChange.RELEASED),)

    def test_a_child_that_is_adopted_at_the_last_moment_stays(
        self, evil: Desk, payments: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The script looks again: what pointed back when it was looked up points elsewhere now."""
        tree = evil.queue.add_flow([{"queueName": payments.queue.name}])
        (child,) = (branch["id"] for branch in tree["children"])
        around = relatives.read_relatives

        def late(*given: Any) -> Any:
            found = around(*given)
            evil.store.client.hset(payments.queue.key(child), "parentKey", "bull:another:1")
            return found

        monkeypatch.setattr(relatives, "read_relatives", late)
        (refused,) = evil.act(Action.REMOVE, tree["id"], **WHOLE)
        assert (refused.outcome, "has grown" in refused.why) == (Outcome.REFUSED, True)
        assert payments.state(child) == "waiting"

    def test_a_child_that_was_not_shown_is_not_taken_along(self, evil: Desk) -> None:
        tree = evil.queue.add_flow([{"name": "one"}, {"name": "two"}])
        shown = frozenset({str(ref(evil, tree["children"][0]["id"]))})
        (refused,) = evil.act(Action.REMOVE, tree["id"], children=True, affected=shown)
        assert (refused.outcome, "has grown" in refused.why) == (Outcome.REFUSED, True)
        assert {evil.state(branch["id"]) for branch in tree["children"]} == {"waiting"}

    def test_books_without_end_are_not_read(self, evil: Desk) -> None:
        job = evil.queue.add("bait")
        script = "for i = 1, 100000 do redis.call('SADD', KEYS[1], 'bull:x:' .. i) end"
        evil.store.client.eval(script, 1, evil.queue.key(job, "dependencies"))
        (refused,) = evil.act(Action.REMOVE, job, **WHOLE)
        assert "remove some of them first" in refused.why
        evil.does(Action.REMOVE, job)


class TestEffects:
    """What is told before anything is done."""

    def effects(self, desk: Desk, act: Action, job: str, **options: Any) -> Any:
        return OPERATOR.effects(act, desk.target, [desk.seen(job)], ActionOptions(**options)).get(job)

    def test_children_and_parent_are_listed(self, evil: Desk, payments: Desk) -> None:
        elsewhere = {"queueName": payments.queue.name, "opts": {"jobId": "elsewhere"}}
        tree = evil.queue.add_flow([{"opts": {"jobId": "c"}, "children": [{"opts": {"jobId": "below"}}, elsewhere]}])
        expected = {
            JobSideEffect(ref(evil, "below"), RelativeChange.REMOVED),
            JobSideEffect(ref(evil, tree["id"]), RelativeChange.RELEASED),
        }
        found = self.effects(evil, Action.REMOVE, "c", children=True)
        assert (set(found.affected), found.staying) == (expected, 1)
        whole = self.effects(evil, Action.REMOVE, "c", **WHOLE)
        assert set(whole.affected) == expected | {JobSideEffect(ref(payments, "elsewhere"), RelativeChange.REMOVED)}

    def test_what_is_planted_is_not(self, evil: Desk, payments: Desk) -> None:
        job = evil.queue.add("bait")
        write_down(evil, job, [payments.queue.key(id) for id in payments.list("wait")])
        evil.store.client.hset(evil.queue.key(job), "parentKey", payments.queue.key(payments.list("wait")[0]))
        found = self.effects(evil, Action.REMOVE, job, **WHOLE)
        assert (found.affected, found.staying, found.refusal) == ((), 0, "")


def orphan(desk: Desk) -> ExpectedJob:
    hand = Hand.of(desk.queue)
    job = hand.take()
    assert job
    seen = desk.seen(job)
    desk.store.client.delete(desk.queue.key(job, "lock"))
    return replace(seen, token=None)


def fail(desk: Desk, seen: ExpectedJob, version: str = "", **options: Any) -> ScriptOutcome:
    """As a queue that says it is of this version."""
    flavour = LibraryVersion(QueueLibrary.BULLMQ, int(version[0]), version) if version else desk.known
    chosen = ActionOptions(directly=True, is_late=True, **options)
    (done,) = OPERATOR.on_jobs(Action.FAIL, Target(desk.pipe, desk.ref, flavour), [seen], chosen, now())
    return done


OPTIONS = ("fpof", "cpof", "idof", "rdof")


def plant_parent(desk: Desk, job: str, parent: JobRef, option: str) -> None:
    written = json.dumps({"id": parent.id, "queueKey": parent.queue.base, option: True})
    key = f"{parent.queue.base}:{parent.id}"
    desk.store.client.hset(desk.queue.key(job), mapping={"parentKey": key, "parent": written})


class TestFail:
    @pytest.mark.parametrize("option", OPTIONS)
    def test_a_planted_parent_does_not_hear_of_it(self, evil: Desk, payments: Desk, option: str) -> None:
        tree = payments.queue.add_flow([{"queueName": "elsewhere"}])
        evil.queue.add("bait")
        seen = orphan(evil)
        plant_parent(evil, seen.id, ref(payments, tree["id"]), option)
        before = keys_of(evil, payments)
        done = fail(evil, seen, other_queues=True)
        assert (done.outcome, done.affected) == (Outcome.DONE, ())
        assert keys_of(evil, payments) == before

    @pytest.mark.parametrize("version", ["3.16.2", "4.18.2", "5.7.2", "5.45.0", "5.48.0", "5.60.0"])
    def test_whatever_version_the_queue_says_it_is(self, version: str, valkey: Store, libraries: Fleet) -> None:
        with desk_of("bullmq5", libraries, valkey) as evil:
            payments = evil.beside(evil.queue.library.queue(valkey))
            tree = payments.queue.add_flow([{"queueName": "elsewhere"}])
            evil.queue.add("bait")
            seen = orphan(evil)
            plant_parent(evil, seen.id, ref(payments, tree["id"]), "fpof")
            before = keys_of(evil, payments)
            assert fail(evil, seen, version, other_queues=True).outcome is Outcome.DONE
            assert keys_of(evil, payments) == before
            Hand.close_all(evil.queue)

    def test_a_parent_in_another_queue_fails_only_when_that_is_said(self, valkey: Store, libraries: Fleet) -> None:
        with desk_of("bullmq5", libraries, valkey) as evil:
            payments = evil.beside(evil.queue.library.queue(valkey))
            options = {"failParentOnFailure": True}
            tree = payments.queue.add_flow([{"queueName": evil.queue.name, "opts": options}])
            seen = orphan(evil)
            before = evil.all_keys()
            refused = fail(evil, seen, "5.45.0")
            assert (refused.outcome, refused.why.endswith("This needs other_queues.")) == (Outcome.REFUSED, True)
            assert evil.all_keys() == before
            done = fail(evil, seen, "5.45.0", other_queues=True)
            assert done.affected == (JobSideEffect(ref(payments, tree["id"]), RelativeChange.FAILED),)
            assert payments.state(tree["id"]) == "failed"
            Hand.close_all(evil.queue)

    def test_the_script_looks_again_whether_the_parent_waits_for_it(
        self, valkey: Store, libraries: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with desk_of("bullmq5", libraries, valkey) as evil:
            payments = evil.beside(evil.queue.library.queue(valkey))
            options = {"failParentOnFailure": True}
            tree = payments.queue.add_flow(
                [{"queueName": evil.queue.name, "opts": options}, {"queueName": "elsewhere"}]
            )
            seen = orphan(evil)
            plans = fail_plan.plans

            def late(*given: Any) -> Any:
                found = plans(*given)
                valkey.client.srem(payments.queue.key(tree["id"], "dependencies"), evil.queue.key(seen.id))
                return found

            monkeypatch.setattr(fail_plan, "plans", late)
            done = fail(evil, seen, "5.45.0", other_queues=True)
            assert (done.outcome, done.affected) == (Outcome.DONE, ())
            assert payments.state(tree["id"]) == "waiting-children"
            Hand.close_all(evil.queue)

    def test_a_job_that_follows_is_written_down_in_no_other_queue(self, valkey: Store, libraries: Fleet) -> None:
        """keepLastIfActive: `dn:<id>` names the books in which the next job is written down, and may be planted."""
        with desk_of("bullmq6", libraries, valkey) as evil:
            payments = evil.beside(evil.queue.library.queue(valkey))
            tree = payments.queue.add_flow([{"queueName": "elsewhere"}])
            dedup = {"id": "same", "keepLastIfActive": True}
            evil.queue.add("first", deduplication=dedup)
            seen = orphan(evil)
            evil.queue.add("second", deduplication=dedup)
            books = payments.queue.key(tree["id"], "dependencies")
            valkey.client.hset(evil.queue.key("dn:same"), "pdk", books)
            before = keys_of(evil, payments)
            refused = fail(evil, seen, other_queues=True)
            assert (refused.outcome, "follows it" in refused.why) == (Outcome.REFUSED, True)
            assert keys_of(evil, payments) == before
            Hand.close_all(evil.queue)

    def test_older_jobs_that_its_options_remove_stay_where_another_queue_waits(
        self, valkey: Store, libraries: Fleet
    ) -> None:
        with desk_of("bullmq5", libraries, valkey) as evil:
            payments = evil.beside(evil.queue.library.queue(valkey))
            tree = payments.queue.add_flow([{"queueName": evil.queue.name}])
            (child,) = (branch["id"] for branch in tree["children"])
            evil.failed(child)
            evil.queue.add("bait", removeOnFail=1)
            seen = orphan(evil)
            before = keys_of(evil, payments)
            assert fail(evil, seen).outcome is Outcome.DONE
            assert keys_of(evil, payments) == before
            assert evil.state(child) == "failed"
            Hand.close_all(evil.queue)


class TestSweep:
    def test_a_drain_leaves_what_another_queue_waits_for(self, evil: Desk, payments: Desk) -> None:
        tree = payments.queue.add_flow([{"queueName": evil.queue.name}])
        own = evil.queue.add("own")
        before = keys_of(evil, payments)
        step = evil.take_away(Action.DRAIN)
        assert (step.removed, step.skipped, step.is_finished) == (1, 1, True)
        assert keys_of(evil, payments) == before
        assert evil.state(own) == "gone"
        assert evil.take_away(Action.DRAIN, other_queues=True).removed == 1
        assert evil.state(tree["children"][0]["id"]) == "gone"

    def test_a_planted_parent_is_not_let_go(self, evil: Desk, payments: Desk) -> None:
        tree = payments.queue.add_flow([{"queueName": "elsewhere"}])
        job = evil.queue.add("bait")
        evil.store.client.hset(evil.queue.key(job), "parentKey", payments.queue.key(tree["id"]))
        before = keys_of(evil, payments)
        assert evil.take_away(Action.DRAIN, other_queues=True).removed == 1
        assert keys_of(evil, payments) == before


class TestBull:
    @pytest.mark.parametrize("generation", ["bull3", "bull4"])
    def test_a_planted_set_of_limited_jobs_is_not_touched(
        self, generation: str, valkey: Store, libraries: Fleet
    ) -> None:
        """`limiter:index` names the set in which a job that has to wait for its limit is written down."""
        with desk_of(generation, libraries, valkey) as evil:
            job = evil.queue.add("bait")
            valkey.client.sadd("bull:payments:1:dependencies", job, "another")
            valkey.client.hset(evil.queue.key("limiter:index"), job, "bull:payments:1:dependencies")
            valkey.client.sadd(evil.queue.key("limiter:x:limited"), job)
            evil.does(Action.REMOVE, job)
            assert valkey.client.sismember("bull:payments:1:dependencies", job)
            assert not valkey.client.hexists(evil.queue.key("limiter:index"), job)


def test_names_of_relatives_are_those_that_are_shown() -> None:
    """What the runner allows is compared by name."""
    queue = QueueRef("main", "bull:q")
    target = Target(None, queue, LibraryVersion(QueueLibrary.BULLMQ, 5))  # type: ignore[arg-type] # no wire is asked
    relative = relatives.RelativeRef(b"bull:q:1", b"bull:q", b"1")
    assert str(relatives.ref_of(target, relative)) == str(queue.job("1"))
