"""Writes the logs of the demo's workers: a file each, in the formats of real ones, and never a large one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

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
