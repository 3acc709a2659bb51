"""The bytes of a stream, and what the mirror's image says of itself. No store, no clock."""

from __future__ import annotations

import json

import pytest

from dashboard.live import events
from dashboard.live.cached_state import UNLED, CachedState
from dashboard.live.events import StreamEnding
from recovery.domain.queues.types import DeploymentSample, Snapshot
from recovery.errors import Unreachable
from recovery.reads.queues import snapshot_store
from recovery.reads.scanners.scheduler_status import SchedulerStatus

NOW = 1_760_000_000_000


def _snapshot(number: int = 7, taken_at: int = NOW, *, error: str = "") -> Snapshot:
    deployment = DeploymentSample(name="main", target="redis://10.0.0.1:6379", taken_at=taken_at, error=error)
    return Snapshot(number=number, taken_at=taken_at, deployments=(deployment,), queues=())


def _image(snapshot: Snapshot | None = None, *, scheduler_alive: bool = True) -> CachedState:
    image = CachedState(collect_every=2.0)
    image.take(None if snapshot is None else snapshot_store.encode(snapshot), b"1" if scheduler_alive else None)
    return image


def _detail(event: bytes) -> dict[str, object]:
    line = next(line for line in event.decode().split("\n") if line.startswith("data: "))
    detail: dict[str, object] = json.loads(line.removeprefix("data: "))
    return detail


def test_a_tick_says_which_snapshot_is_the_newest_and_that_it_is_fresh() -> None:
    event = events.tick(_image(_snapshot()), NOW + 1200)
    assert event.startswith(b"id: 7\nevent: tick\ndata: ")
    assert event.endswith(b"\n\n")
    assert _detail(event) == {
        "number": 7,
        "taken_at": NOW,
        "now": NOW + 1200,
        "stale": False,
        "reason": "",
        "problems": [],
    }


def test_a_tick_names_the_deployments_that_do_not_answer() -> None:
    detail = _detail(events.tick(_image(_snapshot(error="connection refused")), NOW))
    assert detail["problems"] == ["main: connection refused"]


def test_a_tick_names_the_deployments_that_are_held_without_the_time_that_is_left() -> None:
    image = _image(_snapshot())
    image.take(None, b"1", b'["eu", "main"]')
    assert _detail(events.tick(image, NOW))["problems"] == ["eu: auto-recovery paused", "main: auto-recovery paused"]
    for packed in (None, b"junk", b'{"eu": 1}', b"[1]"):
        image.take(None, b"1", packed)
        assert _detail(events.tick(image, NOW))["problems"] == []


def test_a_scheduler_that_only_reads_is_a_problem_of_fresh_numbers_alone() -> None:
    image = _image(_snapshot())
    image.take(None, SchedulerStatus("a", 1, None, NOW, NOW, "x").encode())
    assert _detail(events.tick(image, NOW + 1000))["problems"] == [UNLED]
    assert _detail(events.tick(image, NOW + 60_000))["problems"] == []
    image.take(None, SchedulerStatus("a", 1, 4, NOW, NOW, "x").encode())
    assert _detail(events.tick(image, NOW + 1000))["problems"] == []


def test_a_tick_before_the_first_snapshot_is_stale_and_has_no_number() -> None:
    event = events.tick(_image(), NOW)
    assert event.startswith(b"event: tick\n")
    assert _detail(event)["number"] is None
    assert _detail(event)["reason"] == "No snapshot has been taken yet."


def test_an_event_of_any_text_is_one_data_line_of_ascii() -> None:
    event = events.event("tick", {"reason": "a\nb\r\nc\u2028d\udc80 ü"})
    assert event.count(b"\n") == 3
    assert _detail(event)["reason"] == "a\nb\r\nc\u2028d\udc80 ü"


def test_a_stream_opens_with_a_comment_and_a_pause_before_reconnects_and_a_word_of_its_own() -> None:
    comment, retry, *_ = events.opening(NOW).decode().split("\n")
    assert comment.startswith(":")
    assert events.RETRY_MS[0] <= int(retry.removeprefix("retry: ")) <= events.RETRY_MS[1]
    assert b"event: hello\n" in events.opening(NOW)


def test_reconnects_are_spread() -> None:
    assert len({_detail(events.bye(StreamEnding.RESTARTING))["retry"] for _ in range(50)}) > 20


@pytest.mark.parametrize(
    ("age", "alive", "reason"),
    [
        (6_000, True, ""),
        (6_000, False, ""),
        (6_001, True, "The scheduler has stopped taking snapshots."),
        (6_001, False, "The scheduler is not running."),
    ],
)
def test_a_snapshot_is_stale_after_three_missed_collects_and_says_why(age: int, alive: bool, reason: str) -> None:
    health = _image(_snapshot(), scheduler_alive=alive).health(NOW + age)
    assert (health.stale, health.reason) == (bool(reason), reason)


def test_a_longer_interval_makes_a_longer_patience() -> None:
    image = CachedState(collect_every=10.0)
    image.take(snapshot_store.encode(_snapshot()), b"1")
    assert not image.health(NOW + 30_000).stale
    assert image.health(NOW + 30_001).stale


def test_a_store_that_is_away_leaves_the_last_snapshot_and_says_since_when() -> None:
    image = _image(_snapshot())
    image.fail(Unreachable("redis://10.0.0.2:6379", "refused"), NOW + 1000)
    image.fail(Unreachable("redis://10.0.0.2:6379", "refused"), NOW + 9000)
    health = image.health(NOW + 9000)
    assert image.snapshot is not None
    assert health.failing_since_ms == NOW + 1000
    assert health.scheduler_alive is None
    assert health.reason == "The state store does not answer: redis://10.0.0.2:6379: refused"


def test_a_short_failure_is_no_news_while_the_snapshot_is_young() -> None:
    image = _image(_snapshot())
    image.fail(Unreachable("redis://10.0.0.2:6379", "refused"), NOW + 500)
    assert image.health(NOW + 500).reason == ""
    assert image.health(NOW + 500).error


def test_a_store_that_lost_its_keys_leaves_the_last_snapshot_standing() -> None:
    image = _image(_snapshot())
    image.take(None, b"1")
    assert image.snapshot is not None
    assert image.snapshot.number == 7


def test_a_clock_that_runs_behind_makes_no_negative_age() -> None:
    assert _image(_snapshot()).health(NOW - 500).snapshot_age_ms == 0


def test_another_version_of_the_scheduler_is_said() -> None:
    image = _image(_snapshot())
    with pytest.raises(snapshot_store.SnapshotOfOtherVersion) as failure:
        image.take(b"not ours", b"1")
    image.fail(failure.value, NOW)
    assert "different versions" in image.health(NOW + 60_000).reason
