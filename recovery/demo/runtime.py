"""Queues, workers and producers of the demo on one Redis, closed together."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from random import SystemRandom
from typing import Any

from bullmq import FlowProducer, Queue, Worker
from redis.exceptions import RedisError

# -- worker logs
# Writes the logs of the demo's workers: a file each, in the formats of real ones, and never a large one.


LARGEST = 512 * 1024  # bytes; then it is renamed to `.1`, in place of the one that had that name
JSON = frozenset({"emails", "orders", "invoices", "notifications"})  # workers that write one object a line
SLOW = 3.0  # seconds of a job that a warning is worth
_NUMBERS = {"DEBUG": 20, "INFO": 30, "WARNING": 40, "ERROR": 50}  # as pino writes levels

Processor = Callable[[Any, str], Awaitable[Any]]


def worker_logger(worker: str, folder: Path | None) -> logging.Logger:
    """Returns the logger of a worker, which asks for it once. Without a folder nothing is written."""
    made = logging.getLogger(f"demo.{worker}")
    made.propagate = False
    made.setLevel(logging.DEBUG)
    made.addHandler(_file(worker, folder) if folder else logging.NullHandler())
    return made


def with_job_logs(process: Processor, log: logging.Logger) -> Processor:
    """Returns the processor with log lines about each job."""

    async def tell(job: Any, token: str) -> Any:
        log.info("job %s (%s): started, attempt %d", job.id, job.name, job.attemptsMade + 1)
        begun = time.monotonic()
        try:
            result = await process(job, token)
        except Exception as error:
            log.exception("job %s (%s): failed, %s", job.id, job.name, type(error).__name__)
            raise
        took = time.monotonic() - begun
        if took > SLOW:
            log.warning("job %s (%s): slow, %.1f s", job.id, job.name, took)
        log.info("job %s (%s): done in %d ms", job.id, job.name, took * 1000)
        return result

    return tell


def _file(worker: str, folder: Path) -> logging.Handler:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler = RotatingFileHandler(folder / f"{worker}.log", maxBytes=LARGEST, backupCount=1, encoding="utf-8")
    handler.setFormatter(_Object(worker) if worker in JSON else _Plain())
    return handler


class _Plain(logging.Formatter):
    """Formatter of `2026-11-18T00:41:07.123Z INFO  message`, with a trace in lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = f"{at} {record.levelname:<5} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _Object(logging.Formatter):
    """Formatter of JSON lines, as Node workers write with pino."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "level": _NUMBERS.get(record.levelname, 30),
            "time": int(record.created * 1000),
            "name": self._worker,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            told["err"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


# -- runtime


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
