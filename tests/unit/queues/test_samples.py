"""What a sample is made of, where the real libraries show it only for a moment."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.backends.redis_common.sample_replies import oldest
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample

REF = QueueRef("main", "bull:q")
OLD = LibraryVersion(QueueLibrary.BULLMQ, 4)


def sampled(flavour: LibraryVersion = OLD, **answers: Any) -> tuple[QueueSample, tuple[str, str]]:
    """An idle queue, but for these answers, by what was asked."""
    ours = reader(flavour)
    asked = [_question(command) for command in ours.sample_plan(REF)]
    assert set(answers) <= set(asked)
    return ours.sample(REF, flavour, [answers.get(question, _idle(question)) for question in asked], 0)


def _question(command: tuple[object, ...]) -> str:
    """`LLEN bull:q:wait` as llen_wait; the head of a list as lindex_wait_0."""
    word, key, *rest = (part.decode() if isinstance(part, bytes) else str(part) for part in command)
    suffix = f"_{rest[0]}" if word == "LINDEX" and rest[0] == "0" else ""
    return f"{word}_{key.rpartition(':')[2]}{suffix}".lower().replace("-", "_")


def _idle(question: str) -> Any:
    kind = question.partition("_")[0]
    nothing = {"llen": 0, "zcard": 0, "hmget": [None] * 4, "lrange": [], "zrange": [], "pttl": -2, "exists": 0}
    return nothing.get(kind)


def test_a_marker_at_the_tail_is_no_job_and_the_one_behind_it_is_next() -> None:
    sample, heads = sampled(llen_wait=2, lrange_wait=[b"7", b"0:1795000156536"], lindex_wait_0=b"7")
    assert sample.counts.waiting == 1
    assert heads == ("7", "")


def test_a_marker_at_the_head_is_no_job() -> None:
    sample, heads = sampled(llen_wait=5, lrange_wait=[b"8", b"7"], lindex_wait_0=b"0:0")
    assert sample.counts.waiting == 4
    assert heads == ("7", "")


def test_a_lone_marker_is_subtracted_once() -> None:
    assert sampled(llen_wait=1, lrange_wait=[b"0:0"], lindex_wait_0=b"0:0")[0].counts.waiting == 0


def test_a_marker_that_a_worker_just_took_is_not_running() -> None:
    sample, heads = sampled(llen_active=1, lindex_active=b"0:0")
    assert sample.counts.active == 0
    assert heads == ("", "")


def test_a_marker_is_a_job_like_any_other_in_bull() -> None:
    sample, heads = sampled(LibraryVersion(QueueLibrary.BULL), llen_wait=1, lindex_wait=b"0:0")
    assert sample.counts.waiting == 1
    assert heads == ("0:0", "")


def test_the_head_of_wait_is_not_asked_where_no_marker_can_be() -> None:
    new = reader(LibraryVersion(QueueLibrary.BULLMQ, 5)).sample_plan(REF)
    assert len(reader(OLD).sample_plan(REF)) == len(new) + 1


def test_a_watchdog_without_an_end_is_not_a_watchdog_with_one() -> None:
    assert sampled(pttl_stalled_check=-1)[0].stalled_check_ttl is None
    assert sampled(pttl_stalled_check=0)[0].stalled_check_ttl == 0


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ((b"12", b"9"), "9"),
        ((b"12", None, b"103"), "12"),
        ((None, b"x"), "x"),
        ((b"b", b"a"), "b"),
        ((b"12", b"a"), "12"),
        ((None, b""), ""),
    ],
)
def test_the_lowest_counted_id_is_the_oldest_else_the_first(
    candidates: tuple[bytes | None, ...], expected: str
) -> None:
    assert oldest(candidates) == expected
