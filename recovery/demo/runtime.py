"""Queues, workers and producers of the demo on one Redis, closed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import SystemRandom
from typing import Any

from bullmq import FlowProducer, Queue, Worker
from redis.exceptions import RedisError

from recovery.demo.worker_logs import Processor, with_job_logs, worker_logger

PREFIX = "demo"
KEPT_COMPLETED = 300  # jobs a queue keeps: the demo runs for days and must not grow
KEPT_FAILED = 150
MINUTES_KEPT = 7 * 24 * 60  # of the library's own metrics: as far back as the charts go
CLOSING = 2.0  # seconds the jobs in hand get at the end; longer ones stay behind as orphans, as in life
PATIENCE = 30  # seconds for one answer; a worker blocks for ten, and the client would give up after five
RETRY_AFTER = 5.0  # seconds a producer rests when the store is away

CHANCE = SystemRandom()
log = logging.getLogger(__name__)


class DemoRuntime:
    """Runtime of the demo. `logs` is the folder where its workers write what they do."""

    def __init__(self, url: str, logs: Path | None = None) -> None:
        self.url = blocking_url(url)
        self.logs = logs
        self.flows = FlowProducer(self.url, {"prefix": PREFIX})
        self._queues: dict[str, Any] = {}
        self._workers: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []

    def queue(self, name: str) -> Any:
        if name not in self._queues:
            self._queues[name] = Queue(name, {"connection": self.url, "prefix": PREFIX})
        return self._queues[name]

    def work(self, name: str, processor: Processor, *, keeps_metrics: bool = True, **options: Any) -> None:
        self._workers.append(worker(self.url, name, processor, self.logs, keeps_metrics=keeps_metrics, **options))

    def every(self, seconds: float, make: Callable[[], Awaitable[Any]], *, first_after: float = 0.0) -> None:
        """Calls `make` again and again, not in step with the others."""
        self.play(_repeat(seconds, make, first_after))

    def play(self, part: Any) -> None:
        self._tasks.append(asyncio.ensure_future(part))

    async def close(self) -> None:
        """Lets every worker finish what it has in hand, however long that takes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = [one.close() for one in (*self._workers, *self._queues.values(), self.flows)]
        await asyncio.gather(*closing, return_exceptions=True)


def blocking_url(url: str) -> str:
    """Returns the same URL for a client that blocks."""
    return f"{url}{'&' if '?' in url else '?'}socket_timeout={PATIENCE}"


def worker(
    url: str, name: str, processor: Processor, logs: Path | None = None, *, keeps_metrics: bool = True, **options: Any
) -> Any:
    """Starts a worker of the Python port, with what all workers of the demo have in common."""
    options = {
        "connection": url,
        "prefix": PREFIX,
        "name": f"{name}-1",
        "removeOnComplete": {"count": KEPT_COMPLETED},
        "removeOnFail": {"count": KEPT_FAILED},
        **({"metrics": {"maxDataPoints": MINUTES_KEPT}} if keeps_metrics else {}),
        **options,
    }
    book = worker_logger(name, logs)
    made = Worker(name, with_job_logs(processor, book), options)
    book.info("worker %s is here", options["name"])
    made.on("error", lambda error, *_: log.debug("%s: %s", name, error))
    return made


async def _repeat(seconds: float, make: Callable[[], Awaitable[Any]], first_after: float) -> None:
    await asyncio.sleep(first_after)
    while True:
        try:
            await make()
        except (RedisError, OSError) as error:
            log.debug("not made: %s", error)
            await asyncio.sleep(RETRY_AFTER)
        await asyncio.sleep(seconds * CHANCE.uniform(0.6, 1.4))
