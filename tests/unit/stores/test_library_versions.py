"""What is known of the workers of a BullMQ queue, and what is therefore left alone."""

from __future__ import annotations

import json

import pytest

from recovery.backends.bull.operator import BullOperator
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.backends.bullmq.versions import BullMQTraits, refusals
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action
from recovery.domain.queues.types import LibraryVersion, QueueLibrary


def bullmq(major: int | None, version: str = "", **more: object) -> LibraryVersion:
    return LibraryVersion(QueueLibrary.BULLMQ, major, version)._replace(**more)  # type: ignore[arg-type] # passed on as they are


@pytest.mark.parametrize(
    ("version", "feature", "before"),
    [
        ("4.0.0", "has_prioritized", "3.16.2"),
        ("5.0.0", "has_marker", "4.18.3"),
        ("5.9.0", "knows_concurrency", "5.8.7"),
        ("5.49.0", "stalls_as_stc", "5.48.1"),
        ("5.49.2", "defers_parents", "5.49.1"),
        ("5.53.2", "defers_stalls", "5.53.1"),
        ("6.0.0", "pauses_in_place", "5.81.5"),
    ],
)
def test_a_feature_begins_with_its_version(version: str, feature: str, before: str) -> None:
    assert BullMQTraits.of(bullmq(int(version[0]), version)).has(feature)
    assert not BullMQTraits.of(bullmq(int(before[0]), before)).has(feature)


def test_the_workers_decide_and_not_what_a_producer_wrote() -> None:
    assert not BullMQTraits.of(bullmq(4, "5.81.5")).has("has_marker")


def test_without_a_minor_version_it_is_the_newest_of_its_major() -> None:
    traits = BullMQTraits.of(bullmq(5))
    assert traits.has("knows_concurrency")
    assert traits.stall_field == "stc"
    assert not traits.is_exact


def test_without_a_minor_version_nothing_is_left_to_a_worker_that_may_not_know_of_it() -> None:
    assert not BullMQTraits.of(bullmq(5)).has("defers_stalls")
    assert not BullMQTraits.of(bullmq(5)).has("defers_parents")
    assert BullMQTraits.of(bullmq(6)).has("defers_stalls")


def test_of_two_generations_at_work_the_older_one_counts() -> None:
    traits = BullMQTraits.of(bullmq(5, "6.7.0", mixed=True))
    assert not traits.has("pauses_in_place")
    assert not traits.is_exact
    assert not BullMQTraits.of(bullmq(4, "4.18.3", mixed=True)).locks_when_taking


def test_where_several_majors_fit_the_lowest_counts() -> None:
    assert not BullMQTraits.of(bullmq(5, upto=6)).has("pauses_in_place")


def test_scripts_are_told_plain_truths() -> None:
    told = json.loads(BullMQTraits.of(bullmq(5, "5.81.5")).for_script())
    assert told["stall_field"] == "stc"
    assert told["attempts_field"] == "atm"
    assert {type(value) for value in told.values()} <= {bool, str}


@pytest.mark.parametrize("library", [QueueLibrary.PRO, QueueLibrary.UNKNOWN])
def test_nothing_is_done_to_what_is_not_known(library: QueueLibrary) -> None:
    assert set(refusals(LibraryVersion(library))) == set(Action)


def test_nothing_is_done_where_it_is_forbidden_and_the_reason_is_told() -> None:
    assert set(refusals(bullmq(6, read_only="Too new.")).values()) == {"Too new."}


def test_two_generations_are_not_paused() -> None:
    assert set(refusals(bullmq(5, mixed=True))) == {Action.PAUSE, Action.RESUME}
    assert refusals(bullmq(5, "5.81.5")) == {}


def test_without_a_major_only_what_all_of_them_do_alike_is_done() -> None:
    allowed = set(Action) - set(refusals(bullmq(None)))
    assert {Action.REQUEUE, Action.RELEASE} <= allowed
    assert Action.FAIL not in allowed
    assert not BullMQTraits.of(bullmq(None)).locks_when_taking, "so it takes two sightings"


def test_each_library_has_its_operator() -> None:
    assert isinstance(operator(LibraryVersion(QueueLibrary.BULL, 4)), BullOperator)
    assert isinstance(operator(bullmq(6)), BullMQOperator)
    assert set(operator(LibraryVersion()).refusals(LibraryVersion())) == set(Action)
