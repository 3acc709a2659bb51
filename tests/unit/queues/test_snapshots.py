"""What goes through the state store comes out as it went in."""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import replace

import pytest

from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.queues.types import (
    DeploymentSample,
    JobCounts,
    LibraryVersion,
    QueueLibrary,
    QueueSample,
    Rates,
    Snapshot,
    Worker,
)
from recovery.reads.queues import snapshot_store
from recovery.reads.queues.snapshot_store import SnapshotOfOtherVersion, decode, encode
from tests.support.stores.stores import Store

BULLMQ = LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5", ("meta.version = bullmq:5.81.5", "marker → ≥ 5"))
NOW = 1_700_000_000_000


def _sample(number: int, deployment: str = "main") -> QueueSample:
    return QueueSample(
        ref=QueueRef(deployment, f"bull:queue-{number}"),
        flavour=BULLMQ if number % 2 else LibraryVersion(),
        counts=JobCounts(number, 3, 0, 17, None, 12_345 + number, 99, None),
        is_paused=bool(number % 3),
        oldest_waiting_at=NOW - number * 1000,
        stalled_check_ttl=number * 7 % 30_000,
        workers=number % 5,
        rates=Rates(tuple((number * 31 + minute * 17) % 50 for minute in range(60)), (None, 0, 2) * 20, "library"),
        added=1_000_000 + number,
    )


def _snapshot(queues: int) -> Snapshot:
    deployment = DeploymentSample("main", "redis://h:6379/0", NOW, 3.2, 18_000, server="Redis 7.0", warnings=("a", "b"))
    worker = Worker(QueueRef("main", "bull:queue-1"), "mail-3", "10.0.0.7:5123", 60, 2, "bzpopmin", "77")
    return Snapshot(7, NOW, (deployment,), tuple(map(_sample, range(queues))), (worker,) * queues)


def test_a_snapshot_comes_back_as_it_was() -> None:
    snapshot = _snapshot(25)
    assert decode(encode(snapshot)) == snapshot


def test_a_snapshot_without_queues_comes_back_as_it_was() -> None:
    snapshot = Snapshot(1, NOW, (), ())
    assert decode(encode(snapshot)) == snapshot


def test_refs_and_flavours_come_back_as_their_own_types() -> None:
    sample = decode(encode(_snapshot(2))).queues[1]
    assert isinstance(sample.ref, QueueRef)
    assert sample.flavour.library is QueueLibrary.BULLMQ
    assert sample.flavour.label == "BullMQ 5.81"
    assert sample.counts.waiting_children is None


@pytest.mark.parametrize("base", ["bull:\udcff\udc80", "bull:<b>&\r\n\x00", "bull:ü—😀", "bull:{t}[*]?"])
def test_any_name_survives(base: str) -> None:
    sample = QueueSample(QueueRef("main", base), error="not " + base)
    snapshot = Snapshot(1, NOW, (), (sample,), (Worker(sample.ref, base, "", 0, 0, "", ""),))
    assert decode(encode(snapshot)) == snapshot


def test_undecodable_bytes_of_a_name_survive() -> None:
    raw = bytes(range(256))
    snapshot = Snapshot(1, NOW, (), (QueueSample(QueueRef("main", decode_name(raw))),))
    assert decode(encode(snapshot)).queues[0].ref.base.encode("utf-8", "surrogateescape") == raw


@pytest.mark.parametrize("minutes", [(), (None,), (0,), (None, None), (0, None, 12), (5,) * 60])
def test_unknown_minutes_and_no_minutes_differ(minutes: tuple[int | None, ...]) -> None:
    sample = QueueSample(QueueRef("main", "b:q"), rates=Rates(minutes, (), "recorded", minutes))
    assert decode(encode(Snapshot(1, NOW, (), (sample,)))).queues[0].rates == sample.rates


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\x80\x04not json",
        zlib.compress(b"null"),
        zlib.compress(b"[]"),
        zlib.compress(b"[1,2]"),
        zlib.compress(json.dumps([snapshot_store.SHAPE, 1]).encode()),
    ],
)
def test_what_another_version_wrote_is_refused_and_never_run(written: bytes) -> None:
    with pytest.raises(SnapshotOfOtherVersion):
        decode(written)


def test_a_thousand_queues_take_a_few_milliseconds_each_way() -> None:
    snapshot = _snapshot(1000)
    packed = encode(snapshot)
    decode(packed)
    assert _fastest(lambda: encode(snapshot)) < 0.040  # 8 ms on an idle core; two busy ones share their caches
    assert _fastest(lambda: decode(packed)) < 0.040
    assert len(packed) < 150_000


def _fastest(act: object) -> float:
    times = []
    for _ in range(5):
        started = time.thread_time()
        act()  # type: ignore[operator]
        times.append(time.thread_time() - started)
    return min(times)


def test_the_store_gives_back_the_newest_one_and_tells_its_number(state_store: Store) -> None:
    client = state_store.client
    listener = client.pubsub()
    listener.subscribe("unstall:snapshot:new")
    assert listener.get_message(timeout=5)["type"] == "subscribe"
    snapshot_store.publish(client, _snapshot(3))
    snapshot_store.publish(client, replace(_snapshot(2), number=8))
    assert snapshot_store.fetch(client) == replace(_snapshot(2), number=8)
    assert [listener.get_message(timeout=5)["data"] for _ in range(2)] == [b"7", b"8"]
    listener.close()


def test_a_store_without_a_snapshot_has_none(state_store: Store) -> None:
    assert snapshot_store.fetch(state_store.client) is None
    state_store.client.set("unstall:snapshot", b"something else")
    assert snapshot_store.fetch(state_store.client) is None
