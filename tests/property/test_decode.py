"""Whatever a store answers, decoding never raises, and garbage is unknown, not 0."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from recovery.backends import detection
from recovery.backends.base import LINE_LIMIT
from recovery.backends.redis_common import decode, locks
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.queues.types import LibraryVersion, QueueLibrary

REF = QueueRef("main", "bull:q")
FLAVOURS = [
    LibraryVersion(QueueLibrary.BULL),
    LibraryVersion(QueueLibrary.BULLMQ, 3),
    LibraryVersion(QueueLibrary.BULLMQ, 6),
]

refusals = st.sampled_from(["WRONGTYPE Operation", "NOPERM no permissions", "ERR unknown command"]).map(
    redis.ResponseError
)
leaves = st.none() | st.integers() | st.binary(max_size=20) | st.text(max_size=20) | st.floats() | refusals
replies = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=4)


@given(replies)
def test_no_reply_is_too_strange(reply: Any) -> None:
    for read in (
        *(decode.octets, decode.count, decode.integer, decode.moment, decode.score, decode.remaining, decode.items),
        *(decode.pairs, decode.refusal, decode.name, decode.prose, decode.from_json, decode.mapping, decode.times),
    ):
        read(reply)
    decode.fields(reply, 3)
    decode.due(decode.score(reply))
    locks.read(reply, reply)


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.label)
@given(data=st.data())
def test_a_sample_is_made_of_any_replies(flavour: LibraryVersion, data: st.DataObject) -> None:
    ours = reader(flavour)
    size = len(ours.sample_plan(REF))
    answered = data.draw(st.lists(replies, min_size=size, max_size=size))
    sample, heads = ours.sample(REF, flavour, answered, 0)
    assert all(count is None or count >= 0 or count in answered for count in sample.counts)
    assert all(isinstance(head, str) for head in heads)


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.label)
def test_a_store_that_refuses_everything_leaves_everything_unknown(flavour: LibraryVersion) -> None:
    ours = reader(flavour)
    refused = [redis.ResponseError("NOPERM this user has no permissions")] * len(ours.sample_plan(REF))
    sample, heads = ours.sample(REF, flavour, refused, 0)
    kept = [sample.counts.waiting, sample.counts.active, sample.counts.delayed, sample.counts.failed]
    assert kept == [None] * 4
    assert sample.counts.backlog is None
    assert (sample.is_paused, sample.stalled_check_ttl, sample.added) == (None, None, None)
    assert "NOPERM" in sample.error
    assert heads == ("", "")


@given(st.lists(replies, min_size=23, max_size=23), st.lists(replies, max_size=4))
def test_a_flavour_is_weighed_from_any_replies(answered: list[Any], jobs: list[Any]) -> None:
    assert len(detection.detect_plan("bull:q")) == 23
    detection.closer_plan("bull:q", answered)
    detection.detect(answered, (), jobs=jobs, base="bull:q")


@pytest.mark.parametrize(
    "written",
    [b"", b"abc", b"1_000", b" 12", b"0x10", b"1e400", b"nan", b"inf", b"-", b"9" * 40, "١٢".encode(), b"[]", b"null"],
)
def test_garbage_is_no_number(written: bytes) -> None:
    assert decode.integer(written) is None


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_a_whole_number_is_read_exactly(value: int) -> None:
    assert decode.integer(str(value).encode()) == decode.integer(value) == value


@given(st.integers(0, 2**41), st.integers(0, 4095))
def test_the_time_of_a_delayed_job_is_unpacked_from_its_score(at: int, sequence: int) -> None:
    packed = at * decode.DELAY_FACTOR + sequence
    assert decode.due(decode.score(repr(float(packed)).encode())) == (at or None)


@given(st.text(max_size=2000))
def test_a_line_is_one_line_and_short(written: str) -> None:
    for line in (decode.line(written), decode.first_line(written)):
        assert len(line) <= LINE_LIMIT
        assert len(line.splitlines()) <= 1


@given(st.dictionaries(st.binary(max_size=9), st.integers(0, 9), max_size=6))
def test_pairs_are_the_same_in_every_shape_of_protocol(members: dict[bytes, int]) -> None:
    flat = [part for pair in members.items() for part in pair]
    nested = [list(pair) for pair in members.items()]
    assert decode.pairs(flat) == decode.pairs(nested) == decode.pairs(members) == list(members.items())


@given(st.binary(max_size=30))
def test_a_name_loses_no_byte(written: bytes) -> None:
    assert encode_name(decode.name(written)) == written


def test_json_that_is_too_deep_is_no_json() -> None:
    assert decode.from_json(b"[" * 100_000) is None
