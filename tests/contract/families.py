"""What a reader promises of parents and children: for the generations that have them."""

from __future__ import annotations

from recovery.domain.jobs import JobRelative, JobState
from tests.contract.scene import Scene
from tests.support.processes.fleet import Queue
from tests.support.waiting import until


class FamilyContract:
    """Joined with `ReaderContract`, which brings the scene."""

    def test_a_parent_waits_for_its_children(self, scene: Scene) -> None:
        tree = scene.queue.add_flow([{"name": "child"}, {"name": "other"}], "parent")
        assert scene.sample.counts.waiting_children == 1
        assert scene.ids(JobState.WAITING_CHILDREN) == [tree["id"]]
        assert scene.row(tree["id"]).state is JobState.WAITING_CHILDREN
        assert scene.job(tree["id"]).has_children

    def test_children_are_listed_with_where_they_are(self, scene: Scene) -> None:
        tree = scene.queue.add_flow([{"name": "child"}, {"name": "other"}], "parent")
        family = scene.reader.family(scene.pipe, scene.ref, tree["id"])
        assert family.parent is None
        assert family.total == 2
        assert {_seen(child) for child in family.children} == {
            (scene.ref.job(branch["id"]), "pending", JobState.WAITING, name)
            for branch, name in zip(tree["children"], ("child", "other"), strict=True)
        }

    def test_a_child_knows_its_parent_in_another_queue(self, scene: Scene) -> None:
        other = scene.queue.library.queue(scene.store)
        tree = scene.queue.add_flow([{"name": "child", "queueName": other.name}], "parent")
        (branch,) = tree["children"]
        theirs = Scene(other, scene.store, scene.pipe)
        family = theirs.reader.family(scene.pipe, theirs.ref, branch["id"])
        assert family.parent is not None
        assert family.parent.ref == scene.ref.job(tree["id"])
        assert (family.parent.name, family.parent.state) == ("parent", JobState.WAITING_CHILDREN)
        assert theirs.row(branch["id"]).parent == f"{scene.ref.base}:{tree['id']}"
        (child,) = scene.reader.family(scene.pipe, scene.ref, tree["id"]).children
        assert _seen(child) == (theirs.ref.job(branch["id"]), "pending", JobState.WAITING, "child")

    def test_a_done_child_is_processed(self, scene: Scene) -> None:
        other = scene.queue.library.queue(scene.store)
        tree = scene.queue.add_flow([{"queueName": other.name}], "parent")
        other.work("ok")
        until(lambda: other.counts()["completed"] == 1)
        (child,) = scene.reader.family(scene.pipe, scene.ref, tree["id"]).children
        assert (child.outcome, child.state) == ("processed", JobState.COMPLETED)

    def test_a_failed_child_nobody_waits_for_is_failed(self, scene: Scene) -> None:
        other = scene.queue.library.queue(scene.store)
        tree = scene.queue.add_flow([{"queueName": other.name}], "parent")
        other.work("fail")
        until(lambda: other.counts()["failed"] == 1)
        (child,) = scene.reader.family(scene.pipe, scene.ref, tree["id"]).children
        assert (child.outcome, child.state) == ("failed", JobState.FAILED)
        assert scene.row(tree["id"]).state is JobState.WAITING_CHILDREN

    def test_a_child_whose_id_holds_colons_is_found(self, scene: Scene) -> None:
        tree = scene.queue.add_flow([{"opts": {"jobId": "order:7:item"}}], "parent")
        (child,) = scene.reader.family(scene.pipe, scene.ref, tree["id"]).children
        assert child.ref == scene.ref.job("order:7:item")
        assert child.state is JobState.WAITING

    def test_of_many_children_a_page_is_listed_and_all_are_counted(self, scene: Scene) -> None:
        tree = scene.queue.add_flow([{"name": f"child {number}"} for number in range(130)], "parent")
        family = scene.reader.family(scene.pipe, scene.ref, tree["id"])
        assert (len(family.children), family.total) == (100, 130)

    def test_a_family_is_read_in_a_handful_of_round_trips(self, scene: Scene) -> None:
        tree = scene.queue.add_flow([{"name": f"child {number}"} for number in range(50)], "parent")
        ours = scene.reader
        scene.pipe.reset()
        ours.family(scene.pipe, scene.ref, tree["id"])
        assert scene.pipe.trips <= 8


class IgnoredFailures:
    """BullMQ ≥ 5.2: a parent may not mind that a child failed."""

    def test_a_failure_the_parent_does_not_mind_is_ignored(self, scene: Scene) -> None:
        other: Queue = scene.queue.library.queue(scene.store)
        options = {"ignoreDependencyOnFailure": True}
        tree = scene.queue.add_flow([{"queueName": other.name, "opts": options}], "parent")
        other.work("fail")
        until(lambda: other.counts()["failed"] == 1)
        (child,) = scene.reader.family(scene.pipe, scene.ref, tree["id"]).children
        assert (child.outcome, child.state) == ("ignored", JobState.FAILED)

    def test_a_failure_that_fails_the_parent_is_unsuccessful(self, scene: Scene) -> None:
        other: Queue = scene.queue.library.queue(scene.store)
        options = {"failParentOnFailure": True}
        tree = scene.queue.add_flow([{"queueName": other.name, "opts": options}], "parent")
        other.work("fail")
        until(lambda: other.counts()["failed"] == 1)
        (child,) = scene.reader.family(scene.pipe, scene.ref, tree["id"]).children
        assert (child.outcome, child.state) == ("unsuccessful", JobState.FAILED)


def _seen(child: JobRelative) -> tuple[object, str, JobState, str]:
    return child.ref, child.outcome, child.state, child.name
