"""Threads that are all there from the start: how many a process has does not depend on what it was asked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor


def started(count: int, name: str) -> ThreadPoolExecutor:
    """An executor starts one when it finds none idle: so each waits until all are there."""
    executor = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_there = threading.Barrier(count)
    for _ in range(count):
        executor.submit(all_there.wait)
    return executor
