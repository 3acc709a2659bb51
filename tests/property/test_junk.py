"""A queue whose keys hold anything at all is still read: nothing raises, nothing is unbounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.backends import detection
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import JobMissing, WrongType
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

REF = QueueRef("main", "bull:q")
FLAVOURS = [
    LibraryVersion(QueueLibrary.BULL),
    LibraryVersion(QueueLibrary.BULLMQ, 4),
    LibraryVersion(QueueLibrary.BULLMQ, 6),
]
IDS = [b"1", b"0", b"0:5", b"a:b:c", b"x/y z\r\n", b"<b>", b"\xff\xfe", "ö".encode()]
PLACES = [b"wait", b"paused", b"active", b"delayed", b"prioritized", b"waiting-children", b"completed", b"failed"]
OTHERS = [b"id", b"meta", b"events", b"repeat", b"marker", b"pc", b"stalled-check", b"limiter", b"meta-paused"]
OTHERS += [b"metrics:completed", b"metrics:completed:data", b"repeat:1"]
PARTS = [b"", b":lock", b":logs", b":dependencies", b":processed", b":failed", b":unsuccessful"]
FIELDS = [b"name", b"data", b"opts", b"timestamp", b"processedOn", b"finishedOn", b"delay", b"priority", b"atm", b"ats"]
FIELDS += [b"failedReason", b"stacktrace", b"returnvalue", b"progress", b"parent", b"parentKey", b"rjk", b"pb", b"stc"]
FIELDS += [b"version", b"paused", b"count", b"prevTS", b"every", b"pattern", b"attemptsMade", b"\xff"]

junk = st.sampled_from([b"", b"0", b"-5", b"1e999", b"null", b"[]", b'{"attempts":"x"}', b'{"id":1,"queueKey":[]}']) | (
    st.sampled_from([b'["a",null,1]', b"{", b"bull:q:1", b"other:q:1", b"bullmq:99.1", b"\x00\xff", b"NaN"])
    | st.binary(max_size=12)
)
members = st.sampled_from(IDS) | junk
values = st.one_of(
    st.tuples(st.just("string"), junk),
    st.tuples(st.just("list"), st.lists(members, min_size=1, max_size=5)),
    st.tuples(st.just("set"), st.lists(members, min_size=1, max_size=5)),
    st.tuples(st.just("zset"), st.dictionaries(members, st.floats(allow_nan=False), min_size=1, max_size=5)),
    st.tuples(st.just("hash"), st.dictionaries(st.sampled_from(FIELDS), junk, min_size=1, max_size=8)),
)
keyspace = st.dictionaries(
    st.sampled_from([*PLACES, *OTHERS, *(id + part for id in IDS[:4] for part in PARTS)]), values, max_size=14
)


@pytest.fixture
def pipe(valkey: Store) -> Iterator[Pipe]:
    opened = Pipe(valkey.client)
    yield opened
    opened.close()


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda flavour: flavour.label)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(keys=keyspace)
def test_any_keys_are_read(
    valkey: Store, pipe: Pipe, flavour: LibraryVersion, keys: dict[bytes, tuple[str, Any]]
) -> None:
    valkey.flush()
    for suffix, (kind, value) in keys.items():
        _write(valkey.client, b"bull:q:" + suffix, kind, value)
    ours = reader(flavour)
    detection.identify(pipe, [REF.base], {})
    sample, _ = ours.sample(REF, flavour, pipe.call(ours.sample_plan(REF)), 0)
    assert all(count is None or count >= 0 for count in sample.counts)
    with suppress(WrongType):
        ours.schedulers(pipe, REF)
    ours.metrics(pipe, REF, 1795000156536, minutes=5)
    for state in JobState:
        with suppress(WrongType):
            ours.page(pipe, REF, state)
            ours.search(pipe, REF, state, name="a", data="b")
    for id in map(decode_name, IDS):
        with suppress(JobMissing):
            ours.job(pipe, REF, id)
        with suppress(WrongType):
            ours.logs(pipe, REF, id)
        ours.family(pipe, REF, id)


def _write(client: redis.Redis, key: bytes, kind: str, value: Any) -> None:
    if kind == "string":
        client.set(key, value)
    elif kind == "list":
        client.rpush(key, *value)
    elif kind == "set":
        client.sadd(key, *value)
    elif kind == "zset":
        client.zadd(key, value)
    else:
        client.hset(key, mapping=value)
