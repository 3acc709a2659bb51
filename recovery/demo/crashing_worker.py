"""Runs the worker of `imports`: `python -m recovery.demo.crashing_worker URL [FOLDER]`. It will be killed."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from recovery.demo.runtime import CHANCE, worker

LOCK_MS = 10_000  # short, so that its orphans are without a lock soon after its death
CHECK_MS = 10_000
STALLS = 2
STEPS = 5

log = logging.getLogger("demo.imports")


async def run(url: str, logs: Path | None = None) -> None:
    worker(
        url,
        "imports",
        read_in,
        logs,
        concurrency=2,
        lockDuration=LOCK_MS,
        stalledInterval=CHECK_MS,
        maxStalledCount=STALLS,
    )
    await asyncio.Event().wait()


async def read_in(job: Any, _token: str) -> dict[str, Any]:
    rows = job.data["rows"]
    for step in range(1, STEPS + 1):
        await asyncio.sleep(CHANCE.uniform(1.0, 2.0))
        await job.log(f"{rows * step // STEPS} of {rows} rows")
        log.debug("job %s: %d of %d rows", job.id, rows * step // STEPS, rows)
        await job.updateProgress(100 * step // STEPS)
    return {"rows": rows}


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], *map(Path, sys.argv[2:3])))
