"""Threads that are there from the start, and memory that goes back."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from recovery.logs import threads
from recovery.processes import memory

# A heap that is full of small things and then of few: every thousandth stays, so that no MB of it is empty.
_HEAP = """
import psutil
from recovery.processes import memory
size = lambda: psutil.Process().memory_info().rss
before = size()
held = [bytes(80) for _ in range(800_000)]
full = size()
held = held[::1000]
memory.give_back()
print(full - before, size() - before)
"""


def test_all_threads_are_there_before_anything_is_asked() -> None:
    executor = threads.started(3, "counted")
    try:
        assert sum(thread.name.startswith("counted") for thread in threading.enumerate()) == 3
        for _ in range(30):
            executor.submit(threading.get_ident).result(10)
        assert sum(thread.name.startswith("counted") for thread in threading.enumerate()) == 3
    finally:
        executor.shutdown()


@pytest.mark.skipif(not memory.give_back(), reason="the C library gives nothing back")
def test_memory_goes_back_although_here_and_there_something_stays() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _HEAP],
        env={"PYTHONMALLOC": "malloc"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    full, left = map(int, ran.stdout.split())
    assert full > 80 * 800_000
    assert left < full / 10
