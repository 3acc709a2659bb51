"""Thread pools whose threads are all there from the start: their number does not depend on what a process was asked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor


def start_pool(count: int, name: str) -> ThreadPoolExecutor:
    """Starts a pool with all its threads. An executor starts one when it finds none idle: so each waits for all."""
    executor = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_there = threading.Barrier(count)
    for _ in range(count):
        executor.submit(all_there.wait)
    return executor
