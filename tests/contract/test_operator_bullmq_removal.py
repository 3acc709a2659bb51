"""Remove and put back on queues of the real BullMQ 3 to 6."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recovery.backends.bullmq import relatives, undo_copy
from recovery.domain.actions.types import Action, Outcome, UndoCopy
from recovery.domain.jobs import JobState
from tests.contract.desk import GENERATIONS, Desk, desk_of
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.waiting import until

HOUR = 3_600_000
WHOLE = {"children": True, "other_queues": True}  # as the library removes


@pytest.fixture(params=GENERATIONS)
def desk(request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
    with desk_of(request.param, libraries, valkey) as desk:
        yield desk


def _make(desk: Desk, state: JobState) -> str:
    """A job in this state, in a queue where others wait as well."""
    queue = desk.queue
    if state is JobState.FAILED:
        return desk.fail()
    if state is JobState.COMPLETED:
        job = queue.add("done")
        desk.done(job)
        return job
    if state is JobState.ACTIVE:
        return desk.orphaned()[0]
    if state is JobState.WAITING_CHILDREN:
        return str(queue.add_flow([{"queueName": "elsewhere"}])["id"])
    options = {JobState.DELAYED: {"delay": HOUR}, JobState.PRIORITIZED: {"priority": 5}}.get(state, {})
    queue.add("before")
    job = queue.add("it", **options)
    queue.add("after")
    if state is JobState.PAUSED:
        queue.pause()
    return job


STATES = tuple(state for state in undo_copy.PLACES if state is not JobState.UNKNOWN)


def _skip_what_is_not_there(desk: Desk, state: JobState) -> None:
    if state is JobState.PRIORITIZED and desk.queue.library.major < 4:
        pytest.skip("no such state")
    if state is JobState.PAUSED and desk.queue.library.major == 6:
        pytest.skip("no such state")


class TestRemove:
    @pytest.mark.parametrize("state", STATES)
    def test_a_job_of_any_state_goes_and_comes_back_as_it_was(self, desk: Desk, state: JobState) -> None:
        _skip_what_is_not_there(desk, state)
        job = _make(desk, state)
        desk.queue.call_job(job, "log", "a line")
        before = _without_events(desk)
        kept = desk.does(Action.REMOVE, job).kept
        assert desk.state(job) == "gone"
        assert not any(f":{job}:" in f"{key}:" for key in desk.all_keys())
        assert desk.events()[-1]["event"] == "removed"
        assert isinstance(kept, UndoCopy)
        assert (kept.state, kept.size > 100) == (state, True)
        if state is JobState.WAITING_CHILDREN:
            return  # its child is gone on its own account; see the families below
        assert desk.put_back(kept).outcome is Outcome.DONE
        assert _without_events(desk) == before

    @pytest.mark.parametrize("state", [state for state in STATES if state is not JobState.WAITING_CHILDREN])
    def test_the_library_would_leave_the_same(self, desk: Desk, state: JobState) -> None:
        _skip_what_is_not_there(desk, state)
        theirs = desk.beside(desk.queue.library.queue(desk.store))
        jobs = [_make(one, state) for one in (desk, theirs)]
        theirs.queue.call_job(jobs[1], "remove")
        desk.does(Action.REMOVE, jobs[0], **WHOLE)
        assert _kinds(desk) == _kinds(theirs)
        assert [event["event"] for event in desk.events()] == [event["event"] for event in theirs.events()]
        assert desk.events()[-1] == theirs.events()[-1] | {"jobId": jobs[0]}

    def test_a_locked_job_is_refused(self, desk: Desk) -> None:
        job = desk.queue.add("long")
        worker = desk.queue.work("hang")
        desk.running()
        (refused,) = desk.act(Action.REMOVE, job)
        assert (refused.outcome, refused.state) == (Outcome.REFUSED, JobState.ACTIVE)
        assert refused.why.startswith("A worker holds its lock")
        worker.release()
        desk.ended(job)

    def test_the_next_run_of_a_scheduler_is_refused(self, desk: Desk) -> None:
        """Before 5.16 the library takes it away, and the schedule ends without a word."""
        desk.queue.schedule("yearly", {"pattern": "0 0 1 1 *"})
        (job,) = (str(job["id"]) for job in desk.queue.jobs("delayed"))
        before = desk.all_keys()
        (refused,) = desk.act(Action.REMOVE, job)
        assert refused.outcome is Outcome.REFUSED
        assert "next run of a job scheduler" in refused.why
        assert desk.all_keys() == before

    def test_one_that_moved_meanwhile_is_refused_with_its_state(self, desk: Desk) -> None:
        job = desk.queue.add("later", delay=HOUR)
        seen = desk.seen(job)
        desk.queue.call_job(job, "promote")
        before = desk.all_keys()
        (refused,) = desk.act(Action.REMOVE, seen)
        assert (refused.outcome, refused.state) == (Outcome.REFUSED, JobState.WAITING)
        assert desk.all_keys() == before

    def test_one_that_is_gone_is_missing(self, desk: Desk) -> None:
        job = desk.queue.add()
        seen = desk.seen(job)
        desk.queue.call_job(job, "remove")
        assert [answer.outcome for answer in desk.act(Action.REMOVE, seen)] == [Outcome.MISSING]

    def test_an_id_without_a_job_is_taken_out_of_its_list(self, desk: Desk) -> None:
        job = desk.queue.add("ghost")
        seen = desk.seen(job)
        desk.store.client.delete(desk.queue.key(job))
        (done,) = desk.act(Action.REMOVE, seen)
        assert (done.outcome, done.kept, done.why) == (Outcome.DONE, None, "")
        assert desk.list("wait") == []

    def test_a_hash_that_no_list_holds_is_removed(self, desk: Desk) -> None:
        job = desk.queue.add("orphan hash")
        desk.store.client.delete(desk.queue.key("wait"))
        seen = desk.seen(job)
        assert seen.state is JobState.UNKNOWN
        kept = desk.does(Action.REMOVE, seen).kept
        assert desk.state(job) == "gone"
        assert kept is not None
        assert desk.put_back(kept).outcome is Outcome.DONE

    def test_many_at_once_are_answered_one_by_one(self, desk: Desk) -> None:
        held = desk.queue.add("long")
        worker = desk.queue.work("hang")
        desk.running()
        free = [desk.queue.add("free") for _ in range(3)]
        answers = desk.act(Action.REMOVE, free[0], held, *free[1:])
        assert [answer.outcome.value for answer in answers] == ["done", "refused", "done", "done"]
        worker.release()

    def test_what_is_too_big_goes_and_is_not_kept(self, desk: Desk) -> None:
        job = desk.queue.add("big", {"text": "x" * undo_copy.KEEP_LIMIT})
        done = desk.does(Action.REMOVE, job)
        assert done.kept is None
        assert "too large for an undo copy" in done.why

    def test_a_log_without_end_is_not_packed(self, desk: Desk) -> None:
        job = desk.queue.add("talkative")
        desk.store.client.rpush(desk.queue.key(job, "logs"), *range(5001))
        assert desk.does(Action.REMOVE, job).kept is None

    def test_a_key_of_a_foreign_type_is_left_alone(self, desk: Desk) -> None:
        job = desk.queue.add()
        seen = desk.seen(job)
        desk.store.client.set(desk.queue.key("completed"), "not a sorted set")
        before = desk.all_keys()
        (refused,) = desk.act(Action.REMOVE, seen)
        assert refused.outcome is Outcome.REFUSED
        assert desk.all_keys() == before


class TestFamilies:
    def test_the_last_child_lets_its_parent_go(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}] * 2)
        worker = desk.queue.work("ok")
        one, two = (branch["id"] for branch in tree["children"])
        children.does(Action.REMOVE, one, other_queues=True)
        assert desk.state(tree["id"]) == "waiting-children"
        children.does(Action.REMOVE, two, other_queues=True)
        desk.ended(tree["id"])
        assert worker.events("completed") == [("completed", tree["id"])]

    def test_a_parent_that_is_let_go_keeps_its_priority(self, desk: Desk) -> None:
        """The library puts it before all others."""
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}], priority=7)
        urgent = desk.queue.add("urgent", priority=1)
        children.does(Action.REMOVE, tree["children"][0]["id"], other_queues=True)
        worker = desk.queue.work("ok")
        desk.ended(tree["id"])
        assert [id for _, id in worker.events("completed")] == [urgent, tree["id"]]

    def test_children_go_with_their_parent(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        grandchild = {"queueName": children.queue.name}
        tree = desk.queue.add_flow([{"queueName": children.queue.name, "children": [grandchild]}, grandchild])
        done = desk.does(Action.REMOVE, tree["id"], **WHOLE)
        assert done.kept is None
        assert "Its children were removed with it" in done.why
        assert sum(children.queue.counts().values()) == 0
        assert not [key for key in desk.all_keys() if desk.queue.key(tree["id"]) in key]
        assert [event["event"] for event in children.events()].count("removed") == 3

    def test_a_parent_that_goes_with_its_children_is_not_let_go_by_them_first(self, desk: Desk) -> None:
        """In the middle of its removal the library moves it to wait, says so, and wakes a worker for nothing."""
        tree = desk.queue.add_flow([{"queueName": "elsewhere"}])
        desk.does(Action.REMOVE, tree["id"], **WHOLE)
        assert desk.events()[-1] == {"event": "removed", "jobId": tree["id"], "prev": "waiting-children"}
        assert desk.zset("marker") == {}

    def test_children_stay_unless_they_are_asked_for(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}])
        desk.does(Action.REMOVE, tree["id"])
        assert children.queue.counts()["waiting"] == 1
        children.done(tree["children"][0]["id"])

    def test_a_locked_child_holds_them_all(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}] * 2)
        worker = children.queue.work("hang")
        children.running()
        before = desk.hash(tree["id"])
        (refused,) = desk.act(Action.REMOVE, tree["id"], **WHOLE)
        assert refused.outcome is Outcome.REFUSED
        assert "lock of one of its children" in refused.why
        assert desk.hash(tree["id"]) == before
        worker.release()

    def test_a_family_that_grew_meanwhile_is_refused(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        tree = desk.queue.add_flow([{"queueName": "elsewhere"}])
        monkeypatch.setattr(
            relatives,
            "_families",
            lambda target, jobs, replies, *, others: dict.fromkeys(jobs, relatives.NO_DESCENDANTS),
        )
        before = desk.all_keys()
        (refused,) = desk.act(Action.REMOVE, tree["id"], **WHOLE)
        assert (refused.outcome, refused.why) == (
            Outcome.REFUSED,
            "Its flow has grown since it was read. Try again.",
        )
        assert desk.all_keys() == before

    def test_a_family_beyond_measure_is_refused(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        tree = desk.queue.add_flow([{"queueName": "elsewhere"}] * 3)
        monkeypatch.setattr(relatives, "FAMILY_LIMIT", 2)
        (refused,) = desk.act(Action.REMOVE, tree["id"], **WHOLE)
        assert refused.outcome is Outcome.REFUSED
        assert "remove some of them first" in refused.why

    def test_a_child_that_comes_back_is_waited_for_again(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        later = {"queueName": children.queue.name, "opts": {"delay": HOUR}}
        tree = desk.queue.add_flow([later, {"queueName": children.queue.name}])
        one, two = (branch["id"] for branch in tree["children"])
        kept = children.does(Action.REMOVE, one, other_queues=True).kept
        assert kept is not None
        children.put_back(kept)
        children.done(two)
        assert desk.state(tree["id"]) == "waiting-children"
        children.does(Action.PROMOTE, one)
        children.done(one)
        desk.done(tree["id"])

    def test_a_parent_does_not_come_back_before_its_children(self, desk: Desk) -> None:
        children = desk.beside(desk.queue.library.queue(desk.store))
        tree = desk.queue.add_flow([{"queueName": children.queue.name}])
        parent = desk.does(Action.REMOVE, tree["id"], children=False).kept
        child = children.does(Action.REMOVE, tree["children"][0]["id"], other_queues=True).kept
        assert parent is not None
        assert child is not None
        before = desk.all_keys()
        refused = desk.put_back(parent)
        assert refused.outcome is Outcome.REFUSED
        assert "Restore its children first" in refused.why
        assert desk.all_keys() == before
        assert children.put_back(child).outcome is Outcome.DONE
        assert desk.put_back(parent).outcome is Outcome.DONE
        children.done(child.id)
        desk.done(parent.id)


class TestDuplicates:
    @pytest.fixture(params=["bullmq5", "bullmq6"])
    def desk(self, request: pytest.FixtureRequest, valkey: Store, libraries: Fleet) -> Iterator[Desk]:
        with desk_of(request.param, libraries, valkey) as desk:
            yield desk

    def test_the_key_that_holds_duplicates_back_goes_with_its_job(self, desk: Desk) -> None:
        job = desk.queue.add("once", deduplication={"id": "d"})
        desk.does(Action.REMOVE, job)
        assert desk.queue.add("again", deduplication={"id": "d"}) != job

    def test_another_jobs_key_stays(self, desk: Desk) -> None:
        job = desk.queue.add("once", deduplication={"id": "d"})
        desk.store.client.set(desk.queue.key("de", "d"), "another")
        desk.does(Action.REMOVE, job)
        assert desk.store.client.get(desk.queue.key("de", "d")) == b"another"


class TestPutBack:
    def test_it_runs_once_and_wakes_an_idle_worker(self, desk: Desk) -> None:
        job = desk.queue.add("job")
        kept = desk.does(Action.REMOVE, job).kept
        assert kept is not None
        worker = desk.queue.work("ok")
        warm = desk.queue.add("warm")
        desk.ended(warm)
        assert desk.put_back(kept).state is JobState.WAITING
        desk.ended(job)
        until(lambda: [id for _, id in worker.events("completed")] == [warm, job], what="its worker says so")
        assert {"event": "added", "jobId": job, "name": "job"} in desk.events()

    def test_between_its_old_neighbours(self, desk: Desk) -> None:
        jobs = [desk.queue.add("job") for _ in range(3)]
        kept = desk.does(Action.REMOVE, jobs[1]).kept
        assert kept is not None
        assert kept.before == jobs[0]
        desk.queue.add("newer")
        desk.put_back(kept)
        assert desk.list("wait")[-3:] == [jobs[2], jobs[1], jobs[0]]

    def test_next_to_run_when_its_neighbour_has_been_taken(self, desk: Desk) -> None:
        jobs = [desk.queue.add("job") for _ in range(3)]
        kept = desk.does(Action.REMOVE, jobs[1]).kept
        assert kept is not None
        desk.queue.call_job(jobs[0], "remove")
        desk.put_back(kept)
        assert desk.list("wait") == [jobs[2], jobs[1]]

    def test_into_the_pause_of_its_queue(self, desk: Desk) -> None:
        kept = desk.does(Action.REMOVE, desk.queue.add("job")).kept
        assert kept is not None
        desk.queue.pause()
        desk.put_back(kept)
        desk.queue.resume()
        desk.done(kept.id)

    def test_a_delayed_one_runs_when_it_is_due(self, desk: Desk) -> None:
        """An idle worker is told; by itself it would look after five seconds at the earliest."""
        job = desk.queue.add("soon", delay=1500)
        kept = desk.does(Action.REMOVE, job).kept
        assert kept is not None
        desk.queue.work("ok")
        desk.ended(desk.queue.add("warm"))
        desk.put_back(kept)
        desk.ended(job, seconds=4)

    def test_an_id_that_is_in_use_again_is_refused(self, desk: Desk) -> None:
        job = desk.queue.add("old", {"is": "old"}, jobId="mine")
        kept = desk.does(Action.REMOVE, job).kept
        assert kept is not None
        desk.queue.add("new", {"is": "new"}, jobId="mine")
        before = desk.all_keys()
        refused = desk.put_back(kept)
        assert (refused.outcome, refused.why) == (Outcome.REFUSED, "Its id is in use again.")
        assert desk.all_keys() == before

    def test_a_dump_that_the_store_does_not_read_leaves_nothing_behind(self, desk: Desk) -> None:
        job = desk.queue.add("job")
        desk.queue.call_job(job, "log", "a line")
        kept = desk.does(Action.REMOVE, job).kept
        assert kept is not None
        before = desk.all_keys()
        dumps = (kept.dumps[0], (kept.dumps[1][0], b"no dump"))
        refused = desk.put_back(UndoCopy(kept.id, kept.state, dumps))
        assert refused.outcome is Outcome.REFUSED
        assert "refuses to restore it" in refused.why
        assert desk.all_keys() == before


def _without_events(desk: Desk) -> dict[str, object]:
    """All keys as they are, but for the stream of events, and the mark that wakes workers."""
    keys = desk.store.client.scan_iter("*")
    loose = {desk.queue.key("events").encode(), desk.queue.key("marker").encode()}
    return {key.decode(): _value(desk, key) for key in keys if key not in loose}


def _value(desk: Desk, key: bytes) -> object:
    kind = desk.store.client.type(key)
    if kind == b"hash":
        return desk.store.client.hgetall(key)
    if kind == b"list":
        return desk.store.client.lrange(key, 0, -1)
    if kind == b"zset":
        return desk.store.client.zrange(key, 0, -1, withscores=True)
    return desk.store.client.dump(key)


def _kinds(desk: Desk) -> dict[str, bytes]:
    """Which keys of the queue there are, and of what type."""
    found = desk.store.client.scan_iter(f"{desk.queue.base}:*")
    return {key.decode().removeprefix(desk.queue.base): desk.store.client.type(key) for key in found}
