from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recovery.errors import Unreachable
from recovery.stores.state.shared_read import SharedReads


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_many_viewers_cost_one_read() -> None:
    shared, reads, gate = SharedReads(), [], threading.Event()

    def read() -> int:
        reads.append(1)
        gate.wait(10)
        return 42

    with ThreadPoolExecutor(50) as viewers:
        answers = [viewers.submit(shared.get, "window", read) for _ in range(50)]
        gate.set()
        assert {answer.result(10) for answer in answers} == {42}
    assert len(reads) == 1


def test_a_window_is_read_again_after_its_life() -> None:
    clock = Clock()
    shared = SharedReads(life=1.0, clock=clock)
    assert shared.get("a", lambda: 1) == 1
    clock.now += 0.9
    assert shared.get("a", lambda: 2) == 1
    clock.now += 0.2
    assert shared.get("a", lambda: 3) == 3


def test_a_failure_is_shared_too_and_forgotten() -> None:
    clock, asked = Clock(), []
    shared = SharedReads(life=1.0, clock=clock)

    def fail() -> None:
        asked.append(1)
        raise Unreachable("redis://x", "refused")

    for _ in range(3):
        with pytest.raises(Unreachable):
            shared.get("a", fail)
    assert len(asked) == 1
    clock.now += 2
    assert shared.get("a", lambda: "back") == "back"


def test_no_more_is_kept_than_allowed() -> None:
    clock = Clock()
    shared = SharedReads(life=1000, kept=3, clock=clock)
    for key in range(10):
        shared.get(key, lambda key=key: key)  # type: ignore[misc]
    assert shared.get(9, lambda: "again") == 9
    assert shared.get(0, lambda: "again") == "again"
